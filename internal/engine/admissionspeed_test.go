package engine

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/numahints"
)

// BenchmarkAdmission admits a pod of five owners of CPUs, whose four resources the topology manager aligns: CPUs,
// memory, huge pages and an interface of a resource plugin. 256 CPUs have 0, 100 and 1,000 other containers, of which
// a tenth owns CPUs and has huge pages. The times are those of the thread, for all five containers.
func BenchmarkAdmission(b *testing.B) {
	for _, n := range []int{0, 100, 1000} {
		for _, policy := range []numahints.Policy{numahints.BestEffort, numahints.Restricted, numahints.SingleNode, numahints.Numeric} {
			for _, pod := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/pod=%v/%d", policy, pod, n), func(b *testing.B) { benchAdmission(b, n, policy, pod) })
			}
		}
	}
}

// admitted is a pod with containers that each request whole CPUs and huge pages.
func admitted(name string, containers int, cpus int64) (*lifecycle.Pod, []*lifecycle.Container, *lifecycle.PodSpec) {
	of := lifecycle.Amounts{lifecycle.ResourceCPU: cpus * 1000, lifecycle.ResourceMemory: 1 << 30, "hugepages-2Mi": 64 << 20, "example.com/nic": 1}
	a := asking{name: name, milli: cpus * 1000 * int64(containers)}
	pod := a.pod()
	spec := &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed"}
	var all []*lifecycle.Container
	for i := range containers {
		ctr := fmt.Sprint("c", i)
		spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: ctr, Requests: of, Limits: of})
		all = append(all, &lifecycle.Container{ID: name + ctr, PodID: pod.ID, Name: ctr, Resources: asking{milli: cpus * 1000, bytes: 1 << 30}.resources()})
	}
	return pod, all, spec
}

func benchAdmission(b *testing.B, n int, policy numahints.Policy, scope bool) {
	b.Helper()
	m, p := t16(b, speedMachine+", 64GiB/node")
	for i := range m.Nodes {
		m.Nodes[i].HugePages = map[uint64]uint64{2 << 20: 4096}
	}
	p.Pools.Shared, p.Pools.Reclaimed = m.Online(), m.Online()
	p.Topology = TopologyManager{Policy: policy, PodScope: scope, RefuseUnaligned: true, AlignedResources: []string{"cpu", "memory"}}
	s := NewState(m, p)
	run := func(pod *lifecycle.Pod, ctr *lifecycle.Container, f Facts) *Plan {
		plan := Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, f)
		s.Commit(plan)
		return plan
	}
	for i := range n {
		a := asking{name: fmt.Sprint("o", i), level: "shared", milli: 100}
		if i%10 != 0 {
			a.run(b, s)
			continue
		}
		pod, all, spec := admitted(a.name, 1, 1)
		run(pod, all[0], Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}})
	}
	nic := []lifecycle.ResourceHints{{Resource: "example.com/nic"}}
	for i := range m.Nodes {
		nic[0].Hints = append(nic[0].Hints, lifecycle.NUMAHint{Nodes: []int{m.Nodes[i].ID}, Preferred: true})
	}
	pod, all, spec := admitted("p", 5, 2)
	facts := Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}, HookServers: lifecycle.HookServerAnswer{Hints: nic}}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []time.Duration
	for b.Loop() {
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, facts))
		start := threadTime(b)
		for _, ctr := range all {
			if plan := run(pod, ctr, facts); plan.Reject != "" {
				b.Fatal(plan.Reject)
			}
		}
		took = append(took, threadTime(b)-start)
		do(b, s, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod})
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-us")
}
