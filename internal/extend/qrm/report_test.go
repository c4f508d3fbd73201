package qrm_test

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// reporter is a plugin that reports amounts by NUMA node.
type reporter struct {
	*fake

	mu          sync.Mutex // guards all below
	report      func(r *api.GetTopologyAwareResourcesRequest) (*api.GetTopologyAwareResourcesResponse, error)
	allocatable *api.GetTopologyAwareAllocatableResourcesResponse
	calls       int
}

func (r *reporter) GetTopologyAwareResources(_ context.Context, q *api.GetTopologyAwareResourcesRequest) (*api.GetTopologyAwareResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	return r.report(q)
}

func (r *reporter) GetTopologyAwareAllocatableResources(context.Context, *api.GetTopologyAwareAllocatableResourcesRequest) (*api.GetTopologyAwareAllocatableResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allocatable, nil
}

func (r *reporter) reports(f func(*api.GetTopologyAwareResourcesRequest) (*api.GetTopologyAwareResourcesResponse, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report = f
}

// said is an answer about a container with one resource.
func said(uid, container string, amount *api.TopologyAwareResource) *api.GetTopologyAwareResourcesResponse {
	return &api.GetTopologyAwareResourcesResponse{PodUid: uid, ContainerTopologyAwareResources: &api.ContainerTopologyAwareResources{
		ContainerName: container, AllocatedResources: map[string]*api.TopologyAwareResource{"nic": amount},
	}}
}

var onEth1 = []*api.TopologyAwareQuantity{{ResourceValue: 1, Node: 1, Name: "eth1", Type: "NIC", Annotations: map[string]string{"ns": "a"}}}

// TestReports: what a plugin reports of a container takes the place of its allocation's amounts. A report that is an
// error, or about another container, does not, and neither does a plugin that is away.
func TestReports(t *testing.T) {
	quantity := []lifecycle.PluginQuantity{{Value: 1, Node: 1, Name: "eth1", Type: "NIC", Annotations: map[string]string{"ns": "a"}}}
	allocated := []lifecycle.PluginAmount{{Resource: "nic", Total: 1, OtherTotal: 1}}
	long := []*api.TopologyAwareQuantity{{ResourceValue: 2, Name: strings.Repeat("x", 64<<10)}, {ResourceValue: 1, Node: 1 << 40}}
	for name, c := range map[string]struct {
		answer *api.GetTopologyAwareResourcesResponse
		err    error
		want   []lifecycle.PluginAmount
	}{
		"all": {said("u1", "app", &api.TopologyAwareResource{
			IsNodeResource: true, IsScalarResource: true, AggregatedQuantity: 1, OriginalAggregatedQuantity: 2,
			TopologyAwareQuantityList: onEth1, OriginalTopologyAwareQuantityList: []*api.TopologyAwareQuantity{{ResourceValue: 2, TopologyLevel: api.TopologyLevel_SOCKET}},
		}), nil, []lifecycle.PluginAmount{{
			Resource: "nic", IsNodeResource: true, IsScalarResource: true, Total: 1, OtherTotal: 2, ByNode: quantity, OtherByNode: []lifecycle.PluginQuantity{{Value: 2, Socket: true}},
		}}},
		"an error":          {nil, status.Error(codes.NotFound, "unknown"), allocated},
		"another container": {said("u1", "log", &api.TopologyAwareResource{AggregatedQuantity: 9}), nil, allocated},
		"another pod":       {said("u2", "app", &api.TopologyAwareResource{AggregatedQuantity: 9}), nil, allocated},
		"no amounts":        {said("", "", &api.TopologyAwareResource{AggregatedQuantity: math.Inf(1), OriginalAggregatedQuantity: -1}), nil, []lifecycle.PluginAmount{{Resource: "nic"}}},
		"long":              {said("u1", "app", &api.TopologyAwareResource{TopologyAwareQuantityList: long}), nil, []lifecycle.PluginAmount{{Resource: "nic", ByNode: []lifecycle.PluginQuantity{{Value: 2}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &reporter{fake: &fake{options: &api.ResourcePluginOptions{}, allocate: gives("nic", "1")}}
			f.reports(func(*api.GetTopologyAwareResourcesRequest) (*api.GetTopologyAwareResourcesResponse, error) {
				return c.answer, c.err
			})
			r := start(t, t.TempDir(), func(o *qrm.Options) { o.ReadReports = true })
			f.serveAs(t, filepath.Join(r.dir, "nic.sock"), f)
			r.mustRegister("nic", "nic.sock")
			if _, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1})).Allocate(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			until(t, "the plugin is asked", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.calls > 0 })
			// The stored answer follows the call at once.
			until(t, "the amounts are "+name, func() bool { return cmp.Equal(r.Amounts("u1")["app"], c.want) })
			if r.Remove("u1"); r.Amounts("u1") != nil {
				t.Error("amounts of a pod that has ended")
			}
		})
	}
}

// TestReportsOfAway: the last report counts while a plugin is away, and one without the method is asked once.
func TestReportsOfAway(t *testing.T) {
	f := &reporter{fake: &fake{options: &api.ResourcePluginOptions{}, allocate: gives("nic", "1")}}
	f.allocatable = &api.GetTopologyAwareAllocatableResourcesResponse{AllocatableResources: map[string]*api.AllocatableTopologyAwareResource{
		"nic": {AggregatedAllocatableQuantity: 3, AggregatedCapacityQuantity: 4, TopologyAwareAllocatableQuantityList: onEth1},
	}}
	f.reports(func(q *api.GetTopologyAwareResourcesRequest) (*api.GetTopologyAwareResourcesResponse, error) {
		return said(q.GetPodUid(), q.GetContainerName(), &api.TopologyAwareResource{AggregatedQuantity: 7}), nil
	})
	plain := &fake{options: &api.ResourcePluginOptions{}, allocate: gives("plain", "1")}
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.ReadReports, o.Timeout = true, 2*time.Second })
	stop := f.serveAs(t, filepath.Join(r.dir, "nic.sock"), f)
	r.mustRegister("nic", "nic.sock")
	plain.serve(t, filepath.Join(r.dir, "plain.sock"))
	r.mustRegister("plain", "plain.sock")
	if _, err := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1, "plain": 1})).Allocate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := []lifecycle.PluginAmount{{Resource: "nic", Total: 7}, {Resource: "plain", Total: 1, OtherTotal: 1}}
	until(t, "it is reported", func() bool { return cmp.Equal(r.Amounts("u1")["app"], want) })
	before := r.Allocatable(t.Context())
	const calls = 4 // options, Allocate, and once each method that it does not have
	until(t, "the other plugin is asked", func() bool { return r.state("plain").Calls == calls })
	stop()
	if diff := cmp.Diff(before, r.Allocatable(t.Context())); diff != "" || len(before) != 1 || before[0].Total != 3 || before[0].OtherTotal != 4 {
		t.Errorf("%+v; when it is away: %s", before, diff)
	}
	if diff := cmp.Diff(want, r.Amounts("u1")["app"]); diff != "" {
		t.Error(diff)
	}
	if again := r.state("plain").Calls; again != calls {
		t.Errorf("a plugin without the method was called %d times more", again-calls)
	}
}
