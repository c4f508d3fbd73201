package conductor_test

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

const halfCPU = `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}`

// carried lists the fields that an answer sets.
func carried(c *modelCtr) (fields []string) {
	if c.Resources.CPU.CPUs != "" {
		fields = append(fields, "cpuset.cpus")
	}
	if c.Resources.CPU.Shares != c.asked.CPU.Shares {
		fields = append(fields, "cpu.shares")
	}
	return fields
}

func explained(t *testing.T, mo *model, c *modelCtr, field string) api.Value {
	t.Helper()
	found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
	for _, e := range found {
		for _, v := range e.Values {
			if e.ID == c.ID && v.Field == field {
				return v
			}
		}
	}
	t.Fatalf("explain knows no %s of %s: %+v", field, c.ID, found)
	return api.Value{}
}

// TestCeded checks that a ceded field is not set at the creation, is in the kernel at the first
// instruction, and that explain reports that.
func TestCeded(t *testing.T) {
	t.Parallel()
	mo := newModel(t, cgroup.V1, faults{})
	mo.con.Configure(mo.policy, conductor.Tuning{Ceded: []lifecycle.Field{lifecycle.CPUShares}})
	p := mo.runPod("BE", "", halfCPU)
	c := mo.create(p, "a")
	if got := carried(c); len(got) != 1 || got[0] != "cpuset.cpus" {
		t.Errorf("claimed %v, want the cpuset alone", got)
	}
	if v := explained(t, mo, c, "cpu.shares"); v.Applied || !strings.Contains(v.Note, "nri.cede") {
		t.Errorf("before the start: %+v", v)
	}
	mo.start(c)
	text, err := mo.kernel.ReadFile("cpu/" + c.dir() + "/cpu.shares")
	if v := explained(t, mo, c, "cpu.shares"); err != nil || strings.TrimSpace(string(text)) != "512" || !v.Applied || v.Channel != "kernel" {
		t.Errorf("after the start the kernel has %s (%v), explain %+v", text, err, v)
	}
	if len(mo.broken) > 0 {
		t.Error(mo.broken)
	}
}

// traceOf returns the problem about failed creations of a container.
func traceOf(t *testing.T, mo *model, c *modelCtr) lifecycle.Problem {
	t.Helper()
	found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
	for _, e := range found {
		for _, p := range e.Problems {
			if e.ID == c.ID && p.Key == nodeview.ConflictKey {
				return p
			}
		}
	}
	return lifecycle.Problem{}
}

// TestFailedOnce: a creation that failed for another cause leaves no trace once the container runs with what the agent
// set.
func TestFailedOnce(t *testing.T) {
	t.Parallel()
	mo := newModel(t, cgroup.V2, faults{})
	p := mo.runPod("BE", "", halfCPU)
	mo.create(p, "a")
	p.ctrs = nil
	c := mo.create(p, "a")
	if p := traceOf(t, mo, c); !strings.Contains(p.Reason, "a creation of this container failed") {
		t.Errorf("before the start: %+v", p)
	}
	mo.start(c)
	if p := traceOf(t, mo, c); p.Key != "" || nodeview.Status(mo.con).Problems != 0 {
		t.Errorf("after the start: %+v", p)
	}
}

// TestFailedCreations checks that a container whose creation failed twice is created without
// contested fields, and with all of them again after one has started.
func TestFailedCreations(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*model, *modelCtr){
		"without an event": func(_ *model, c *modelCtr) { c.pod.ctrs = nil },
		"as a removal":     (*model).remove, // containerd 2.4
		"as two removals": func(mo *model, c *modelCtr) { // containerd 2.4, for each plugin that had answered
			mo.remove(c)
			c.ended = false
			mo.remove(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFailedCreations(t, drop)
		})
	}
}

// testFailedCreations lets two creations fail, and drop is what the runtime then does.
func testFailedCreations(t *testing.T, drop func(*model, *modelCtr)) {
	t.Helper()
	mo := newModel(t, cgroup.V2, faults{})
	p := mo.runPod("BE", "", halfCPU)
	for attempt, claims := range []int{2, 2, 0} {
		c := mo.create(p, "a")
		if got := carried(c); len(got) != claims {
			t.Errorf("attempt %d claims %v, want %d fields", attempt, got, claims)
		}
		if claims == 0 {
			if v := explained(t, mo, c, "cpu.shares"); !strings.Contains(v.Note, "2 creations of this container failed in a row") {
				t.Errorf("explain does not say why: %+v", v)
			}
			if p := traceOf(t, mo, c); !strings.Contains(p.Reason, "2 creations of this container failed") || !strings.Contains(p.Value, "cpu.shares") || !strings.Contains(p.Then, "nri.cede") {
				t.Errorf("the trace before the start: %+v", p)
			}
			c.Resources.CPU.Shares = lifecycle.Some(uint64(77)) // another plugin's
			mo.start(c)
			if p := traceOf(t, mo, c); !strings.Contains(p.Reason, "another NRI plugin sets cpu.shares, too") {
				t.Errorf("the trace after the start: %+v", p)
			}
			mo.stop(c)
			continue
		}
		drop(mo, c)
	}
	if n := len(nodeview.Status(mo.con).Containers); n != 1 {
		t.Errorf("%d containers are running, want the last", n)
	}
	if c := mo.create(p, "a"); len(carried(c)) != 2 {
		t.Errorf("after a start it claims %v", carried(c))
	}
}

// TestFailedWithoutOthers: where no other plugin answers creations, those that failed say nothing about plugins, and a
// container is created with all fields, however often that failed.
func TestFailedWithoutOthers(t *testing.T) {
	t.Parallel()
	mo := newModel(t, cgroup.V2, faults{})
	mo.from = proxy{}
	p := mo.runPod("BE", "", halfCPU)
	for attempt := range 4 {
		p.ctrs = nil
		c := mo.create(p, "a")
		if got := carried(c); len(got) != 2 {
			t.Errorf("attempt %d claims %v, want 2 fields", attempt, got)
		}
		if p := traceOf(t, mo, c); p.Key != "" {
			t.Errorf("attempt %d leaves a trace: %+v", attempt, p)
		}
	}
}
