package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	qrm "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
)

// The resources of the two resource plugins.
var pluginResources = []string{"example.com/nic", "example.com/pool"}

// resourcePlugin is a resource plugin that takes some time for each allocation.
type resourcePlugin struct {
	qrm.UnimplementedResourcePluginServer

	resource string
	takes    time.Duration
	answered atomic.Int64
	// registered is set when the agent has accepted the plugin.
	registered atomic.Bool
}

func (p *resourcePlugin) GetTopologyHints(context.Context, *qrm.ResourceRequest) (*qrm.ResourceHintsResponse, error) {
	return &qrm.ResourceHintsResponse{}, nil
}

func (p *resourcePlugin) Allocate(context.Context, *qrm.ResourceRequest) (*qrm.ResourceAllocationResponse, error) {
	time.Sleep(p.takes) // what is measured
	p.answered.Add(1)
	return &qrm.ResourceAllocationResponse{AllocationResult: &qrm.ResourceAllocation{ResourceAllocation: map[string]*qrm.ResourceAllocationInfo{
		p.resource: {AllocatedQuantity: 1, Envs: map[string]string{"GIVEN_" + filepath.Base(p.resource): "eth1"}},
	}}}, nil
}

func (p *resourcePlugin) RemovePod(context.Context, *qrm.RemovePodRequest) (*qrm.RemovePodResponse, error) {
	return &qrm.RemovePodResponse{}, nil
}

// serve serves the plugin in a manager's directory, and registers it when the manager is there.
func (p *resourcePlugin) serve(b *testing.B, dir string) {
	b.Helper()
	name := filepath.Base(p.resource) + ".sock"
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "unix", filepath.Join(dir, name))
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	qrm.RegisterResourcePluginServer(s, p)
	var ends sync.WaitGroup
	ends.Go(func() { _ = s.Serve(l) })
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	ends.Go(func() {
		_, err := qrm.NewRegistrationClient(conn).Register(b.Context(), &qrm.RegisterRequest{
			Version: "v1alpha1", Endpoint: name, ResourceName: p.resource, Options: &qrm.ResourcePluginOptions{},
		}, grpc.WaitForReady(true))
		if err != nil && b.Context().Err() == nil {
			b.Error(err)
		}
		p.registered.Store(err == nil)
	})
	b.Cleanup(func() { s.Stop(); _ = conn.Close(); ends.Wait() })
}

// podList is a kubelet's /pods.
type podList struct {
	mu    sync.Mutex
	text  []byte
	reads atomic.Int64 // of the present text
}

func (l *podList) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(l.text)
	l.reads.Add(1)
}

// publish lists pods that have not started.
func (l *podList) publish(b *testing.B, units []*unit) {
	b.Helper()
	items := []any{}
	for _, u := range units {
		amounts := map[string]string{"cpu": "100m"}
		for _, r := range pluginResources {
			amounts[r] = "1"
		}
		items = append(items, map[string]any{
			"metadata": map[string]any{"uid": u.pod.Uid, "name": u.pod.Name, "namespace": u.pod.Namespace, "labels": u.pod.Labels, "annotations": u.pod.Annotations},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": u.ctr.Name, "resources": map[string]any{"requests": amounts, "limits": amounts}}}},
			"status":   map[string]string{"qosClass": "Burstable", "phase": "Pending"},
		})
	}
	text, err := json.Marshal(map[string]any{"kind": "PodList", "metadata": map[string]string{}, "items": items})
	if err != nil {
		b.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	l.reads.Store(0)
}

// pluggedHost is a host of Trimtab with two resource plugins.
type pluggedHost struct {
	*host
	pods    *podList
	plugins []*resourcePlugin
}

func openPlugged(b *testing.B, takes time.Duration, ahead string) *pluggedHost {
	b.Helper()
	p := &pluggedHost{host: openHost(b, trimtab, newTree(b)), pods: &podList{}}
	p.pods.publish(b, nil)
	kubelet := httptest.NewServer(p.pods)
	b.Cleanup(kubelet.Close)
	dir := b.TempDir()
	for _, r := range pluginResources {
		one := &resourcePlugin{resource: r, takes: takes}
		one.serve(b, dir)
		p.plugins = append(p.plugins, one)
	}
	p.env = []string{podsVar + "=" + kubelet.URL, qrmVar + "=" + dir, aheadVar + "=" + ahead}
	p.attach(b)
	await(b, "both plugins are registered", func() bool { return p.plugins[0].registered.Load() && p.plugins[1].registered.Load() })
	return p
}

// answered returns how many allocations the plugins have made.
func (p *pluggedHost) answered() (n int64) {
	for _, one := range p.plugins {
		n += one.answered.Load()
	}
	return n
}

// await waits for a condition.
func await(b *testing.B, what string, is func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("not in time: %s", what)
		}
	}
}

// BenchmarkDecidedAhead measures creations of containers that request something of two resource plugins: asked at their
// creation, and decided before. Another plugin decides nothing.
func BenchmarkDecidedAhead(b *testing.B) {
	s := table.section("CreateContainer with two resource plugins, one at a time, in turn",
		"a plugin takes", "arm", "calls", "p50", "p99", "p50 ratio", "served ahead")
	for _, part := range []struct {
		takes time.Duration
		n     int
	}{{0, 200}, {200 * time.Millisecond, 20}} {
		aheadAt(b, s, part.takes, part.n)
	}
}

func aheadAt(b *testing.B, s *section, takes time.Duration, n int) {
	b.Helper()
	first := openHost(b, empty, "")
	first.attach(b)
	asked, ahead := openPlugged(b, takes, ""), openPlugged(b, takes, "yes")
	var units [3][]*unit
	for i := range units {
		for j := range n {
			units[i] = append(units[i], newUnit(200000+j, batch, 0))
		}
	}
	asked.pods.publish(b, units[1])
	ahead.pods.publish(b, units[2])
	await(b, "the agent reads the pods' specs", func() bool { return asked.pods.reads.Load() > 1 })
	await(b, "all pods are decided ahead", func() bool { return ahead.answered() >= int64(n*len(pluginResources)) })
	before := [3]int64{0, asked.answered(), ahead.answered()}
	var took [3]sample
	start := time.Now()
	for round := range n {
		if time.Since(start) > budget {
			break // the machine is busy with other work
		}
		for i := range took {
			at := (round + i) % len(took)
			h := [...]*host{first, asked.host, ahead.host}[at]
			l := h.begin(b, units[at][round])
			took[at] = append(took[at], l.create)
			h.end(b, units[at][round])
		}
	}
	calls := [3]int64{0, asked.answered() - before[1], ahead.answered() - before[2]}
	for i, arm := range []string{empty, "trimtab, plugins asked", "trimtab, decided ahead"} {
		share := "-"
		if i > 0 {
			made := len(took[i]) * len(pluginResources)
			share = fmt.Sprintf("%d of %d", made-int(calls[i]), made)
		}
		s.row(takes, arm, len(took[i]), took[i].at(50), took[i].at(99), over(took[i].at(50), took[0].at(50)), share)
	}
	b.ReportMetric(over(took[2].at(50), took[0].at(50)), fmt.Sprintf("ahead-p50-ratio-at-%dms", takes.Milliseconds()))
	for _, h := range []*host{first, asked.host, ahead.host} {
		h.detach()
	}
}
