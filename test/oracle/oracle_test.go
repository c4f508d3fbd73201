package oracle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	kubelet "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// question is one request to both allocators.
type question struct {
	text string
	m    *topology.Machine
	free topology.Set
	n    int
}

// shapes draws a machine on which all cores have the same number of threads, and all sockets the same number of cores,
// which the kubelet assumes.
func shapes(t *rapid.T) question {
	text := fmt.Sprintf("%ds x %dn x %dc x %dt", rapid.IntRange(1, 4).Draw(t, "sockets"), rapid.IntRange(1, 3).Draw(t, "nodes"),
		rapid.IntRange(1, 5).Draw(t, "cores"), rapid.SampledFrom([]int{1, 2, 2, 4}).Draw(t, "threads"))
	m, err := describe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return question{text: text, m: m, free: m.Online()}
}

// kubeletTopology is the machine as the kubelet sees it.
func (a question) kubeletTopology() *kubelet.CPUTopology {
	details, cores, packages := kubelet.CPUDetails{}, map[int]bool{}, map[int]bool{}
	for i, c := range a.m.CPUs {
		core := coreOf(a.m, i)
		details[c.ID] = kubelet.CPUInfo{NUMANodeID: c.Node, SocketID: c.Package, CoreID: core, UncoreCacheID: c.Node}
		cores[core], packages[c.Package] = true, true
	}
	return &kubelet.CPUTopology{
		NumCPUs: len(a.m.CPUs), NumCores: len(cores), NumSockets: len(packages), NumNUMANodes: len(a.m.Nodes), NumUncoreCache: len(a.m.Nodes), CPUDetails: details,
	}
}

// kubelets returns the CPUs that the kubelet's static policy gives a Guaranteed container.
func (a question) kubelets() (topology.Set, error) {
	log := logr.Discard()
	policy, err := cpumanager.NewStaticPolicy(log, a.kubeletTopology(), 0, cpuset.New(), topologymanager.NewFakeManager(), nil)
	if err != nil {
		return topology.Set{}, err
	}
	s := state.NewMemoryState(log)
	s.SetDefaultCPUSet(cpuset.New(a.free.Members()...))
	want := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(a.n), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("1Gi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: want, Limits: want}}}}}
	pod.UID = types.UID("pod")
	if err := policy.Allocate(log, s, pod, &pod.Spec.Containers[0]); err != nil {
		return topology.Set{}, err
	}
	given, _ := s.GetCPUSet("pod", "main")
	return topology.SetOf(given.List()...), nil
}

// ours returns the CPUs that our allocator gives.
func (a question) ours() (topology.Set, error) {
	chosen, err := choose.NewTree(a.m).Choose(choose.Request{N: a.n, From: a.free})
	return chosen.CPUs, err
}

// coreOf returns the first CPU of a core, as the core's name.
func coreOf(m *topology.Machine, cpu int) int {
	for i := range m.CPUs {
		if m.CPUs[i].Package == m.CPUs[cpu].Package && m.CPUs[i].Core == m.CPUs[cpu].Core {
			return i
		}
	}
	return cpu
}

// cost returns what both minimise, in this order: sockets; NUMA nodes; and, on one node, the free cores of which only a
// part is taken. Over several nodes Trimtab fills one node after the other and may split a core of the last. If the
// free part of one core of four threads suffices, it uses that.
func (a question) cost(cpus topology.Set) []int {
	sockets, nodes, taken, whole := map[int]bool{}, map[int]bool{}, map[int]int{}, map[int]int{}
	for _, cpu := range cpus.Members() {
		sockets[a.m.CPUs[cpu].Package], nodes[a.m.CPUs[cpu].Node] = true, true
		taken[coreOf(a.m, cpu)]++
	}
	threads := map[int]int{}
	for i := range a.m.CPUs {
		core := coreOf(a.m, i)
		threads[core]++
		if a.free.Has(i) {
			whole[core]++
		}
	}
	broken := 0
	if len(nodes) > 1 || len(a.m.CPUs) > 2*len(a.m.Groups(topology.CoreLevel)) {
		return []int{len(sockets), len(nodes), 0}
	}
	for core, n := range taken {
		if whole[core] == threads[core] && n < threads[core] {
			broken++
		}
	}
	return []int{len(sockets), len(nodes), broken}
}

// TestEmptyMachine: on a machine without owned CPUs, both choose the same CPUs for any number.
func TestEmptyMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := shapes(t)
		a.n = rapid.IntRange(1, a.free.Len()).Draw(t, "n")
		kubelet, err := a.kubelets()
		ours, oursErr := a.ours()
		if err != nil || oursErr != nil || kubelet != ours {
			t.Fatalf("%s, %d CPUs: the kubelet takes %v (%v), we take %v (%v)", a.text, a.n, kubelet.Members(), err, ours.Members(), oursErr)
		}
	})
}

// TestUsedMachine: on a machine with owned CPUs, both grant or both refuse, and our choice costs no more than the
// kubelet's, which takes from the groups with the fewest free CPUs first.
func TestUsedMachine(t *testing.T) {
	t.Parallel()
	same, better := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a := shapes(t)
		a.free = topology.SetOf(rapid.SliceOfN(rapid.IntRange(0, len(a.m.CPUs)-1), 1, -1).Draw(t, "free")...)
		a.n = rapid.IntRange(1, a.free.Len()+1).Draw(t, "n")
		kubelet, err := a.kubelets()
		ours, oursErr := a.ours()
		switch {
		case (err == nil) != (oursErr == nil):
			t.Fatalf("%s, %d of %v: the kubelet answers %v, we answer %v", a.text, a.n, a.free.Members(), err, oursErr)
		case err != nil:
			return
		case slices.Compare(a.cost(ours), a.cost(kubelet)) > 0:
			t.Fatalf("%s, %d of %v: the kubelet takes %v at a cost of %v, we take %v at %v", a.text, a.n, a.free.Members(),
				kubelet.Members(), a.cost(kubelet), ours.Members(), a.cost(ours))
		case kubelet == ours:
			same++
		case slices.Compare(a.cost(ours), a.cost(kubelet)) < 0:
			better++
		}
	})
	if same == 0 || better == 0 {
		t.Errorf("the same choice %d times and a better one %d times: too few for this test", same, better)
	}
	t.Logf("the same choice %d times, one of lower cost %d times", same, better)
}
