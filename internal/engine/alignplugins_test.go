package engine

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/numahints"
)

// TestUnstoppable: the agent refuses a container that the topology manager does not admit. If the container
// exists already, the agent decides it at once and reports that.
func TestUnstoppable(t *testing.T) {
	m := node(t)
	p := policy(m)
	p.Topology = TopologyManager{Policy: numahints.SingleNode, Refuse: true}
	on := func(resource string, node int) lifecycle.ResourceHints {
		return lifecycle.ResourceHints{Resource: resource, Hints: []lifecycle.NUMAHint{{Nodes: []int{node}, Preferred: true}}}
	}
	pod := &lifecycle.Pod{ID: "s", UID: "u", Namespace: "d", Name: "p"}
	ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: "s", Name: "c"}}
	for _, c := range []struct {
		name  string
		hints []lifecycle.ResourceHints
		after bool // it exists already
		why   string
	}{
		{"fits", []lifecycle.ResourceHints{on("nic", 1), on("gpu", 1)}, false, ""},
		{"beyond the machine", []lifecycle.ResourceHints{on("nic", 7)}, false, "nic fits on no single NUMA node"},
		{"apart", []lifecycle.ResourceHints{on("nic", 0), on("gpu", 1)}, false, "nic fits on 0, gpu fits on 1"},
		{"apart, and exists", []lifecycle.ResourceHints{on("nic", 0), on("gpu", 1)}, true, "nic fits on 0, gpu fits on 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewState(m, p)
			plan := Decide(s, &ev, Facts{Unstoppable: c.after, HookServers: lifecycle.HookServerAnswer{Hints: c.hints}})
			if a := plan.Affinity(); a == nil || !strings.Contains(a.Refused, c.why) || (a.Refused == "") != (c.why == "") {
				t.Errorf("affinity %+v, want %q", a, c.why)
			}
			if refused := c.why != "" && !c.after; (plan.Reject != "") != refused || !strings.Contains(plan.Reject, c.why) && refused {
				t.Errorf("rejected %q, want %q", plan.Reject, c.why)
			}
			s.Commit(plan)
			if known := s.Container("c"); c.after && (known == nil || len(s.Problems(known)) != 1 || !strings.Contains(s.Problems(known)[0].Reason, c.why)) {
				t.Errorf("decided %+v", known)
			}
		})
	}
}
