package oracle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	admission "k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// admitted is a pod on a machine with owned CPUs.
type admitted struct {
	question

	policy numahints.Policy
	scope  string
	cpus   []int // of its containers
}

// verdict is what became of the pod.
type verdict struct {
	admitted bool
	hint     string // of the first container
	within   []int  // the NUMA nodes of its preferred hint; nil for none
	cpus     topology.Set
}

// cpuProvider is the kubelet's static CPU manager as a hint provider.
type cpuProvider struct {
	cpumanager.Policy

	s state.State
}

func (p cpuProvider) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	return p.Policy.GetTopologyHints(logr.Discard(), p.s, pod, c)
}

func (p cpuProvider) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return p.Policy.GetPodTopologyHints(logr.Discard(), p.s, pod)
}

func (p cpuProvider) Allocate(pod *v1.Pod, c *v1.Container) error {
	return p.Policy.Allocate(logr.Discard(), p.s, pod, c)
}

func (p cpuProvider) AllocatePod(pod *v1.Pod) error {
	return p.Policy.AllocatePod(logr.Discard(), p.s, pod)
}

// kubeletAdmits asks the kubelet's own topology manager, with its static CPU manager.
func (a admitted) kubeletAdmits(t *rapid.T) (out verdict) {
	var nodes []cadvisor.Node
	for i := range a.m.Nodes {
		nodes = append(nodes, cadvisor.Node{Id: a.m.Nodes[i].ID})
	}
	manager, err := topologymanager.NewManager(nodes, string(a.policy), a.scope, nil)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := cpumanager.NewStaticPolicy(logr.Discard(), a.kubeletTopology(), 0, cpuset.New(), manager, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := state.NewMemoryState(logr.Discard())
	s.SetDefaultCPUSet(cpuset.New(a.free.Members()...))
	manager.AddHintProvider(logr.Discard(), cpuProvider{policy, s})
	pod := &v1.Pod{}
	pod.UID = types.UID("pod")
	for i, n := range a.cpus {
		want := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI), v1.ResourceMemory: resource.MustParse("1Gi")}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Requests: want, Limits: want}})
	}
	out.admitted = manager.Admit(&admission.PodAdmitAttributes{Pod: pod}).Admit
	if !out.admitted {
		return out
	}
	hint := manager.GetAffinity("pod", "c0")
	if out.hint = hintText(hint); hint.Preferred && hint.NUMANodeAffinity != nil {
		out.within = hint.NUMANodeAffinity.GetBits()
	}
	for i := range a.cpus {
		given, _ := s.GetCPUSet("pod", fmt.Sprint("c", i))
		out.cpus = out.cpus.Union(topology.SetOf(given.List()...))
	}
	return out
}

// weAdmit asks the engine.
func (a admitted) weAdmit(t *rapid.T) (out verdict) {
	p := engine.Policy{
		Dialects: intent.Dialects(), PlacementOn: true, Hooks: []hook.Hook{hook.CPUSetOptions{}},
		Pools:     placement.Pools{Online: a.m.Online(), Shared: a.m.Online(), Reclaimed: a.m.Online()},
		Placement: &pools.Policy{Tree: choose.NewTree(a.m), Sizing: pools.NewSizing(a.m), WholeCPUs: pools.WholeGuaranteed},
		Rules:     intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
		Topology:  engine.TopologyManager{Policy: a.policy, PodScope: a.scope == "pod", RefuseUnaligned: true},
	}
	s := engine.NewState(a.m, p)
	create := func(pod *lifecycle.Pod, spec *lifecycle.PodSpec, name string, n int) (*engine.Plan, *engine.Container) {
		var r lifecycle.Resources
		r.CPU.Shares, r.CPU.Quota = lifecycle.Some(uint64(1024*n)), lifecycle.Some(int64(100000*n)) //nolint:gosec // small
		ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: pod.Name + name, PodID: pod.ID, Name: name, Resources: r}}
		plan := engine.Decide(s, &ev, engine.Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}})
		if plan.Reject != "" {
			return plan, nil
		}
		s.Commit(plan)
		return plan, s.Container(pod.Name + name)
	}
	if taken := a.m.Online().Minus(a.free); !taken.Empty() {
		other := &lifecycle.Pod{
			ID: "s0", UID: "u0", Namespace: "d", Name: "other", CgroupParent: "/kubepods/podu0", Labels: map[string]string{"koordinator.sh/qosClass": "LSE"},
			Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": fmt.Sprintf(`{"cpuset":%q}`, a.m.Format(taken))},
		}
		if _, c := create(other, nil, "x", taken.Len()); c == nil || s.CPUs(c) != taken {
			t.Fatalf("%s are not taken: %+v", a.m.Format(taken), c)
		}
	}
	pod := &lifecycle.Pod{ID: "s1", UID: "pod", Namespace: "d", Name: "pod", CgroupParent: "/kubepods/podpod"}
	spec := &lifecycle.PodSpec{UID: "pod", Namespace: "d", Name: "pod", QoS: "Guaranteed"}
	for i, n := range a.cpus {
		of := lifecycle.Amounts{lifecycle.ResourceCPU: int64(n) * 1000}
		spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: fmt.Sprint("c", i), Requests: of, Limits: of})
	}
	for i, n := range a.cpus {
		plan, c := create(pod, spec, fmt.Sprint("c", i), n)
		if c == nil || c.Assignment.Pool != placement.Exclusive || s.CPUs(c).Len() != n {
			return out
		}
		if h := plan.Affinity(); i == 0 && h != nil {
			out.hint = fmt.Sprint("any ", h.Preferred)
			if h.Nodes != nil {
				out.hint = fmt.Sprint(h.Nodes, " ", h.Preferred)
			}
		}
		out.cpus = out.cpus.Union(s.CPUs(c))
	}
	out.admitted = true
	return out
}

// TestAdmission: the kubelet's topology manager with its static CPU manager, and ours, admit the same pods, with the
// same hint, and both give CPUs of the NUMA nodes that are preferred. With scope container a pod has one container,
// since the CPUs of the first decide about the next, and both choose these differently.
func TestAdmission(t *testing.T) {
	quiet()
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		a := admitted{question: shapes(t)}
		if len(a.m.Nodes) < 2 || len(a.m.Nodes) > 8 {
			return
		}
		a.policy = rapid.SampledFrom([]numahints.Policy{numahints.BestEffort, numahints.Restricted, numahints.SingleNode}).Draw(t, "policy")
		a.scope = rapid.SampledFrom([]string{"container", "pod"}).Draw(t, "scope")
		if rapid.Bool().Draw(t, "used") {
			a.free = topology.SetOf(rapid.SliceOfN(rapid.IntRange(0, len(a.m.CPUs)-1), 2, -1).Draw(t, "free")...)
		}
		containers := 1
		if a.scope == "pod" {
			containers = rapid.IntRange(1, 3).Draw(t, "containers")
		}
		left := a.free.Len() // others need a CPU
		for range containers {
			if left > 1 {
				n := rapid.IntRange(1, left-1).Draw(t, "cpus")
				a.cpus, left = append(a.cpus, n), left-n
			}
		}
		if len(a.cpus) == 0 {
			return
		}
		kubelet, ours := a.kubeletAdmits(t), a.weAdmit(t)
		if kubelet.admitted != ours.admitted || kubelet.hint != ours.hint && kubelet.admitted {
			t.Fatalf("%s, %s, %s, %v CPUs of %v: the kubelet admits %v by %s (CPUs %v), we admit %v by %s (CPUs %v)", a.text, a.policy, a.scope, a.cpus,
				a.free.Members(), kubelet.admitted, kubelet.hint, kubelet.cpus.Members(), ours.admitted, ours.hint, ours.cpus.Members())
		}
		for _, cpus := range []topology.Set{kubelet.cpus, ours.cpus} {
			for _, cpu := range cpus.Members() {
				if kubelet.within != nil && !slices.Contains(kubelet.within, a.m.CPUs[cpu].Node) {
					t.Fatalf("%s, %s, %s, %v CPUs: CPU %d of %v is not on NUMA nodes %v", a.text, a.policy, a.scope, a.cpus, cpu, cpus.Members(), kubelet.within)
				}
			}
		}
		counts[fmt.Sprintf("%s %s %v", a.policy, a.scope, kubelet.admitted)]++
	})
	if len(counts) < 10 { // best-effort refuses nothing
		t.Errorf("too few kinds of results: %v", counts)
	}
	t.Log(counts)
}
