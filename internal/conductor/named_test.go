package conductor_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
)

// TestNamedLate creates an owner while the runtime is creating another container, whose id is
// not known yet. When it is known, the container's stored copy loses the owner's CPUs before it
// starts.
func TestNamedLate(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"", "LS", "BE"} {
		mo := newModel(t, cgroup.V1, faults{})
		mo.proxied = true
		var owner *modelCtr
		mo.between = func() { owner = mo.create(mo.runPod("LSR", "2-3", ""), "db") }
		c := mo.create(mo.runPod(class, "", ""), "a")
		if got := c.Resources.CPU.CPUs; got != "0-1,4-7" {
			t.Errorf("class %q: created beside an owner of 2-3 it has %q", class, got)
		}
		mo.start(owner)
		mo.start(c)
		for _, b := range mo.broken {
			t.Errorf("class %q: %s", class, b)
		}
	}
}

// TestNotCreated forgets a container that the runtime did not make, and keeps its pod's CPUs
// for the next attempt.
func TestNotCreated(t *testing.T) {
	t.Parallel()
	mo := newModel(t, cgroup.V1, faults{})
	mo.proxied = true
	p := mo.runPod("LSR", "2-3", "")
	told := &lifecycle.Container{ID: "creating-1", PodID: p.ID, Name: "db", State: lifecycle.StateCreated}
	for range 4 { // more often than a contested field is set
		mo.handle(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&p.Pod), Container: told})
		mo.handle(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: clone(&p.Pod), Container: told})
		if g := nodeview.Status(mo.con).CPUs.Grants; len(g) != 1 {
			t.Fatalf("grants %v", g)
		}
	}
	if left := nodeview.Status(mo.con).Containers; len(left) > 0 {
		t.Errorf("left over: %+v", left)
	}
	c := mo.create(p, "db")
	if c.Resources.CPU.CPUs != "2-3" {
		t.Errorf("created with CPUs %q", c.Resources.CPU.CPUs)
	}
	mo.start(c)
	for _, b := range mo.broken {
		t.Error(b)
	}
}
