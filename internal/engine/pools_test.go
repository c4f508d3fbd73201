package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// t16 is a machine of Katalyst's tests: NUMA node 0 has CPUs 0,1,8,9, and so on in pairs; 0 and 2 are
// reserved.
func t16(t testing.TB, text string) (*topology.Machine, Policy) {
	t.Helper()
	m, err := describe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p := policy(m)
	p.Pools.Reserved = set(t, m, "0,2")
	p.Pools.Shared = m.Online().Minus(p.Pools.Reserved)
	p.Pools.Reclaimed = p.Pools.Shared
	p.Placement = &pools.Policy{Tree: choose.NewTree(m), Sizing: pools.NewSizing(m), WholeCPUs: pools.WholeGuaranteed, LendLSR: true}
	return m, p
}

// asking is a pod and the expected result.
type asking struct {
	name        string
	level       string // of Katalyst, or a QoS class of Koordinator in capitals
	cpu, memory string // enhancements
	more        map[string]string
	parent      string
	milli       int64 // of pod and container; the limit is the same
	bytes       int64
	alone       bool // the pod's resources are not reported
	cpus, mems  string
	why         string // part of the reason for the assignment
	problem     string
}

func (a asking) pod() *lifecycle.Pod {
	p := &lifecycle.Pod{
		ID: "sandbox-" + a.name, UID: "uid-" + a.name, Namespace: "d", Name: a.name, CgroupParent: "/kubepods" + a.parent + "/pod" + a.name,
		Labels: map[string]string{}, Annotations: map[string]string{intent.KatalystCPU: a.cpu, intent.KatalystMemory: a.memory},
	}
	if strings.ToUpper(a.level) == a.level && a.level != "" {
		p.Labels[intent.KoordQoSClass] = a.level
	} else if a.level != "" {
		p.Annotations[intent.KatalystQoSLevel] = a.level + "_cores"
	}
	for key, text := range a.more {
		p.Annotations[key] = text
	}
	if !a.alone {
		r := a.resources()
		p.Resources = &r
	}
	return p
}

func (a asking) resources() lifecycle.Resources {
	var r lifecycle.Resources
	if r.CPU.Shares = lifecycle.Some(uint64(max(a.milli*1024/1000, 2))); a.milli > 0 {
		r.CPU.Quota = lifecycle.Some(a.milli * 100)
	}
	if a.bytes > 0 {
		r.Memory.Limit = lifecycle.Some(a.bytes)
	}
	return r
}

// run creates the pod and its container, and returns the container.
func (a asking) run(t testing.TB, s *State) *Container {
	t.Helper()
	p := a.pod()
	do(t, s, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: &lifecycle.Container{ID: a.name, PodID: p.ID, Name: "c", Resources: a.resources()}})
	return s.Container(a.name)
}

const (
	numaBound = `{"numa_binding":"true"}`
	numaWhole = `{"numa_binding":"true","numa_exclusive":"true"}`
	gib       = 1 << 30
)

// TestPools: in each case pods are created on a node one after another. A name with "Katalyst" is a row of
// its tables; if our result differs, the name says so.
func TestPools(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine string
		change  func(*Policy)
		pods    []asking
		after   map[string]string // the final CPUs of the earlier pods
	}{
		{name: "dedicated, not bound: as close together as possible", pods: []asking{
			{name: "a", level: "dedicated", milli: 4000, cpus: "4-5,12-13", mems: "2", why: "socket: of 2 with enough CPUs, the one with the fewest NUMA nodes"},
		}},
		{name: "dedicated, in part: rounded down", pods: []asking{{name: "a", level: "dedicated", milli: 4500, cpus: "4-5,12-13", mems: "2"}}},
		{name: "Katalyst A6: bound; another node fits as well", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 2000, cpus: "1,9", mems: "0", why: "1 NUMA node: of 4 choices with enough CPUs, the one with the lowest node ids"},
		}},
		{name: "Katalyst A5: exclusive", pods: []asking{
			{name: "a", level: "dedicated", memory: numaWhole, cpu: `{"katalyst.kubewharf.io/numa_ids":"0"}`, milli: 2000, cpus: "1,8-9", mems: "0"},
			{name: "b", level: "shared", milli: 1000, cpus: "10", mems: "1-3"},
			{name: "c", level: "reclaimed", parent: "/besteffort", cpus: "3-7,11-15", mems: "1-3"},
			{name: "d", level: "dedicated", memory: numaWhole, cpu: `{"katalyst.kubewharf.io/numa_ids":"0"}`, milli: 2000, cpus: "4,10,12", mems: "1-3", problem: "no NUMA nodes have 2 CPUs (exactly 1 node)"},
		}},
		{name: "Katalyst A16: evenly over two nodes", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 4000, cpus: "4,6,12,14", mems: "2-3",
				cpu: `{"distribute_evenly_across_numa":"true","katalyst.kubewharf.io/numa_ids":"2-3"}`},
		}},
		{name: "Katalyst H18: evenly in whole cores", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 8000, cpus: "4-7,12-15", mems: "2-3",
				cpu: `{"distribute_evenly_across_numa":"true","full_pcpus_pairing":"true","katalyst.kubewharf.io/numa_number":"2"}`},
		}},
		{name: "Katalyst A17: whole cores", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 2000, cpus: "4,12", mems: "2", cpu: `{"full_pcpus_pairing":"true","katalyst.kubewharf.io/numa_ids":"2"}`},
		}},
		{name: "Katalyst A18: only one whole core is free", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 4000, cpus: "4,8,10,12", problem: "no NUMA nodes have 4 CPUs (exactly 1 node, whole cores): 2 are available on 1 NUMA node, at most 2 on one",
				cpu: `{"full_pcpus_pairing":"true","katalyst.kubewharf.io/numa_ids":"0"}`},
		}},
		{name: "Katalyst H11: by socket", pods: []asking{
			{name: "a", level: "dedicated", memory: numaWhole, milli: 7000, cpus: "4-7,12-15", mems: "2-3", cpu: `{"align_by_socket":"true"}`},
		}},
		{name: "Katalyst H23: two nodes for what one would hold", pods: []asking{
			{name: "a", level: "dedicated", memory: numaWhole, milli: 2000, cpus: "1,3,8-11", mems: "0-1", cpu: `{"katalyst.kubewharf.io/numa_number":"2"}`},
		}},
		{name: "Katalyst H27: nodes there are none of", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 2000, cpus: "8,10", problem: "the machine has 0-3 and lacks 4", cpu: `{"katalyst.kubewharf.io/numa_ids":"0,2,4"}`},
		}},
		{name: "more CPUs than the node has", pods: []asking{
			{name: "a", level: "dedicated", milli: 15000, cpus: "1,3-15", problem: "15 CPUs are requested, and there are 14 to choose from"},
		}},
		{name: "no CPU for all others", pods: []asking{
			{name: "a", level: "dedicated", milli: 14000, cpus: "1,3-15", mems: "0-3"},
			{name: "b", level: "dedicated", milli: 1000, cpus: "0,2", problem: "1 CPUs are requested, and there are 0 to choose from"},
		}},
		{name: "no request", pods: []asking{{name: "a", level: "dedicated", cpus: "8", problem: "a CPU request of 0 is less than one whole CPU"}}},
		{name: "a memory limit that is no request drives nobody off a node", pods: []asking{
			{name: "a", level: "shared", parent: "/burstable", memory: numaBound, milli: 1000, bytes: 1 << 33, cpus: "4", mems: "2"},
			{name: "b", level: "dedicated", memory: numaBound, cpu: `{"katalyst.kubewharf.io/numa_ids":"2"}`, milli: 2000, bytes: 7 * gib, cpus: "5,13", mems: "2"},
		}},
		{name: "a bound pool that requests less than a CPU keeps nobody off its node", pods: []asking{
			{name: "a", level: "shared", parent: "/besteffort", memory: numaBound, cpus: "4-5,12-13", mems: "2"},
			{name: "b", level: "dedicated", memory: numaWhole, cpu: `{"katalyst.kubewharf.io/numa_ids":"2"}`, milli: 2000, cpus: "4-5,12-13", mems: "2"},
		}, after: map[string]string{"a": "8"}},
		{name: "less than a CPU", pods: []asking{{name: "a", level: "dedicated", milli: 999, cpus: "8", problem: "a CPU limit of 0.999 is less than one whole CPU"}}},
		{name: "owners keep to what no shared pool needs", pods: []asking{
			{name: "s", level: "shared", milli: 4000, cpus: "4,8,10,12"},
			{name: "a", level: "dedicated", milli: 4000, cpus: "6-7,14-15", mems: "3", why: "the one with the fewest CPUs of shared pools"},
		}, after: map[string]string{"s": "4,8,10,12"}},
		{name: "and take from it where there is no other way", pods: []asking{
			{name: "s", level: "shared", milli: 4000, cpus: "4,8,10,12"},
			{name: "a", level: "dedicated", milli: 12000, cpus: "1,4-10,12-15", mems: "0-3"},
		}, after: map[string]string{"s": "3,11"}},

		{name: "Koordinator: LSE and LSR without a scheduler's word", pods: []asking{
			{name: "a", level: "LSE", milli: 2000, cpus: "1,9", mems: "0"},
			{name: "b, whose CPUs are lent", level: "LSR", milli: 2000, cpus: "3,11", mems: "1"},
			{name: "be", level: "BE", parent: "/besteffort", cpus: "3-7,10-15", why: "reclaimed"},
		}},
		{name: "Koordinator: spread over cores", pods: []asking{
			{name: "a", level: "LSR", milli: 2000, cpus: "3,10", mems: "1", more: map[string]string{intent.KoordResourceSpec: `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`}},
		}},
		{name: "Koordinator: whole cores are preferred", pods: []asking{
			{name: "s", level: "shared", milli: 1000, cpus: "8"},
			{name: "a", level: "LSR", milli: 7000, cpus: "4-7,12-14", mems: "2-3"},
			{name: "b", level: "LSR", milli: 4000, cpus: "1,3,9,11", mems: "0-1", more: map[string]string{intent.KoordResourceSpec: `{"preferredCPUBindPolicy":"FullPCPUs"}`}, why: "near whole cores"},
		}},
		{name: "Koordinator: whole cores are required", pods: []asking{
			{name: "a", level: "LSR", milli: 3000, cpus: "4,8,10", problem: "3 CPUs are not whole cores", more: map[string]string{intent.KoordResourceSpec: `{"requiredCPUBindPolicy":"FullPCPUs"}`}},
		}},
		{name: "Koordinator: apart from other owners' NUMA nodes", pods: []asking{
			{name: "a", level: "LSR", milli: 1000, cpus: "10", mems: "1"},
			{name: "b", level: "LSR", milli: 1000, cpus: "8", mems: "0", more: map[string]string{intent.KoordResourceSpec: `{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`}},
		}},
		{name: "Koordinator: the scheduler's word counts", pods: []asking{
			{name: "a", level: "LSR", milli: 2000, cpus: "6-7", why: "assigned", mems: "3", more: map[string]string{intent.KoordResourceStatus: `{"cpuset":"6-7"}`}},
		}},

		{name: "Kubernetes: whole CPUs of Guaranteed pods", pods: []asking{
			{name: "a", milli: 2000, cpus: "1,9", mems: "0", why: "chosen"},
			{name: "half", milli: 2500, cpus: "0,2-8,10-15"},
			{name: "b", parent: "/burstable", milli: 2000, cpus: "0,2-8,10-15"},
		}},
		{name: "Kubernetes: whole CPUs of Burstable pods, too", change: func(p *Policy) { p.Placement.(*pools.Policy).WholeCPUs = pools.WholeAnywhere }, pods: []asking{
			{name: "b", parent: "/burstable", milli: 2000, cpus: "1,9", mems: "0"},
		}},
		{name: "Kubernetes: nowhere", change: func(p *Policy) { p.Placement.(*pools.Policy).WholeCPUs = pools.WholeNowhere }, pods: []asking{{name: "a", milli: 2000, cpus: "0-15"}}},

		{name: "shared: as large as the requests, in whole cores in turn", pods: []asking{
			{name: "a", level: "shared", milli: 1500, cpus: "8,10"}, {name: "b", level: "shared", milli: 2000, cpus: "4,8,10,12"},
		}, after: map[string]string{"a": "4,8,10,12"}},
		{name: "cpuset_pool: pools apart", pods: []asking{
			{name: "a", level: "shared", milli: 1000, cpus: "8"},
			{name: "b", level: "shared", milli: 2000, cpu: `{"cpuset_pool":"batch"}`, cpus: "7,15"},
			{name: "sys", level: "system", cpu: `{"cpuset_pool":"bat"}`, cpus: "7,15", why: "whose names begin"},
		}},
		{name: "Katalyst A12 and A13: system pods", pods: []asking{
			{name: "a", level: "system", cpu: `{"cpuset_pool":"reserve"}`, cpus: "0,2"}, {name: "b", level: "system", cpus: "0-15"},
		}},
		{name: "shared and bound: the node with the most left", pods: []asking{
			{name: "a", level: "shared", memory: numaBound, milli: 2000, cpus: "4,12", mems: "2"},
			{name: "b", level: "shared", memory: numaBound, milli: 2000, cpus: "6,14", mems: "3"},
			{name: "c", level: "shared", memory: numaBound, cpu: `{"cpuset_pool":"x"}`, milli: 2000, cpus: "1,9", mems: "0"},
			{name: "d", level: "shared", memory: numaBound, milli: 4000, cpus: "3,8,10-11", problem: "no NUMA node has 4000 milli-CPUs left"},
			{name: "e", level: "shared", memory: numaBound, milli: 1000, more: map[string]string{intent.KatalystBindResult: "3"}, cpus: "6-7,14", mems: "3"},
		}},
		{name: "shared and alone on a node", pods: []asking{
			{name: "a", level: "shared", memory: numaBound, cpu: `{"numa_share":"false"}`, milli: 1000, cpus: "4-5,12-13", mems: "2"},
			{name: "b", level: "shared", memory: numaBound, milli: 3000, cpus: "6-7,14", mems: "3"},
			{name: "c", level: "shared", milli: 3000, cpus: "1,8,10"},
		}},
		{name: "reclaimed and bound", pods: []asking{
			{name: "a", level: "reclaimed", parent: "/besteffort", memory: numaBound, cpus: "4-5,12-13", mems: "2"},
			{name: "b", level: "reclaimed", parent: "/besteffort", memory: numaBound, more: map[string]string{intent.KatalystBindResult: "1"}, cpus: "3,10-11", mems: "1"},
		}},
		{name: "Katalyst A4 and S7: the reclaimed pool is never empty", pods: []asking{
			{name: "a", level: "shared", milli: 14000, cpus: "1,3-15"}, {name: "b", level: "reclaimed", parent: "/besteffort", cpus: "15"},
		}},
		{name: "pools grow over all", change: func(p *Policy) {
			p.Placement.(*pools.Policy).Sizing.Expand, p.Placement.(*pools.Policy).Sizing.MinReclaimed = true, 4
		}, pods: []asking{
			{name: "a", level: "shared", milli: 1000, cpus: "1,3-15"}, {name: "b", level: "reclaimed", parent: "/besteffort", cpus: "5,7,13,15"},
		}},
		{name: "memory where one node is short", machine: "2s x 1n x 4c, 4GiB/node", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 1000, bytes: 3 * gib, cpus: "1", mems: "0"},
			{name: "b", level: "dedicated", memory: numaBound, milli: 1000, bytes: 3 * gib, cpus: "5", mems: "1", why: "the one with the nearest memory"},
			{name: "c", level: "dedicated", memory: numaBound, milli: 2000, bytes: 64 * gib, cpus: "6-7", mems: "0-1", problem: "bytes of memory are requested"},
		}},
		{name: "memory where both nodes are short", machine: "2s x 1n x 4c, 4GiB/node", pods: []asking{
			{name: "a", level: "dedicated", memory: numaBound, milli: 1000, bytes: 3 * gib, cpus: "1", mems: "0"},
			{name: "b", level: "dedicated", memory: numaBound, milli: 1000, bytes: 5 * gib, cpus: "5", mems: "0-1", why: "the one with the nearest memory"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := c.machine
			if text == "" {
				text = "2s x 2n x 2c x 2t, 8GiB/node"
			}
			m, p := t16(t, text)
			if c.change != nil {
				c.change(&p)
			}
			s := NewState(m, p)
			for _, a := range c.pods {
				ctr := a.run(t, s)
				if got := m.Format(s.CPUs(ctr)); got != a.cpus || ctr.Mems != a.mems {
					t.Errorf("%s has CPUs %s, memory %q by %q; want %s and %q", a.name, got, ctr.Mems, ctr.Assignment.Why, a.cpus, a.mems)
				}
				if !strings.Contains(ctr.Assignment.Why, a.why) {
					t.Errorf("%s: %q does not say %q", a.name, ctr.Assignment.Why, a.why)
				}
				if all := fmt.Sprint(ctr.ProblemSummary.Problems); len(ctr.ProblemSummary.Problems) > 0 != (a.problem != "") || !strings.Contains(all, a.problem) {
					t.Errorf("%s: problems %v, want %q", a.name, ctr.ProblemSummary.Problems, a.problem)
				}
			}
			for name, want := range c.after {
				if got := m.Format(s.CPUs(s.Container(name))); got != want {
					t.Errorf("in the end %s has %s, want %s", name, got, want)
				}
			}
		})
	}
}

// TestPodsOwnTogether: all containers of a dedicated pod own the same CPUs, as many as the pod requests,
// and its cgroup has no quota.
func TestPodsOwnTogether(t *testing.T) {
	m, p := t16(t, "2s x 2n x 2c x 2t")
	s := NewState(m, p)
	a := asking{name: "a", level: "dedicated", milli: 2000}
	main := a.run(t, s)
	pod := a.pod()
	side := &lifecycle.Container{ID: "side", PodID: pod.ID, Name: "side"}
	do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: side})
	if got, want := s.CPUs(s.Container("side")), s.CPUs(main); got != want || got.Len() != 2 || len(s.Grants()) != 2 {
		t.Errorf("a sidecar has %s, the main container %s", m.Format(got), m.Format(want))
	}
	lifted := false
	for _, v := range s.Pod(pod.ID).Values {
		lifted = lifted || v.Field == lifecycle.CPUQuota && v.Int == -1
	}
	if !lifted {
		t.Errorf("the pod's quota is not lifted: %v", s.Pod(pod.ID).Values)
	}
	// A container that is created again gets the same decision.
	do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: side})
	do(t, s, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: pod})
	if len(s.Grants()) > 0 || s.OwnedCPUs().Len() > 0 {
		t.Error("the end of a pod frees its CPUs")
	}
}

// TestRecoveredStateIsEqual: a state that is rebuilt from the containers' records equals the state before, whatever
// happened.
func TestRecoveredStateIsEqual(t *testing.T) {
	m, p := t16(t, "2s x 2n x 2c x 2t, 8GiB/node")
	s := NewState(m, p)
	var pods []*lifecycle.Pod
	var ctrs []*lifecycle.Container
	records := map[string]Record{}
	for i, a := range []asking{
		{name: "a", level: "dedicated", memory: numaBound, milli: 2000}, {name: "b", level: "shared", milli: 1500}, {name: "c", level: "LSR", milli: 1000},
		{name: "d", level: "shared", memory: numaBound, milli: 1000}, {name: "e", level: "shared", cpu: `{"cpuset_pool":"x"}`, milli: 1000},
		{name: "f", level: "reclaimed", parent: "/besteffort"}, {name: "g", milli: 1000}, {name: "h", level: "dedicated", milli: 13000}, {name: "i"},
	} {
		ctr := a.run(t, s)
		pods = append(pods, a.pod())
		ctrs = append(ctrs, &lifecycle.Container{ID: a.name, PodID: ctr.PodID, Name: "c", State: lifecycle.StateRunning, Resources: a.resources(), CreatedAt: int64(i % 3)})
		records[a.name] = Record{CPUs: m.Format(ctr.Stamp.CPUs), RecordFields: lifecycle.RecordFields{Pristine: ctr.Pristine, Managed: ctr.Managed, PoolNode: ctr.PoolNode, Mems: ctr.Mems}}
		if i == 1 { // the end of a pod moves no other pod
			gone := asking{name: "gone", level: "dedicated", milli: 3000}
			gone.run(t, s)
			do(t, s, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: gone.pod()})
		}
	}
	live := assignments(s)
	n := NewState(m, p)
	n.Commit(Decide(n, &lifecycle.Event{Kind: lifecycle.Synchronize, Pods: pods, Containers: ctrs}, Facts{Records: records}))
	if diff := cmp.Diff(live, assignments(n)); diff != "" {
		t.Error(diff)
	}
}

// assignments lists the assignment of each container.
func assignments(s *State) map[string]string {
	out := map[string]string{}
	for _, id := range s.Containers() {
		c := s.Container(id)
		out[id] = fmt.Sprintf("%s: %s, memory %q, owns %s", c.Assignment.Pool, s.Machine.Format(s.CPUs(c)), c.Mems, s.Machine.Format(c.Stamp.CPUs))
	}
	for _, g := range s.Grants() {
		out["grant of "+g.Pod] = fmt.Sprintf("%s %s lent %t alone %t", g.Key.Container, s.Machine.Format(g.CPUs), g.Lent, g.ExclusiveNodes)
	}
	return out
}

// BenchmarkSynchronize decides 1,000 shared containers whose requests size the pools.
func BenchmarkSynchronize(b *testing.B) {
	m := node(b)
	p := policy(m)
	p.Placement = &pools.Policy{Tree: choose.NewTree(m), Sizing: pools.NewSizing(m)}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	for i := range 1000 {
		pod := &lifecycle.Pod{ID: fmt.Sprint("p", i), UID: fmt.Sprint("u", i), Labels: map[string]string{"koordinator.sh/qosClass": "LS"}}
		ev.Pods = append(ev.Pods, pod)
		ev.Containers = append(ev.Containers, &lifecycle.Container{ID: fmt.Sprint("c", i), PodID: pod.ID, Name: "c", State: lifecycle.StateRunning})
	}
	b.ReportAllocs()
	for b.Loop() {
		Decide(NewState(m, p), &ev, Facts{})
	}
}
