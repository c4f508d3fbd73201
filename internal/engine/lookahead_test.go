package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// alignedPod is a pod whose containers own CPUs, with devices that the kubelet assigned: cards of NUMA node 2 and nics
// of NUMA node 3.
type alignedPod struct {
	name        string
	containers  []alignedContainer
	annotations map[string]string
}

type alignedContainer struct {
	cpus      int64
	card, nic bool
	kind      lifecycle.ContainerKind
}

// play creates the pod's containers one after another, up to one that is refused, and returns the NUMA nodes of each
// one's CPUs.
func (a alignedPod) play(t *testing.T, s *State, more func(*Facts)) (on []string, refused string) {
	t.Helper()
	pod := asking{name: a.name}.pod()
	if a.annotations != nil {
		pod.Annotations = a.annotations
	}
	spec := &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed"}
	granted := &lifecycle.KubeletGrants{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Containers: map[string]lifecycle.DeviceGrant{}}
	for i, c := range a.containers {
		of := lifecycle.Amounts{lifecycle.ResourceCPU: c.cpus * 1000, lifecycle.ResourceMemory: 32 << 20}
		name := string(rune('a' + i))
		spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: name, Requests: of, Limits: of, Kind: c.kind})
		devices := lifecycle.DeviceGrant{IDs: map[string][]string{}, NUMA: map[string][]int{}}
		if c.card {
			devices.IDs["example.com/card"], devices.NUMA["example.com/card"] = []string{fmt.Sprint(a.name, i)}, []int{2}
		}
		if c.nic {
			devices.IDs["example.com/nic"], devices.NUMA["example.com/nic"] = []string{fmt.Sprint(a.name, i)}, []int{3}
		}
		granted.Containers[name] = devices
	}
	f := Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}, Granted: map[string]*lifecycle.KubeletGrants{pod.UID: granted}}
	if more != nil {
		more(&f)
	}
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, f))
	for _, c := range spec.Containers {
		ctr := &lifecycle.Container{ID: a.name + "-" + c.Name, PodID: pod.ID, Name: c.Name, Resources: c.Resources()}
		plan := Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, f)
		if plan.Reject != "" {
			if !plan.RefusedAsUnaligned {
				t.Errorf("%s: %q is not by the topology manager", a.name, plan.Reject)
			}
			return on, plan.Reject
		}
		s.Commit(plan)
		on = append(on, topology.FormatList(nodeIDs(s.Machine, nodesWithCPUs(s.Machine, s.Container(ctr.ID).Assignment.Owned))))
		if c.Kind == lifecycle.Init {
			s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.StopContainer, Pod: pod, Container: ctr}, f))
		}
	}
	return on, ""
}

// ended removes the pod.
func (a alignedPod) ended(s *State) {
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: asking{name: a.name}.pod()}, Facts{}))
}

func aligning(t testing.TB, policy numahints.Policy, pod bool) *State {
	t.Helper()
	m, p := t16(t, "2s x 2n x 2c, 1GiB/node")
	p.Pools.Reserved, p.Pools.Shared, p.Pools.Reclaimed = topology.Set{}, m.Online(), m.Online()
	p.Placement = &pools.Policy{Tree: choose.NewTree(m), Sizing: pools.NewSizing(m), WholeCPUs: pools.WholeGuaranteed, NearDevices: true}
	p.Topology = TopologyManager{Policy: policy, PodScope: pod, RefuseUnaligned: true, AlignedResources: []string{"cpu", "memory", "example.com/card"}}
	return NewState(m, p)
}

// TestAlignedPods plays each policy and scope: a pod whose later container is not admitted is refused with its first,
// and with scope pod the first container follows the devices of later ones. test/vm/kubelet plays the same pods.
func TestAlignedPods(t *testing.T) {
	near := alignedPod{name: "near", containers: []alignedContainer{{cpus: 2, card: true}}}
	for _, tc := range []struct {
		pod     alignedPod
		beside  bool // near runs, and owns the CPUs of node 2
		refused []numahints.Policy
		pair    bool
	}{
		{pod: near},
		{pod: alignedPod{name: "full", containers: []alignedContainer{{cpus: 1, card: true}}}, beside: true, refused: []numahints.Policy{numahints.Restricted, numahints.SingleNode, numahints.Numeric}},
		{pod: alignedPod{name: "apart", containers: []alignedContainer{{cpus: 1, card: true, nic: true}}}, beside: true, refused: []numahints.Policy{numahints.Restricted, numahints.SingleNode, numahints.Numeric}},
		{pod: alignedPod{name: "later", containers: []alignedContainer{{cpus: 1}, {cpus: 1, card: true, nic: true}}}, beside: true, refused: []numahints.Policy{numahints.Restricted, numahints.SingleNode, numahints.Numeric}},
		{pod: alignedPod{name: "wide", containers: []alignedContainer{{cpus: 3}}}, refused: []numahints.Policy{numahints.Restricted, numahints.SingleNode}},
		{pod: alignedPod{name: "pair", containers: []alignedContainer{{cpus: 1}, {cpus: 1, card: true}}}, pair: true},
	} {
		for _, policy := range []numahints.Policy{numahints.None, numahints.BestEffort, numahints.Restricted, numahints.SingleNode, numahints.Numeric} {
			for _, scope := range []bool{false, true} {
				t.Run(fmt.Sprint(tc.pod.name, "/", policy, "/", scope), func(t *testing.T) {
					s := aligning(t, policy, scope)
					if tc.beside {
						near.play(t, s, nil)
					}
					on, refused := tc.pod.play(t, s, nil)
					if got, want := refused != "", slices.Contains(tc.refused, policy); got != want || got && len(on) > 0 {
						t.Errorf("refused: %q, after containers on %v", refused, on)
					}
					switch {
					case tc.pod.name == "near" && on[0] != "2":
						t.Errorf("its CPUs are on node %s", on[0])
					case !tc.pair:
					case on[1] != "2", scope && policy != numahints.None && on[0] != "2":
						t.Errorf("its CPUs are on nodes %v", on)
					}
				})
			}
		}
	}
}

// TestLookAhead: what a refusal of a later container depends on.
func TestLookAhead(t *testing.T) {
	apart := alignedContainer{cpus: 1, card: true, nic: true}
	for _, tc := range []struct {
		name       string
		containers []alignedContainer
		facts      func(*Facts)
		ran        int
		refused    string // part of the reason
	}{
		{"a later one", []alignedContainer{{cpus: 1}, {cpus: 1}, apart}, nil, 0, "container c, which is created later: no NUMA nodes meet the policy: "},
		{"after one without CPUs", []alignedContainer{{}, apart}, nil, 0, "container b, which is created later: "},
		{"after an init container", []alignedContainer{{cpus: 2, kind: lifecycle.Init}, apart}, nil, 0, "container b, which is created later: "},
		{"the init container's CPUs are free again", []alignedContainer{{cpus: 2, kind: lifecycle.Init, card: true}, {cpus: 2, card: true}}, nil, 2, ""},
		{"too many on one node", []alignedContainer{{cpus: 2, card: true}, {cpus: 1, card: true}}, nil, 0, "container b, which is created later: "},
		{"its spec is not known", []alignedContainer{{cpus: 1}, apart}, func(f *Facts) { f.Specs = nil }, 1, "no NUMA nodes meet the policy: "},
		{"nothing can be refused", []alignedContainer{{cpus: 1}, apart}, func(f *Facts) { f.CannotRefuse = true }, 2, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := aligning(t, numahints.SingleNode, false)
			pod := alignedPod{name: "p", containers: tc.containers}
			on, refused := pod.play(t, s, tc.facts)
			if len(on) != tc.ran || (refused == "") != (tc.refused == "") || !strings.Contains(refused, tc.refused) {
				t.Errorf("%d containers ran; refused: %q", len(on), refused)
			}
			pod.ended(s)
			if g := s.Grants(); len(g) > 0 {
				t.Errorf("the pod has ended, but owned are %v", g)
			}
		})
	}
}

// TestPlannedRefusal: a plan reports one refusal of a pod that is refused for a later container.
func TestPlannedRefusal(t *testing.T) {
	s := aligning(t, numahints.SingleNode, false)
	pod := asking{name: "p"}.pod()
	w := PlannedPod{Pod: *pod, Spec: &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed"}}
	for i, cpus := range []int64{1, 3, 3} {
		of := lifecycle.Amounts{lifecycle.ResourceCPU: cpus * 1000, lifecycle.ResourceMemory: 32 << 20}
		c := lifecycle.ContainerSpec{Name: string(rune('a' + i)), Requests: of, Limits: of}
		w.Spec.Containers = append(w.Spec.Containers, c)
		w.Containers = append(w.Containers, lifecycle.Container{ID: "p-" + c.Name, PodID: pod.ID, Name: c.Name, Resources: c.Resources()})
	}
	refused := s.Copy().WhatIf([]PlannedPod{w})
	var of []string
	for _, r := range refused {
		of = append(of, r.Container)
	}
	if got := strings.Join(of, " "); got != "a c" || !strings.Contains(refused[0].Reason, "container b, which is created later") {
		t.Errorf("refused are %q: %v", got, refused)
	}
}

// BenchmarkLookAhead is the first creation of a pod with five owners, on a node with 1000 containers.
func BenchmarkLookAhead(b *testing.B) {
	for _, refuse := range []bool{false, true} {
		b.Run(fmt.Sprint("refuses=", refuse), func(b *testing.B) {
			m, p := t16(b, "2s x 4n x 16c, 64GiB/node")
			p.Topology = TopologyManager{Policy: numahints.SingleNode, RefuseUnaligned: refuse}
			s := NewState(m, p)
			for i := range 1000 {
				asking{name: fmt.Sprint("other", i), level: "shared", parent: "/burstable", milli: 100, bytes: 1 << 20}.run(b, s)
			}
			pod := asking{name: "p"}.pod()
			spec := &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed"}
			for i := range 5 {
				of := lifecycle.Amounts{lifecycle.ResourceCPU: 2000, lifecycle.ResourceMemory: 32 << 20}
				spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: string(rune('a' + i)), Requests: of, Limits: of})
			}
			f := Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}}
			s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, f))
			ev := &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "a", PodID: pod.ID, Name: "a", Resources: spec.Containers[0].Resources()}}
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				if plan := Decide(s, ev, f); plan.Reject != "" {
					b.Fatal(plan.Reject)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
