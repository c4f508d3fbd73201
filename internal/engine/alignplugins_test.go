package engine

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/numahints"
)

// TestUnstoppable: the agent refuses a container that the topology manager does not admit. If the container
// exists already, the agent decides it at once and reports that.
func TestUnstoppable(t *testing.T) {
	m := node(t)
	p := policy(m)
	p.Topology = TopologyManager{Policy: numahints.SingleNode, RefuseUnaligned: true}
	on := func(resource string, node int) lifecycle.ResourceHints {
		return lifecycle.ResourceHints{Resource: resource, Hints: []lifecycle.NUMAHint{{Nodes: []int{node}, Preferred: true}}}
	}
	pod := &lifecycle.Pod{ID: "s", UID: "u", Namespace: "d", Name: "p"}
	ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: "s", Name: "c"}}
	for _, c := range []struct {
		name  string
		hints []lifecycle.ResourceHints
		after bool // the container exists already
		why   string
	}{
		{"fits", []lifecycle.ResourceHints{on("nic", 1), on("gpu", 1)}, false, ""},
		{"beyond the machine", []lifecycle.ResourceHints{on("nic", 7)}, false, "nic fits on no single NUMA node"},
		{"apart", []lifecycle.ResourceHints{on("nic", 0), on("gpu", 1)}, false, "nic fits on NUMA nodes 0, gpu fits on NUMA nodes 1"},
		{"apart, and exists", []lifecycle.ResourceHints{on("nic", 0), on("gpu", 1)}, true, "nic fits on NUMA nodes 0, gpu fits on NUMA nodes 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewState(m, p)
			plan := Decide(s, &ev, Facts{CannotRefuse: c.after, HookServers: lifecycle.HookServerAnswer{Hints: c.hints}})
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

// TestPluginValues: a rule can refuse what a plugin gives beside CPUs and limits; the problem names plugin and rule.
func TestPluginValues(t *testing.T) {
	m := node(t)
	for _, refused := range []bool{false, true} {
		p := policy(m)
		if refused {
			p.Rules = intent.Rules{{Kinds: []intent.Kind{intent.PluginKind}, Namespaces: []string{"d"}, Decision: intent.Refuse, Name: "rule 1"}}
		}
		s := NewState(m, p)
		why := lifecycle.Reason{Hook: lifecycle.ResourcePluginName, Source: "nic"}
		answer := lifecycle.HookServerAnswer{Values: []lifecycle.Value{
			{Field: lifecycle.Env, Key: "NICS", Text: "eth1", Why: why}, {Field: lifecycle.Annotation, Key: "k", Text: "v", Why: why},
			{Field: lifecycle.MountPoint, Key: "/m", Mount: &lifecycle.Mount{Destination: "/m", Source: "/tmp", Type: "bind"}, Why: why},
			{Field: lifecycle.DeviceNode, Key: "/dev/x", Device: &lifecycle.Device{Path: "/dev/x", Type: "c"}, Why: why},
			{Field: lifecycle.MemoryLimit, Int: 1 << 30, Why: why}, {Field: lifecycle.Env, Key: "B", Text: "c", Why: lifecycle.Reason{Hook: lifecycle.HookServerName, Source: "s"}},
		}}
		pod := &lifecycle.Pod{ID: "s", UID: "u", Namespace: "d", Name: "p"}
		ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: "s", Name: "c"}}
		plan := Decide(s, &ev, Facts{HookServers: answer})
		s.Commit(plan)
		want, problems := 6, 0
		if refused {
			want, problems = 2, 4
		}
		ctr := s.Container("c")
		all := s.Problems(ctr)
		if len(ctr.HookServerValues) != want || len(all) != problems {
			t.Errorf("refused %v: %v, problems %v", refused, ctr.HookServerValues, all)
		}
		for _, q := range all {
			if q.Rule != "rule 1" || !strings.HasPrefix(q.Key, "nic: ") || !strings.Contains(q.Reason, "plugin-values") {
				t.Errorf("%+v", q)
			}
		}
	}
}
