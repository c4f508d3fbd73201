package facts_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// still is a state that does not change.
type still struct{ *engine.State }

func (s still) Hold() *engine.State { return s.State }
func (s still) Free()               {}

// TestPresence: a cgroup is missing after two searches did not find it, until one does. A pod has ended if its cgroup
// was seen and is gone, or if the runtime reported its end.
func TestPresence(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 4c")
	if err != nil {
		t.Fatal(err)
	}
	fake, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	s := engine.NewState(m, engine.Policy{Placement: none.Policy{}})
	decide := func(ev lifecycle.Event) { s.Commit(engine.Decide(s, &ev, engine.Facts{})) }
	pod := &lifecycle.Pod{ID: "p", UID: "u", Name: "web", Namespace: "shop", CgroupParent: "/kubepods/podu"}
	ctr := &lifecycle.Container{ID: "c", PodID: "p", Name: "a", CgroupsPath: "/kubepods/podu/c", State: lifecycle.StateRunning}
	decide(lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}, Containers: []*lifecycle.Container{ctr}})
	now := time.Unix(1000, 0)
	p := facts.NewPresence(&cgroup.Tree{FS: fake, Version: cgroup.V2}, still{s}, func() time.Time { return now }, time.Second)
	missing := map[string]string{"p": "kubepods/podu", "c": "kubepods/podu/c"}
	for _, step := range []struct {
		name    string
		do      func() error
		missing map[string]string
		ended   int
	}{
		{"searched once", func() error { return nil }, map[string]string{}, 0},
		{"searched twice", func() error { return nil }, missing, 0},
		{"the pod's cgroup came", func() error { return fake.MkdirRunc("kubepods/podu") }, map[string]string{"c": "kubepods/podu/c"}, 0},
		{"the container's, too", func() error { return fake.MkdirRunc("kubepods/podu/c") }, map[string]string{}, 0},
		{"the container's went: it was seen", func() error { return fake.Rmdir("kubepods/podu/c") }, map[string]string{}, 0},
		{"the pod's went", func() error { return fake.Rmdir("kubepods/podu") }, map[string]string{}, 1},
		{"it came back", func() error { return fake.MkdirRunc("kubepods/podu") }, map[string]string{}, 0},
		{"the runtime reported its end", func() error {
			decide(lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: pod})
			return fake.Rmdir("kubepods/podu")
		}, map[string]string{}, 1},
		{"it is forgotten", func() error {
			decide(lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod})
			return nil
		}, map[string]string{}, 0},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		now = now.Add(time.Second)
		p.FindCgroups()
		if diff := cmp.Diff(step.missing, p.MissingCgroups()); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
		if got := len(p.EndedPods()); got != step.ended {
			t.Errorf("%s: %d pods ended, want %d", step.name, got, step.ended)
		}
	}
	if p.CgroupVanished("p", pod.CgroupParent) {
		t.Error("a pod that is forgotten is remembered")
	}
}
