package engine

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestResize: each case is a pod on an empty machine, and the requests of its container, or of the pod, one
// after another.
func TestResize(t *testing.T) {
	const even = `{"distribute_evenly_across_numa":"true","katalyst.kubewharf.io/numa_number":"2"}`
	type ask struct {
		milli   int64
		pod     bool // the request is the pod's
		cpus    string
		problem string
	}
	for _, c := range []struct {
		name   string
		change func(*Policy)
		pod    asking
		asks   []ask
	}{
		{name: "in parts: rounded down", pod: asking{level: "dedicated", milli: 1000, cpus: "10"}, asks: []ask{
			{milli: 1500, cpus: "10"}, {milli: 2000, cpus: "3,10"}, {milli: 2999, cpus: "3,10"}, {milli: 1400, cpus: "10"},
		}},
		{name: "to less than a CPU: what was taken is not given back", pod: asking{level: "dedicated", milli: 6000, cpus: "4-6,12-14"}, asks: []ask{
			{milli: 10, problem: "the container owned 6 CPUs and was resized: a CPU limit of 0.01 is less than one whole CPU"},
			{milli: 6000, problem: "the container can get them when it is created again"},
		}},
		{name: "to no request that the kubelet can tell", pod: asking{level: "dedicated", milli: 2000, cpus: "1,9"}, asks: []ask{
			{milli: 1, problem: "the container owned 2 CPUs and was resized: a CPU request of 0 is less than one whole CPU"},
		}},
		{name: "by its own resources", pod: asking{level: "LSR", milli: 2000, alone: true, cpus: "1,9"}, asks: []ask{
			{milli: 1999, cpus: "1"}, {milli: 10, problem: "the container owned 1 CPUs and was resized: a CPU limit of 0.01 is less than one whole CPU"},
		}},
		{name: "bound: on its nodes alone", pod: asking{level: "dedicated", memory: numaBound, milli: 2000, cpus: "1,9"}, asks: []ask{
			{milli: 3000, cpus: "1,8-9"}, {milli: 4000, cpus: "1,8-9", problem: "the container requests 4 CPUs now and owns 3: 1 CPUs are requested, and there are 0 to choose from"},
		}},
		{
			name: "bound and whole cores", pod: asking{level: "dedicated", memory: numaBound, cpu: `{"full_pcpus_pairing":"true","katalyst.kubewharf.io/numa_ids":"1"}`, milli: 2000, cpus: "3,11"},
			asks: []ask{
				{milli: 3000, cpus: "3,11", problem: "1 CPUs are requested, and there are 0 in whole cores to choose from"},
				{milli: 1000, cpus: "3", problem: "1 CPUs are not whole cores: each core has 2 threads"},
			},
		},
		{name: "whole NUMA nodes", pod: asking{level: "dedicated", memory: numaWhole, cpu: `{"katalyst.kubewharf.io/numa_ids":"2"}`, milli: 2000, cpus: "4-5,12-13"}, asks: []ask{
			{milli: 1000, cpus: "4-5,12-13"}, {milli: 4000, cpus: "4-5,12-13"},
			{milli: 5000, cpus: "4-5,12-13", problem: "the container requests 5 CPUs now and owns 4: the agent chooses whole NUMA nodes only when a container is created"},
		}},
		{name: "evenly", pod: asking{level: "dedicated", memory: numaBound, cpu: even, milli: 2000, cpus: "8,10"}, asks: []ask{
			{milli: 3000, cpus: "8,10", problem: "1 CPUs cannot be divided evenly over 2 NUMA nodes"},
			{milli: 4000, cpus: "1,3,8,10"}, {milli: 2000, cpus: "8,10"},
		}},
		{name: "a growth that was refused, and then less", pod: asking{level: "LSR", milli: 2000, cpus: "1,9"}, asks: []ask{
			{milli: 20000, cpus: "1,9", problem: "the container requests 20 CPUs now and owns 2: 18 CPUs are requested, and there are 12 to choose from"},
			{milli: 1000, cpus: "1"},
		}},
		{name: "the pod's sum counts where the containers' do not", pod: asking{level: "LSR", milli: 2000, cpus: "1,9"}, asks: []ask{
			{milli: 2000, pod: true, cpus: "1,9"}, {milli: 4000, pod: true, cpus: "1,9"}, {milli: 4000, cpus: "1,3,9,11"}, {milli: 4000, pod: true, cpus: "1,3,9,11"},
		}},
		{name: "no whole number any more", pod: asking{milli: 2000, cpus: "1,9"}, asks: []ask{
			{milli: 2500, cpus: "1,9", problem: "the CPU request of the container is not a whole number now, and the container owns 2 CPUs"},
			{milli: 1500, cpus: "1", problem: "the CPU request of the container is not a whole number now, and the container owns 1 CPUs"}, {milli: 1000, cpus: "1"},
			{milli: 500, problem: "the container owned 1 CPUs and was resized: a CPU limit of 0.5 is less than one whole CPU"},
		}},
		{name: "strict: all or nothing", change: func(p *Policy) { p.Strict = true }, pod: asking{level: "LSR", milli: 2000, cpus: "1,9"}, asks: []ask{
			{milli: 20000, cpus: "1,9", problem: "rejected: the container requests 20 CPUs now and owns 2"}, {milli: 3000, cpus: "1,8-9"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, p := t16(t, "2s x 2n x 2c x 2t, 8GiB/node")
			if c.change != nil {
				c.change(&p)
			}
			s := NewState(m, p)
			a := c.pod
			a.name = "a"
			if got := m.Format(a.run(t, s).Assignment.Owned); got != a.cpus {
				t.Fatalf("it owns %s, wanted %s", got, a.cpus)
			}
			for i, ask := range c.asks {
				said := resizeTo(t, s, a, ask.milli, ask.pod)
				checkOwned(t, m, s, ask.cpus)
				if (ask.problem == "") != (said == "") || !strings.Contains(said, ask.problem) {
					t.Errorf("ask %d: said %q, wanted %q", i, said, ask.problem)
				}
			}
		})
	}
}

// resizeTo requests other resources, and returns the reported problems.
func resizeTo(t *testing.T, s *State, a asking, milli int64, pod bool) string {
	t.Helper()
	a.milli = milli
	r := a.resources()
	ev := lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: a.pod(), Container: &lifecycle.Container{ID: "a", PodID: "sandbox-a", Name: "c"}, Requested: &r}
	if pod {
		ev.Kind = lifecycle.UpdatePodSandbox
	}
	plan := Decide(s, &ev, Facts{})
	if plan.Reject != "" {
		return "rejected: " + plan.Reject
	}
	s.Commit(plan)
	var said []string
	for _, q := range s.Container("a").ProblemSummary.Problems {
		said = append(said, q.Reason)
	}
	return strings.Join(said, "; ")
}

// checkOwned compares the container's CPUs in its assignment and in the ledger.
func checkOwned(t *testing.T, m *topology.Machine, s *State, cpus string) {
	t.Helper()
	c := s.Container("a")
	if got := m.Format(c.Assignment.Owned); got != cpus || s.OwnedCPUs() != c.Assignment.Owned || c.Stamp.CPUs != c.Assignment.Owned {
		t.Errorf("it owns %s, the ledger says %s and its record %s, wanted %s", got, m.Format(s.OwnedCPUs()), m.Format(c.Stamp.CPUs), cpus)
	}
}

// TestResizeAfterAnEnd: a container that had ended at a Synchronize still counts for its pod, because the
// scheduler charges the pod for it, until it is created again.
func TestResizeAfterAnEnd(t *testing.T) {
	for _, tc := range []struct {
		anew bool
		cpus string
	}{{false, "1,8-9"}, {true, "1,8-9"}} {
		m, p := t16(t, "2s x 2n x 2c x 2t, 8GiB/node")
		s := NewState(m, p)
		a := asking{name: "a", level: "LSR", milli: 3000}
		pod, one := a.pod(), asking{milli: 1000}.resources()
		main := &lifecycle.Container{ID: "a", PodID: pod.ID, Name: "c", Resources: one, State: lifecycle.StateRunning}
		side := &lifecycle.Container{ID: "b", PodID: pod.ID, Name: "side", Resources: one, State: lifecycle.StateStopped}
		records := map[string]Record{"a": {FromCheckpoint: true, CPUs: "1,9", RecordFields: lifecycle.RecordFields{Pristine: one}}}
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}, Containers: []*lifecycle.Container{main, side}}, Facts{Records: records}))
		checkOwned(t, m, s, "1,9")
		if tc.anew {
			do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "b2", PodID: pod.ID, Name: "side", Resources: one}})
		}
		if said := resizeTo(t, s, a, 2000, false); said != "" {
			t.Errorf("created anew: %v: said %q", tc.anew, said)
		}
		checkOwned(t, m, s, tc.cpus)
	}
}
