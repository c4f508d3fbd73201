package placement

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy decides who owns which CPUs, of those nobody assigned, and what everybody
// else shares. It answers by what it is shown and keeps nothing: recovery, resizes,
// init containers, CPUs that go offline and what a pod may ask for are the engine's.
type Policy interface {
	// Terms says on what terms a container comes to own CPUs.
	Terms(m *topology.Machine, s Subject) Terms
	// Choose chooses the CPUs of an owner: those of a new one, more beside those it
	// has, or which of them it keeps. The error is a sentence for people.
	Choose(v View, s Subject, w CPURequest) (Assignment, error)
	// Share says where a container sits that owns no CPUs.
	Share(v View, s Subject) Assignment
	// Layout says what the pools have.
	Layout(p *Pools, d Demand) *Layout
}

// View is what a policy sees of the node.
type View struct {
	Machine *topology.Machine
	Pools   *Pools
	// Layout is what the pools have now, and for which demand.
	Layout *Layout
	// Free are the CPUs that the subject's pod could come to own.
	Free topology.Set
	// Off: nobody is placed.
	PlacementOff bool
}

// Subject is who asks: a container of a pod, or any of them.
type Subject struct {
	Intent *intent.Pod
	// Requested is what the runtime was asked for, PodRequested the same of its pod;
	// nil where that is not told.
	Requested, PodRequested *lifecycle.Resources
	// Given is what the kubelet says that its static managers gave it.
	KubeletGrant lifecycle.StaticGrant
	// Devices are those that containers have that own the same CPUs.
	Devices []lifecycle.DeviceGrant
	// Owned are the CPUs its pod owns.
	Owned topology.Set
	// New: where it sits was not decided before. RunsOn is where it runs if another agent
	// decided that and left no record of it; empty for others.
	New    bool
	RunsOn topology.Set
	// Memory is what it may use that is to be near, where it is bound to NUMA nodes.
	Memory Memory
	// PoolNode is the NUMA node whose pool it sits in, PodPoolNode that of the others of its
	// pod; Only are the nodes that may be chosen, none for all.
	PoolNode, PodPoolNode lifecycle.Opt[int]
	Only                  []int
}

// Payment says what pays for CPUs that a policy chooses.
type Payment int

// The payments.
const (
	Nothing   Payment = iota // none are chosen
	Resources                // what the pod asks for, or the container where the pod tells nothing
	WholeCPUs                // a container's request of whole CPUs, equal to its limit
)

// Terms are on what terms a container comes to own CPUs.
type Terms struct {
	// Chooses: the policy chooses CPUs and memory nodes for containers.
	Chooses bool
	Pays    Payment
	Key     string // what asks for CPUs of its own
	// Lent and Alone are what a grant says (Grant).
	Lent, ExclusiveNodes bool
	// NearDevices: devices count in the choice.
	NearDevices bool
	// Elsewhere is why no CPUs are granted here: another program decides. It is nil
	// where the agent has it.
	DecidedElsewhere error
	// Given is what the component that decides gave the container.
	External ExternalGrant
}

// Given are the CPUs another program gave a container alone.
type ExternalGrant struct {
	CPUs topology.Set
	// Away are more of them, which are offline.
	Offline topology.Set
	Why     string
	// Mems are the memory nodes it was bound to.
	Mems []int
	// Problems are what does not fit together in what was told.
	Problems []lifecycle.Problem
}

// ByKubelet is what grants and seats say of CPUs that the kubelet gave.
const ByKubelet = "the kubelet's static CPU manager"

// Want is how many CPUs an owner is to have.
type CPURequest struct {
	N int
	// Have are those it owns and can use: more are chosen beside them, or the best
	// part of them. Held are these and those it owns and cannot use now.
	Have, Held topology.Set
	// Passed are CPUs of its pod that a new owner takes over before all others.
	TakenOver topology.Set
	// Loose: any of them will do.
	AnyCPUs bool
	// Memory is what a new owner may use.
	Memory Memory
}

// Memory is an amount of memory, and what there is.
type Memory struct {
	Bytes uint64 // 0 where there is no limit
	// Left is how many bytes are left of each NUMA node, in the order of the machine; nil
	// where that is not known.
	Left []uint64
}

// Assignment says which CPUs a container gets, or which pool, and why.
type Assignment struct {
	CPUs     topology.Set
	Group    CPUGroup
	PoolNode lifecycle.Opt[int]
	// From is the key and Why the clause that led to it.
	From, Why string
	Problems  []lifecycle.Problem
}

// sharesOfCPU is what the kubelet makes of a request of one CPU.
const sharesOfCPU = 1024

// Pinned returns the CPUs that the kubelet's static CPU manager gave a container alone,
// by what the runtime was asked for. Nothing there says so in words: in a Guaranteed
// pod, a request of whole CPUs and a cpuset of just as many are the mark (Kubernetes
// 1.36, cm/cpumanager/policy_static.go, guaranteedCPUs). All others are given the cpuset
// of what is left, or none.
func Pinned(m *topology.Machine, in *intent.Pod, requested *lifecycle.Resources) topology.Set {
	if in.QoS != intent.Guaranteed || requested.CPU.CPUs == "" || in.CPUs.IsSet() {
		return topology.Set{}
	}
	// CPUs that went offline are its own nevertheless.
	if requested.CPU.Shares.V != uint64(m.PlacesOf(requested.CPU.CPUs).Len())*sharesOfCPU {
		return topology.Set{}
	}
	return m.OnlineOf(requested.CPU.CPUs)
}

// ShareByClass puts a container into the pool of its class. It follows Koordinator's
// order of cases for pods without assigned CPUs (plugin CPUSetAllocator, v1.7), with the
// differences hook.CPUSet states.
func ShareByClass(v View, s Subject) (a Assignment) {
	in, pools := s.Intent, v.Pools
	class, key := in.Class.V, in.Class.Key
	sit := func(seat CPUGroup, from, why string) { a.Group, a.From, a.Why = seat, from, why }
	shared, reclaimed, named := CPUGroup{Pool: Shared}, CPUGroup{Pool: Reclaimed}, v.Layout.Sized() && in.Pool.IsSet()
	a.PoolNode = s.PoolNode
	switch {
	case v.PlacementOff:
	case class == intent.Shared && s.PoolNode.Set:
		w := Which{Name: in.Pool.V, Bound: true, Node: s.PoolNode.V, ExclusiveNode: in.NUMA.V.ExcludeOthers}
		sit(CPUGroup{Pool: Shared, Which: w}, in.NUMA.Key, "the shared pool of the NUMA node it is bound to")
	case class == intent.Shared && len(SharedNodes(v, in)) > 1:
		w := BoundTo(in.Pool.V, SharedNodes(v, in))
		sit(CPUGroup{Pool: Shared, Which: w}, in.NUMA.Key, "the shared pool of the NUMA nodes the scheduler chose")
		a.Problems = unknownNodes(v.Machine, in)
	case class == intent.Reclaimed && s.PoolNode.Set:
		node, _ := v.Machine.Node(s.PoolNode.V)
		sit(CPUGroup{Pool: Reclaimed, Near: node.CPUs}, in.NUMA.Key, "the reclaimed pool, on the NUMA node it is bound to")
	case class == intent.Reclaimed && in.NUMA.IsSet() && len(in.Nodes.V) > 1 && v.Layout.Sized():
		sit(reclaimed, in.NUMA.Key, "the reclaimed pool, on the NUMA nodes the scheduler chose")
		a.near(v.Machine, in)
	case in.Nodes.IsSet() && class != intent.Reclaimed:
		sit(shared, in.Nodes.Key, "the shared pool of the NUMA nodes the scheduler chose")
		a.near(v.Machine, in)
	case in.Nodes.IsSet() && pools.ReclaimedByNUMA:
		sit(reclaimed, in.Nodes.Key, "the reclaimed pool of the NUMA nodes the scheduler chose")
		a.near(v.Machine, in)
	case class == intent.Shared && named:
		sit(CPUGroup{Pool: Shared, Which: Which{Name: in.Pool.V}}, in.Pool.Key, "the shared pool it names")
	case class == intent.System && named && (in.Pool.V != ReservedPool || !pools.Reserved.Empty()):
		sit(CPUGroup{Pool: System, Which: Which{Name: in.Pool.V}}, in.Pool.Key, "the pools whose names start as it says")
	case class == intent.System && !pools.System.Empty():
		sit(CPUGroup{Pool: System}, key, "the system pool")
	case class == intent.Reclaimed:
		sit(reclaimed, key, "the reclaimed pool")
	case class == intent.Shared:
		sit(shared, key, "the shared pool")
	case class == intent.Dedicated:
		sit(shared, key, "the shared pool, for want of assigned CPUs")
	case pools.UnlabelledShared && in.QoS != intent.BestEffort:
		sit(shared, "hooks.cpuset.unlabelled", "the shared pool, where pods without a class go")
	default:
		a.Why = "kept clear of CPUs others own"
	}
	return a
}

// SharedNodes are the NUMA nodes, by id, that a pod of class shared is bound to together: those
// that a scheduler chose where these are several. None where it is bound to one, or to none.
func SharedNodes(v View, in *intent.Pod) (ids []int) {
	if in.Class.V != intent.Shared || !in.NUMA.IsSet() || in.NUMA.V.ExcludeOthers || len(in.NUMA.V.IDs) > 0 || !v.Layout.Sized() {
		return nil
	}
	for _, id := range in.Nodes.V {
		if n, ok := v.Machine.Node(id); ok && !n.CPUs.Empty() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) < 2 {
		return nil
	}
	return ids
}

// near narrows a pool to the NUMA nodes a scheduler chose.
func (a *Assignment) near(m *topology.Machine, in *intent.Pod) {
	for _, id := range in.Nodes.V {
		if n, ok := m.Node(id); ok {
			a.Group.Near = a.Group.Near.Union(n.CPUs)
		}
	}
	a.Problems = append(a.Problems, unknownNodes(m, in)...)
}

// unknownNodes reports NUMA nodes that a scheduler chose and that the machine does not have.
func unknownNodes(m *topology.Machine, in *intent.Pod) []lifecycle.Problem {
	var unknown []int
	for _, id := range in.Nodes.V {
		if n, ok := m.Node(id); !ok || n.CPUs.Empty() {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return []lifecycle.Problem{{
		Key: in.Nodes.Key, Value: intent.Printable(topology.FormatList(unknown)),
		Reason: "this node has no such NUMA node with CPUs", Refused: true,
	}}
}
