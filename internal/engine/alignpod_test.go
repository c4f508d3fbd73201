package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestPodOnSeveralNodes: with scope pod, a pod that needs two NUMA nodes has them, and each of its containers is
// admitted, as the kubelet decides once for the pod.
func TestPodOnSeveralNodes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		policy   numahints.Policy
		cpus     []int64
		taken    string // CPUs that another pod owns
		refused  bool   // the first container is
		together bool   // all are on one NUMA node
	}{
		{"two nodes", numahints.Restricted, []int64{5, 5}, "", false, false},
		{"two nodes, uneven", numahints.Restricted, []int64{2, 7, 1}, "", false, false},
		{"one node", numahints.Restricted, []int64{3, 3}, "", false, true},
		{"one node, single", numahints.SingleNode, []int64{3, 3}, "", false, true},
		{"one node is not free", numahints.SingleNode, []int64{3, 3}, "1-4,9-12", true, false},
		{"one node is not free, restricted", numahints.Restricted, []int64{3, 3}, "1-4,9-12", true, false},
		{"numeric", numahints.Numeric, []int64{5, 5}, "", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, p := t16(t, "2s x 1n x 8c, 8GiB/node")
			p.Pools.Reserved, p.Pools.Shared, p.Pools.Reclaimed = topology.Set{}, m.Online(), m.Online()
			p.Topology = TopologyManager{Policy: tc.policy, PodScope: true, RefuseUnaligned: true, AlignedResources: []string{"cpu", "memory"}}
			s := NewState(m, p)
			if tc.taken != "" {
				other := asking{name: "other", level: "LSE", milli: 8000, more: map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"` + tc.taken + `"}`}}
				other.run(t, s)
			}
			a := asking{name: "p"}
			pod := a.pod()
			spec := &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed"}
			for i, n := range tc.cpus {
				of := lifecycle.Amounts{lifecycle.ResourceCPU: n * 1000}
				spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: string(rune('a' + i)), Requests: of, Limits: of})
			}
			var owned topology.Set
			for i, n := range tc.cpus {
				name := string(rune('a' + i))
				ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: name, PodID: pod.ID, Name: name, Resources: asking{milli: n * 1000}.resources()}}
				plan := Decide(s, &ev, Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}})
				if refused := plan.Reject != ""; refused != tc.refused {
					t.Fatalf("container %s is refused: %q; %v, others own %v", name, plan.Reject, plan.Affinity(), s.Grants())
				}
				if tc.refused {
					return
				}
				s.Commit(plan)
				ctr := s.Container(name)
				if got := s.CPUs(ctr).Len(); got != int(n) {
					t.Errorf("container %s has %d CPUs by %s, want %d", name, got, ctr.Assignment.Why, n)
				}
				owned = owned.Union(s.CPUs(ctr))
			}
			if on := nodesWithCPUs(m, owned).Len(); (on == 1) != tc.together {
				t.Errorf("the pod's CPUs %s are on %d NUMA nodes", m.Format(owned), on)
			}
		})
	}
}

// TestPagesOfMoreNodes: huge pages that no NUMA node has alone come from more nodes, where nothing is refused. An owner
// whose pages fit nowhere may use all nodes, which is reported.
func TestPagesOfMoreNodes(t *testing.T) {
	m, p := t16(t, "2s x 1n x 8c, 8GiB/node")
	p.Pools.Reserved, p.Pools.Shared, p.Pools.Reclaimed = topology.Set{}, m.Online(), m.Online()
	const size = 2 << 20
	m.Nodes[0].HugePages, m.Nodes[1].HugePages = map[uint64]uint64{size: 100}, map[uint64]uint64{size: 100}
	for _, policy := range []numahints.Policy{numahints.None, numahints.BestEffort} {
		p.Topology = TopologyManager{Policy: policy}
		s := NewState(m, p)
		for _, tc := range []struct {
			name, on string
			pages    int64
			problem  string
		}{{"a", "0", 40, ""}, {"b", "0-1", 150, ""}, {"c", "0-1", 90, "hugepages-2Mi: "}} {
			pod := asking{name: tc.name}.pod()
			of := lifecycle.Amounts{lifecycle.ResourceCPU: 1000, "hugepages-2Mi": tc.pages * size}
			spec := &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed", Containers: []lifecycle.ContainerSpec{{Name: "c", Requests: of, Limits: of}}}
			ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: tc.name, PodID: pod.ID, Name: "c", Resources: asking{milli: 1000}.resources()}}
			s.Commit(Decide(s, &ev, Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}}))
			c := s.Container(tc.name)
			problems := fmt.Sprint(c.ProblemSummary.Problems)
			if c.Mems != tc.on || strings.Contains(problems, "hugepages-2Mi: ") != (tc.problem != "") {
				t.Errorf("%s: %s is on NUMA nodes %q, want %q; problems %s", policy, tc.name, c.Mems, tc.on, problems)
			}
		}
	}
}

// TestHugePages: huge pages are hints: an owner gets the NUMA node that has enough of them left, or is refused where no
// node has.
func TestHugePages(t *testing.T) {
	m, p := t16(t, "2s x 1n x 8c, 8GiB/node")
	p.Pools.Reserved, p.Pools.Shared, p.Pools.Reclaimed = topology.Set{}, m.Online(), m.Online()
	p.Topology = TopologyManager{Policy: numahints.SingleNode, RefuseUnaligned: true}
	const size = 2 << 20
	m.Nodes[0].HugePages, m.Nodes[1].HugePages = map[uint64]uint64{size: 100}, map[uint64]uint64{size: 300}
	s := NewState(m, p)
	for _, tc := range []struct {
		name, on string // NUMA nodes; "" if it is refused
		pages    int64
	}{{"a", "1", 150}, {"b", "1", 140}, {"c", "0", 90}, {"d", "", 20}, {"e", "0", 5}, {"f", "", 1000}} {
		pod := asking{name: tc.name}.pod()
		of := lifecycle.Amounts{lifecycle.ResourceCPU: 1000, "hugepages-2Mi": tc.pages * size}
		spec := &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed", Containers: []lifecycle.ContainerSpec{{Name: "c", Requests: of, Limits: of}}}
		ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: tc.name, PodID: pod.ID, Name: "c", Resources: asking{milli: 1000}.resources()}}
		plan := Decide(s, &ev, Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}})
		if refused := plan.Reject != ""; refused != (tc.on == "") || refused != plan.RefusedAsUnaligned || refused && !strings.Contains(plan.Reject, "hugepages-2Mi fits on") {
			t.Errorf("%s: refused %q", tc.name, plan.Reject)
		}
		if plan.Reject != "" {
			continue
		}
		s.Commit(plan)
		if got := s.Container(tc.name).Mems; got != tc.on {
			t.Errorf("%s is on NUMA nodes %q by %s, want %s", tc.name, got, s.Container(tc.name).Assignment.Why, tc.on)
		}
	}
}
