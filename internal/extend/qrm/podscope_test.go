package qrm_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// podFake is a plugin that decides for whole pods.
type podFake struct {
	fake

	calls sync.Map // what was asked, by number of calls
	n     int
}

func (f *podFake) note(what string, req *api.PodResourceRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.calls.Store(f.n, fmt.Sprintf("%s %s %v %v", what, req.GetPodName(), req.GetResourceRequests()[req.GetResourceName()], req.GetHint().GetNodes()))
}

func (f *podFake) GetPodTopologyHints(_ context.Context, req *api.PodResourceRequest) (*api.PodResourceHintsResponse, error) {
	f.note("hints", req)
	return &api.PodResourceHintsResponse{ResourceHints: map[string]*api.ListOfTopologyHints{
		"nic": {Hints: []*api.TopologyHint{{Nodes: []uint64{1}, Preferred: true}}},
	}}, nil
}

func (f *podFake) AllocateForPod(_ context.Context, req *api.PodResourceRequest) (*api.PodResourceAllocationResponse, error) {
	f.note("allocate", req)
	return &api.PodResourceAllocationResponse{AllocationResult: allocation("nic", &api.ResourceAllocationInfo{
		AllocatedQuantity: 3, Envs: map[string]string{"GIVEN": "pod"}, ResourceHints: &api.ListOfTopologyHints{Hints: []*api.TopologyHint{{Nodes: []uint64{1}, Preferred: true}}},
	})}, nil
}

func (f *podFake) asked() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.n {
		text, _ := f.calls.Load(i + 1)
		out = append(out, fmt.Sprint(text))
	}
	return out
}

// TestPodScope: with scope pod, a plugin that can do it is asked once for what all containers request at one time, also
// over a restart; its answer is for each of them. One that cannot is asked by container, and is not called faulty.
func TestPodScope(t *testing.T) {
	var state []byte
	scoped := func(o *qrm.Options) {
		o.PodScope = func() bool { return true }
		o.SavedState, o.SaveState = state, func(b []byte) error { state = b; return nil }
	}
	f := &podFake{fake: fake{options: &api.ResourcePluginOptions{WithTopologyAlignment: true}}}
	r := start(t, t.TempDir(), scoped)
	f.serveAs(t, filepath.Join(r.dir, "nic.sock"), f)
	if err := r.register(&api.RegisterRequest{Version: "v1alpha1", Endpoint: "nic.sock", ResourceName: "nic", Options: f.options}); err != nil {
		t.Fatal(err)
	}
	of := &lifecycle.PodSpec{UID: "u1", Containers: []lifecycle.ContainerSpec{
		{Name: "first", Kind: lifecycle.Init, Requests: lifecycle.Amounts{"nic": 2}}, {Name: "app", Requests: lifecycle.Amounts{"nic": 1}},
		{Name: "log", Requests: lifecycle.Amounts{"nic": 2}}, {Name: "none"},
	}}
	ask := func(ctr string) {
		t.Helper()
		q := r.Question(pod, app(ctr), of)
		hints, problems := q.Hints(t.Context())
		if len(hints) != 1 || len(problems) > 0 || len(hints[0].Hints) != 1 || !slices.Equal(hints[0].Hints[0].Nodes, []int{1}) {
			t.Errorf("%s: hints %+v, %v", ctr, hints, problems)
		}
		a, err := q.Allocate(t.Context(), &lifecycle.Affinity{NUMAHint: lifecycle.NUMAHint{Nodes: []int{1}, Preferred: true}})
		if err != nil || len(a.Values) != 1 || a.Values[0].Text != "pod" {
			t.Errorf("%s: %+v, %v", ctr, a, err)
		}
	}
	ask("first")
	ask("app")
	r.stop()
	r = start(t, r.dir, scoped)
	ask("log")
	if r.Question(pod, app("none"), of) != nil {
		t.Error("a container that requests nothing is asked about")
	}
	if got := f.asked(); !slices.Equal(got, []string{"hints web 3 []", "allocate web 3 [1]"}) {
		t.Errorf("asked %q", got)
	}
	for _, ctr := range []string{"first", "app", "log"} {
		if v := r.Values("u1")[ctr]; len(v) != 1 {
			t.Errorf("%s has %v", ctr, v)
		}
	}
}

func TestPodScopeByContainer(t *testing.T) {
	r := start(t, t.TempDir(), func(o *qrm.Options) { o.PodScope = func() bool { return true } })
	f := &fake{
		options: &api.ResourcePluginOptions{WithTopologyAlignment: true}, allocate: gives("nic", "x"),
		hints: func() (*api.ResourceHintsResponse, error) { return &api.ResourceHintsResponse{}, nil },
	}
	f.serve(t, filepath.Join(r.dir, "nic.sock"))
	if err := r.register(&api.RegisterRequest{Version: "v1alpha1", Endpoint: "nic.sock", ResourceName: "nic", Options: f.options}); err != nil {
		t.Fatal(err)
	}
	for range 4 { // more often than failures in a row would stop the calls
		q := r.Question(pod, app("app"), spec(lifecycle.Amounts{"nic": 1}))
		if hints, problems := q.Hints(t.Context()); len(hints)+len(problems) > 0 {
			t.Errorf("%v, %v", hints, problems)
		}
		if a, err := q.Allocate(t.Context(), nil); err != nil || !strings.Contains(values(a), "x") {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if s := r.state("nic"); s.Failed != 0 || s.Err != "" || !s.Answering {
		t.Errorf("state %+v", s)
	}
}
