package qrm_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// gpus is a plugin of GPU memory that chooses GPUs, too.
type gpus struct {
	*fake

	hintsOf func() (*api.AssociatedDeviceHintsResponse, error)
	choice  func(*api.AssociatedDeviceRequest) ([]string, error)

	mu      sync.Mutex // guards all below
	asked   []*api.AssociatedDeviceRequest
	updates []*api.UpdateAllocatableAssociatedDevicesRequest
}

func (g *gpus) GetAssociatedDeviceTopologyHints(context.Context, *api.AssociatedDeviceRequest) (*api.AssociatedDeviceHintsResponse, error) {
	return g.hintsOf()
}

func (g *gpus) AllocateAssociatedDevice(_ context.Context, r *api.AssociatedDeviceRequest) (*api.AssociatedDeviceAllocationResponse, error) {
	g.mu.Lock()
	g.asked = append(g.asked, r)
	g.mu.Unlock()
	ids, err := g.choice(r)
	return &api.AssociatedDeviceAllocationResponse{AllocationResult: &api.AssociatedDeviceAllocation{AllocatedDevices: ids}}, err
}

func (g *gpus) UpdateAllocatableAssociatedDevices(_ context.Context, r *api.UpdateAllocatableAssociatedDevicesRequest) (*api.UpdateAllocatableAssociatedDevicesResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.updates = append(g.updates, r)
	return &api.UpdateAllocatableAssociatedDevicesResponse{}, nil
}

func (g *gpus) sent() []*api.UpdateAllocatableAssociatedDevicesRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.updates)
}

const gpu = "example.com/gpu"

// takesAll chooses the devices that are left to choose.
func takesAll(r *api.AssociatedDeviceRequest) ([]string, error) {
	return r.GetDeviceRequest()[0].GetAvailableDevices(), nil
}

func startGPUs(t *testing.T, g *gpus, change func(*qrm.Options)) *rig {
	t.Helper()
	g.fake = &fake{
		options:  &api.ResourcePluginOptions{WithTopologyAlignment: true, AssociatedDevices: []string{gpu, gpu}},
		allocate: gives("gpu_memory", "1"), hints: func() (*api.ResourceHintsResponse, error) { return &api.ResourceHintsResponse{}, nil },
	}
	r := start(t, t.TempDir(), func(o *qrm.Options) {
		o.AssignedDevices = func(context.Context, *lifecycle.Pod, string) map[string][]string {
			return map[string][]string{gpu: {"g2", "g1"}}
		}
		if change != nil {
			change(o)
		}
	})
	g.serveAs(t, filepath.Join(r.dir, "gpu.sock"), g)
	r.mustRegister("gpu_memory", "gpu.sock")
	return r
}

// TestAssociated: a plugin that is associated with devices is asked for their hints, and notified of those that the
// kubelet assigned. It releases them with the pod.
func TestAssociated(t *testing.T) {
	g := &gpus{choice: takesAll, hintsOf: func() (*api.AssociatedDeviceHintsResponse, error) {
		return &api.AssociatedDeviceHintsResponse{DeviceHints: &api.ListOfTopologyHints{Hints: []*api.TopologyHint{{Nodes: []uint64{1}, Preferred: true}}}}, nil
	}}
	r := startGPUs(t, g, nil)
	for _, requests := range []lifecycle.Amounts{{"gpu_memory": 8, gpu: 2}, {gpu: 2}} {
		q := r.Question(pod, app("app"), spec(requests))
		hints, problems := q.Hints(t.Context())
		want := []lifecycle.ResourceHints{{Resource: gpu, Hints: []lifecycle.NUMAHint{{Nodes: []int{1}, Preferred: true}}}}
		if diff := cmp.Diff(want, hints); diff != "" || len(problems) > 0 {
			t.Errorf("%s %v", diff, problems)
		}
		at := &lifecycle.Affinity{NUMAHint: lifecycle.NUMAHint{Nodes: []int{1}, Preferred: true}}
		if a, err := q.Allocate(t.Context(), at); err != nil || len(a.Problems) > 0 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	on := &api.TopologyHint{Nodes: []uint64{1}, Preferred: true}
	for i, amount := range []float64{8, 0} {
		want := &api.AssociatedDeviceRequest{
			ResourceRequest: &api.ResourceRequest{
				PodUid: "u1", PodNamespace: "default", PodName: "web", ContainerName: "app", ContainerType: api.ContainerType_MAIN, PodRole: "role",
				ResourceName: "gpu_memory", Hint: on, ResourceRequests: map[string]float64{"gpu_memory": amount}, Labels: pod.Labels, Annotations: pod.Annotations, NativeQosClass: "Burstable",
			},
			DeviceRequest:         []*api.DeviceRequest{{DeviceName: gpu, Hint: on, AvailableDevices: []string{"g1", "g2"}, DeviceRequest: 2}},
			AccompanyResourceName: "gpu_memory", DeviceName: gpu,
		}
		if !proto.Equal(g.asked[i], want) {
			t.Errorf("asked\n%v, want\n%v", g.asked[i], want)
		}
	}
	if q := r.Question(pod, app("app"), spec(lifecycle.Amounts{"other": 1})); q != nil {
		t.Error("a question about nothing")
	}
	r.Remove("u1")
	until(t, "the plugin releases the pod", func() bool {
		g.fake.mu.Lock()
		defer g.fake.mu.Unlock()
		return slices.Contains(g.removed, "u1") && r.state("gpu_memory").Removals == 0
	})
}

// TestBadAssociated: whatever a plugin answers, the container has the devices that the kubelet assigned.
func TestBadAssociated(t *testing.T) {
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprint("g", i)
	}
	list := func(hints ...*api.TopologyHint) func() (*api.AssociatedDeviceHintsResponse, error) {
		return func() (*api.AssociatedDeviceHintsResponse, error) {
			return &api.AssociatedDeviceHintsResponse{DeviceHints: &api.ListOfTopologyHints{Hints: hints}}, nil
		}
	}
	none := func() (*api.AssociatedDeviceHintsResponse, error) { return &api.AssociatedDeviceHintsResponse{}, nil }
	impossible := []lifecycle.ResourceHints{{Resource: gpu, Hints: []lifecycle.NUMAHint{}}}
	for name, c := range map[string]struct {
		hints  func() (*api.AssociatedDeviceHintsResponse, error)
		choice func(*api.AssociatedDeviceRequest) ([]string, error)
		want   []lifecycle.ResourceHints
		why    string
	}{
		"no preference": {none, takesAll, nil, ""},
		"no node":       {list(), takesAll, impossible, ""},
		"error":         {func() (*api.AssociatedDeviceHintsResponse, error) { return nil, status.Error(codes.NotFound, "none") }, takesAll, impossible, "NotFound"},
		"no such node":  {list(&api.TopologyHint{Nodes: []uint64{1 << 40}}), takesAll, impossible, "name NUMA nodes that cannot exist"},
		"too many":      {list(make([]*api.TopologyHint, 2000)...), takesAll, nil, "has 2000 hints"},
		"others":        {none, func(*api.AssociatedDeviceRequest) ([]string, error) { return []string{"g1", "g3"}, nil }, nil, "the plugin chooses g1, g3 as devices of example.com/gpu, but the kubelet has assigned g1, g2"},
		"nothing":       {none, func(*api.AssociatedDeviceRequest) ([]string, error) { return nil, nil }, nil, "the plugin chooses none"},
		"long":          {none, func(*api.AssociatedDeviceRequest) ([]string, error) { return many, nil }, nil, "2992 more"},
		"refuses":       {none, func(*api.AssociatedDeviceRequest) ([]string, error) { return nil, status.Error(codes.Internal, "no") }, nil, "Internal: no"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gpus{hintsOf: c.hints, choice: c.choice}
			r := startGPUs(t, g, func(o *qrm.Options) { o.FailClosed = true })
			q := r.Question(pod, app("app"), spec(lifecycle.Amounts{gpu: 2}))
			hints, problems := q.Hints(t.Context())
			a, err := q.Allocate(t.Context(), nil)
			if diff := cmp.Diff(c.want, hints); diff != "" || err != nil || len(a.Values) > 0 {
				t.Errorf("%s, %v, %v", diff, a.Values, err)
			}
			problems = append(problems, a.Problems...)
			if c.why == "" && len(problems) > 0 || c.why != "" && (len(problems) != 1 || !strings.Contains(problems[0].Reason, c.why)) {
				t.Errorf("problems %v, want %q", problems, c.why)
			}
		})
	}
}

// TestUnknownAssigned: a plugin is not asked about devices that the kubelet does not report.
func TestUnknownAssigned(t *testing.T) {
	g := &gpus{choice: takesAll}
	r := startGPUs(t, g, func(o *qrm.Options) {
		o.AssignedDevices = func(context.Context, *lifecycle.Pod, string) map[string][]string { return nil }
	})
	q := r.Question(pod, app("app"), spec(lifecycle.Amounts{gpu: 2}))
	_, problems := q.Hints(t.Context())
	if a, err := q.Allocate(t.Context(), nil); err != nil || len(a.Problems) > 0 || len(g.asked) > 0 {
		t.Errorf("%+v, %v, asked %v", a, err, g.asked)
	}
	if len(problems) != 1 || !strings.Contains(problems[0].Reason, "the kubelet has not reported") {
		t.Errorf("problems %v", problems)
	}
}

// TestDeviceUpdates: a plugin gets the kubelet's devices, and again when they change; after a restart of the agent,
// without another registration.
func TestDeviceUpdates(t *testing.T) {
	var mu sync.Mutex
	devices := []lifecycle.KubeletDevice{{Resource: gpu, ID: "g2"}, {Resource: gpu, ID: "g1", Nodes: []int{0, 1}}, {Resource: "example.com/other", ID: "o1"}}
	var state []byte
	options := func(o *qrm.Options) {
		o.ReconcileInterval, o.SavedState = 5*time.Millisecond, state
		o.SaveState = func(b []byte) error { state = b; return nil }
		o.NodeDevices = func(context.Context) ([]lifecycle.KubeletDevice, error) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(devices), nil
		}
	}
	g := &gpus{choice: takesAll}
	r := startGPUs(t, g, options)
	until(t, "the devices are sent", func() bool { return len(g.sent()) == 1 })
	want := &api.UpdateAllocatableAssociatedDevicesRequest{DeviceName: gpu, Devices: []*api.AssociatedDevice{
		{ID: "g1", Health: "Healthy", Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 0}, {ID: 1}}}}, {ID: "g2", Health: "Healthy"},
	}}
	if got := g.sent()[0]; !proto.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
	mu.Lock()
	devices = devices[2:]
	mu.Unlock()
	until(t, "none is sent", func() bool { n := len(g.sent()); return n == 2 && len(g.sent()[1].GetDevices()) == 0 })
	r.stop()
	devices = []lifecycle.KubeletDevice{{Resource: gpu, ID: "g9"}}
	start(t, r.dir, options)
	until(t, "a new agent sends them", func() bool { n := g.sent(); return len(n) == 3 && len(n[2].GetDevices()) == 1 })
}
