package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/kubelet"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestKubeletMemoryNodes: with authority: kubelet, a container that the kubelet's memory manager bound to
// memory nodes keeps them. Neither its pool nor a hook server changes them, although the runtime's request
// has none, and its pool is on one of them. With authority: agent the API's report has no effect.
func TestKubeletMemoryNodes(t *testing.T) {
	m, err := describe.Parse("1s x 2n x 2c, 1GiB/node")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		kubelets bool
		outside  string
		want     string
		node     int // whose pool the container is in
		problem  string
	}{
		{"bound", true, "", "", 1, ""},
		{"bound, and others wanted", true, "0", "", 1, "the kubelet's memory manager bound the container to memory nodes 1"},
		{"the agent's say", false, "", "0", 0, ""},
		{"the agent's say, and others wanted", false, "1", "1", 0, ""},
	} {
		p := policy(m)
		p.Placement = &pools.Policy{Tree: choose.NewTree(m), Sizing: pools.NewSizing(m)}
		if c.kubelets {
			p.Placement = kubelet.Policy{Policy: p.Placement}
		}
		s := NewState(m, p)
		pod := &lifecycle.Pod{
			ID: "s", UID: "u", Namespace: "d", Name: "p", CgroupParent: "/kubepods/podu",
			Annotations: map[string]string{"katalyst.kubewharf.io/qos_level": "shared_cores", "katalyst.kubewharf.io/memory_enhancement": `{"numa_binding":"true"}`},
		}
		facts := Facts{Granted: map[string]*lifecycle.KubeletGrants{"u": {UID: "u", Namespace: "d", Name: "p", Static: map[string]lifecycle.StaticGrant{
			"c": {Reported: true, Mems: []int{1}},
		}}}}
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, facts))
		if c.outside != "" {
			facts.HookServers.Values = []lifecycle.Value{{Field: lifecycle.CPUSetMems, Text: c.outside, Why: lifecycle.Reason{Hook: lifecycle.HookServerName, Source: "one"}}}
		}
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: "s", Name: "c"}}, facts))
		ctr, mems, said := s.Container("c"), "", ""
		for _, v := range s.Values(ctr) {
			if v.Field == lifecycle.CPUSetMems {
				mems = v.Text
			}
		}
		for _, q := range ctr.ProblemSummary.Problems {
			said += q.String() + "\n"
		}
		if mems != c.want || ctr.Assignment.PoolID.Node != c.node || c.problem == "" && strings.Contains(said, "memory manager") || !strings.Contains(said, c.problem) {
			t.Errorf("%s: group %+v, memory nodes %q, want %q; problems %q, want %q", c.name, ctr.Assignment, mems, c.want, said, c.problem)
		}
	}
}

// TestKubeletGrantsBeforeEnd: the kubelet gives a container the CPUs of another one that ended, and the end is
// reported later. From then on the container owns them. While their owner lives, or another container owns
// them for another reason, it does not.
func TestKubeletGrantsBeforeEnd(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 8c")
	if err != nil {
		t.Fatal(err)
	}
	p := policy(m)
	p.Placement = kubelet.Policy{Policy: &pools.Policy{Tree: choose.NewTree(m), Sizing: pools.NewSizing(m)}}
	s := NewState(m, p)
	var last *Plan
	tell := func(kind lifecycle.Kind, name, gives string) {
		t.Helper()
		ev := &lifecycle.Event{Kind: kind, Pod: &lifecycle.Pod{
			ID: "s" + name, UID: "u" + name, Namespace: "d", Name: name, CgroupParent: "/kubepods/podu" + name,
		}}
		facts := Facts{Granted: map[string]*lifecycle.KubeletGrants{}}
		if kind != lifecycle.RunPodSandbox && kind != lifecycle.RemovePodSandbox {
			ev.Container = &lifecycle.Container{ID: name, PodID: "s" + name, Name: "c"}
		}
		if gives != "" {
			cpus, err := topology.ParseList(gives)
			if err != nil {
				t.Fatal(err)
			}
			facts.Granted["u"+name] = &lifecycle.KubeletGrants{UID: "u" + name, Namespace: "d", Name: name, Static: map[string]lifecycle.StaticGrant{
				"c": {Reported: true, CPUs: cpus},
			}}
		}
		last = Decide(s, ev, facts)
		s.Commit(last)
	}
	owns := func(name, cpus string) {
		t.Helper()
		c := s.Container(name)
		if has := m.Format(s.CPUs(c)); (c.Assignment.Pool == placement.Exclusive) != (cpus != "") || cpus != "" && has != cpus {
			t.Errorf("%s isMember in %+v with CPUs %s, wanted its own %q; %v", name, c.Assignment, has, cpus, c.ProblemSummary.Problems)
		}
	}
	run := func(name, gives string) {
		t.Helper()
		tell(lifecycle.RunPodSandbox, name, gives)
		tell(lifecycle.CreateContainer, name, gives)
		tell(lifecycle.StartContainer, name, gives)
	}
	run("first", "4")
	run("other", "2")
	run("heir", "4")
	run("both", "2,4")
	owns("first", "4")
	owns("heir", "")
	tell(lifecycle.StopContainer, "other", "")
	owns("heir", "")
	owns("both", "")
	tell(lifecycle.StopContainer, "first", "")
	owns("both", "2,4")
	owns("heir", "")
	if !slices.Equal(last.ReassignedContainers, []string{"both"}) {
		t.Errorf("decided again: %v", last.ReassignedContainers)
	}
	tell(lifecycle.RemovePodSandbox, "both", "")
	owns("heir", "4")
}
