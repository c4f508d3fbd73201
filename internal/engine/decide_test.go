package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/topology"
)

// node has 16 CPUs on two NUMA nodes, 0-7 and 8-15.
func node(t testing.TB) *topology.Machine {
	t.Helper()
	var cpus []topology.CPU
	for i := range 16 {
		cpus = append(cpus, topology.CPU{ID: i, Core: i, Node: i / 8})
	}
	m, err := topology.New(cpus, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func set(t testing.TB, m *topology.Machine, list string) topology.Set {
	t.Helper()
	s, err := m.ParseCPUs(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func policy(m *topology.Machine) Policy {
	return Policy{
		Dialects: []string{"koordinator", "katalyst", "kubernetes"}, PlacementOn: true, Placement: none.Policy{},
		Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
		Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}},
		Rules: intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
	}
}

func do(t testing.TB, s *State, ev lifecycle.Event) *Plan {
	t.Helper()
	p := Decide(s, &ev, Facts{})
	s.Commit(p)
	return p
}

// create runs a pod with one container and returns the container's values.
func create(t testing.TB, s *State, name, class, status, parent string) (map[string]string, *Container) {
	t.Helper()
	pod := &lifecycle.Pod{
		ID: "sandbox-" + name, UID: "uid-" + name, Namespace: "d", Name: name, CgroupParent: parent,
		Labels: map[string]string{}, Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": status},
	}
	if class != "" {
		pod.Labels["koordinator.sh/qosClass"] = class
	}
	do(t, s, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
	p := do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: name, PodID: pod.ID, Name: "c"}})
	got := map[string]string{}
	for _, v := range s.Values(s.Container(name)) {
		got[v.Field.String()] = v.String()
	}
	return got, p.Container
}

// TestCPUSetTable is the cpuset decision table of Koordinator 1.7, with LS
// pools 1-7 and 9-15 and BE pools 0-7 and 8-15, and the stated differences.
func TestCPUSetTable(t *testing.T) {
	const guaranteed, burstable, bestEffort = "/kubepods/p", "/kubepods/burstable/p", "/kubepods/besteffort/p"
	numa := func(node int, resource, amount string) string {
		return fmt.Sprintf(`{"numaNodeResources":[{"node":%d,"resources":{%q:%q}}]}`, node, resource, amount)
	}
	byNUMA := func(p *Policy) { p.Pools.ReclaimedByNUMA = true }
	shared := func(p *Policy) { p.Pools.UnlabelledShared = true }
	for _, c := range []struct {
		name, class, status, parent string
		change                      func(*Policy)
		cpus, quota, problem        string
	}{
		{name: "broken JSON", status: `{"cpuset"`, problem: "malformed"}, // a difference: an error in Koordinator
		{name: "assigned", class: "LSR", status: `{"cpuset":"2-4"}`, cpus: "2-4", quota: "-1"},
		{name: "assigned, no class", status: `{"cpuset":"2-4"}`, cpus: "2-4", quota: "-1"},
		{name: "LS on node 1", class: "LS", status: numa(1, "cpu", "2"), cpus: "9-15"},
		{name: "BE on node 0", class: "BE", status: numa(0, "cpu", "2"), change: byNUMA, cpus: "0-7"},
		{name: "BE on node 1 by batch-cpu", class: "BE", status: numa(1, "kubernetes.io/batch-cpu", "2000"), change: byNUMA, cpus: "8-15"},
		{name: "BE, NUMA not heeded", class: "BE", status: numa(1, "cpu", "2"), cpus: "0-15"},
		{name: "LS", class: "LS", cpus: "1-7,9-15"},
		{name: "LS with huge pages alone", class: "LS", status: numa(1, "hugepages-2Mi", "2Gi"), cpus: "1-7,9-15"},
		{name: "LS on an unknown node", class: "LS", status: numa(5, "cpu", "2"), cpus: "1-7,9-15", problem: "the machine has no NUMA nodes with these ids"},
		{name: "unlabelled Burstable, shared", parent: burstable, change: shared, cpus: "1-7,9-15"},
		{name: "unlabelled BestEffort, shared", parent: bestEffort, change: shared},
		{name: "unlabelled, left", parent: burstable},
		{name: "unlabelled Guaranteed, left", parent: guaranteed},
		{name: "SYSTEM with CPUs", class: "SYSTEM", change: func(p *Policy) { p.Pools.System = topology.SetOf(0, 1, 2, 3) }, cpus: "0-3"},
		{name: "SYSTEM without", class: "SYSTEM"},
		{name: "quota kept", class: "LSR", status: `{"cpuset":"2-4"}`, change: func(p *Policy) { p.Hooks = []hook.Hook{hook.CPUSetOptions{}} }, cpus: "2-4"},
		{name: "offline CPU", class: "LSR", status: `{"cpuset":"2,20"}`, cpus: "1-7,9-15", problem: "CPU 20 is not online"},
		{name: "reserved CPU", class: "LSR", status: `{"cpuset":"0,1"}`, change: func(p *Policy) { p.Pools.Reserved = topology.SetOf(0) }, cpus: "1-7,9-15", problem: "reserved"},
		{name: "every CPU", class: "LSR", status: `{"cpuset":"0-15"}`, cpus: "1-7,9-15", problem: "no CPU would be left"},
		{name: "cpuset off", class: "LSR", status: `{"cpuset":"2-4"}`, change: func(p *Policy) { p.PlacementOn, p.Hooks = false, nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := node(t)
			pol := policy(m)
			pol.Pools.Shared = set(t, m, "1-7,9-15")
			if c.change != nil {
				c.change(&pol)
			}
			s := NewState(m, pol)
			got, ctr := create(t, s, "a", c.class, c.status, c.parent)
			if got["cpuset.cpus"] != c.cpus || got["cpu.quota"] != c.quota {
				t.Errorf("cpus %q, quota %q; want %q, %q", got["cpuset.cpus"], got["cpu.quota"], c.cpus, c.quota)
			}
			said := fmt.Sprint(s.Pod(ctr.PodID).Intent.Problems, ctr.ProblemSummary.Problems)
			if c.problem == "" && said != "[] []" || !strings.Contains(said, c.problem) {
				t.Errorf("problems %s, want %q", said, c.problem)
			}
		})
	}
}

// TestSecondOwner checks that CPUs of one pod are refused to another, and that
// all containers of a pod share theirs.
func TestSecondOwner(t *testing.T) {
	m := node(t)
	s := NewState(m, policy(m))
	create(t, s, "a", "LSR", `{"cpuset":"2-4"}`, "")
	got, ctr := create(t, s, "b", "LSR", `{"cpuset":"4-5"}`, "")
	if got["cpuset.cpus"] != "0-1,5-15" || len(ctr.ProblemSummary.Problems) != 1 || !strings.Contains(ctr.ProblemSummary.Problems[0].Reason, "CPUs 4 are owned by d/a") {
		t.Errorf("%v, %v", got, ctr.ProblemSummary.Problems)
	}
	pod := s.Pod("sandbox-a").Pod
	do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "a2", PodID: pod.ID, Name: "sidecar"}})
	if cpus := m.Format(s.CPUs(s.Container("a2"))); cpus != "2-4" {
		t.Errorf("the pod's other container has %s", cpus)
	}
}

// panicking is a hook that fails.
type panicking struct{ hook.BatchOptions }

func (panicking) Propose(in *hook.Input, out *hook.Output) {
	out.Values = append(out.Values, lifecycle.Value{Field: lifecycle.CPUShares, Int: 1})
	panic("planted")
}

func TestHookPanics(t *testing.T) {
	m := node(t)
	pol := policy(m)
	pol.Hooks = []hook.Hook{panicking{}, hook.CPUSetOptions{UnsetQuota: true}}
	s := NewState(m, pol)
	got, ctr := create(t, s, "a", "LSR", `{"cpuset":"2-4"}`, "")
	if got["cpuset.cpus"] != "2-4" || got["cpu.shares"] != "" {
		t.Errorf("after a panic of another hook: %v", got)
	}
	if len(ctr.ProblemSummary.Problems) != 1 || !strings.Contains(ctr.ProblemSummary.Problems[0].Reason, "hook batch failed and proposes nothing: planted") {
		t.Errorf("trouble: %v", ctr.ProblemSummary.Problems)
	}
}

func TestStrict(t *testing.T) {
	m := node(t)
	pol := policy(m)
	pol.Strict = true
	s := NewState(m, pol)
	pod := &lifecycle.Pod{ID: "p", UID: "u", Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": "{"}}
	do(t, s, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
	p := do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "a", PodID: "p"}})
	if !strings.Contains(p.Reject, "resource-status") || !strings.Contains(p.Reject, "malformed JSON") || s.Container("a") != nil {
		t.Errorf("rejected with %q", p.Reject)
	}
}

// TestHooksDisagree checks the report about two hooks that set the same value.
func TestHooksDisagree(t *testing.T) {
	var o output
	for _, v := range []lifecycle.Value{
		{Field: lifecycle.CPUShares, Int: 5, Why: lifecycle.Reason{Hook: "one"}},
		{Field: lifecycle.CPUShares, Int: 6, Why: lifecycle.Reason{Hook: "two"}},
	} {
		o.addValue(v)
	}
	if len(o.Values) != 1 || o.Values[0].Int != 5 || len(o.Problems) != 1 {
		t.Errorf("%v %v", o.Values, o.Problems)
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("%d containers", n), func(b *testing.B) {
			m := node(b)
			s := NewState(m, policy(m))
			for i := range n {
				create(b, s, fmt.Sprintf("c%d", i), "LS", "", "/kubepods/burstable/p")
			}
			pod := &lifecycle.Pod{ID: "new", UID: "new", Labels: map[string]string{"koordinator.sh/qosClass": "LS"}}
			do(b, s, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
			ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "x", PodID: "new", Name: "c"}}
			b.ReportAllocs()
			for b.Loop() {
				Decide(s, &ev, Facts{})
			}
		})
	}
}

// TestFatalHook checks that a container is refused if, and only if, a hook fails that must not fail.
func TestFatalHook(t *testing.T) {
	m := node(t)
	for _, fatal := range []bool{false, true} {
		pol := policy(m)
		pol.Hooks = []hook.Hook{panicking{}}
		pol.FatalHooks = map[string]bool{"batch": fatal}
		s := NewState(m, pol)
		pod := &lifecycle.Pod{ID: "p", UID: "u"}
		do(t, s, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
		p := do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "a", PodID: "p", Name: "c"}})
		if refused := strings.Contains(p.Reject, "hook batch failed") && s.Container("a") == nil; refused != fatal {
			t.Errorf("fatal %t: rejected with %q", fatal, p.Reject)
		}
	}
}

// TestStrictRefusal: the message says why a container is refused, and not what would happen without strict
// mode.
func TestStrictRefusal(t *testing.T) {
	for status, want := range map[string]string{
		`{"cpuset":"2,20"}`: `scheduling.koordinator.sh/resource-status: "2,20": CPU 20 is not online on this node (online: 0-15)`,
		`{"cpuset":"0-15"}`: `scheduling.koordinator.sh/resource-status: "0-15": no CPU would be left for other containers`,
	} {
		m := node(t)
		pol := policy(m)
		pol.Strict = true
		s := NewState(m, pol)
		pod := &lifecycle.Pod{ID: "p", UID: "u", Namespace: "d", Name: "a", Annotations: map[string]string{intent.KoordResourceStatus: status}}
		p := do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: "p", Name: "c"}})
		if p.Reject != want {
			t.Errorf("refused with %s, want %s", p.Reject, want)
		}
		if told := p.Container.ProblemSummary.Problems[0].Sentence(); told != p.Container.ProblemSummary.Problems[0].Reason+"; the container runs in a shared pool" {
			t.Errorf("told as %s", told)
		}
	}
}

// TestPodQuotaFollowsOwner: a pod's sandbox is reported while another pod still owns the CPUs assigned to it.
// When its container owns them, the pod has no quota of its own.
func TestPodQuotaFollowsOwner(t *testing.T) {
	s := NewState(node(t), policy(node(t)))
	pod := func(name string) *lifecycle.Pod {
		return &lifecycle.Pod{
			ID: "s" + name, UID: "u" + name, Namespace: "d", Name: name, Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
			Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"1-2"}`},
			Resources:   &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2048)), Quota: lifecycle.Some(int64(200000))}},
		}
	}
	ctr := func(name string) *lifecycle.Container {
		return &lifecycle.Container{ID: name, PodID: "s" + name, Name: "c", Resources: *pod(name).Resources}
	}
	quota := func(name string) string {
		for _, v := range s.Pod("s" + name).Values {
			if v.Field == lifecycle.CPUQuota {
				return v.String()
			}
		}
		return "none of ours"
	}
	for _, name := range []string{"first", "second"} {
		do(t, s, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod(name)})
		if name == "first" {
			do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod(name), Container: ctr(name)})
		}
	}
	if first, second := quota("first"), quota("second"); first != "-1" || second != "none of ours" {
		t.Fatalf("quotas %s, %s", first, second)
	}
	do(t, s, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod("first")})
	p := do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod("second"), Container: ctr("second")})
	if s.Container("second").Assignment.Pool != placement.Exclusive || quota("second") != "-1" || len(p.ChangedPods) != 1 {
		t.Errorf("it is in %+v, its pod's quota is %s; pods decided anew: %v", s.Container("second").Assignment, quota("second"), p.ChangedPods)
	}
}
