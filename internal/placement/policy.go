package placement

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy decides which containers own CPUs that no scheduler assigned, and which CPUs all other
// containers share. It answers from its arguments and keeps no state. The engine handles
// recovery, resizes, init containers, offline CPUs and authorization.
type Policy interface {
	// Terms returns the conditions under which a container owns CPUs.
	Terms(m *topology.Machine, s Subject) Terms
	// Choose chooses the CPUs of an owner: all CPUs of a new owner, or the CPUs that an existing
	// owner adds or keeps. The error is a sentence for users.
	Choose(v View, s Subject, w CPURequest) (Assignment, error)
	// Share returns the pool of a container that owns no CPUs.
	Share(v View, s Subject) Assignment
	// Layout returns the CPUs of the pools.
	Layout(p *Pools, d Demand) *Layout
}

// View is the node as a policy sees it.
type View struct {
	Machine *topology.Machine
	Pools   *Pools
	// Layout has the current CPUs of the pools, and the demand for which they were computed.
	Layout *Layout
	// Free are the CPUs that the subject's pod could own.
	Free topology.Set
	// PlacementOff reports that placement is off, so no container owns CPUs.
	PlacementOff bool
	// InBalloon returns how many containers of a balloon belong to a namespace, or to a group of
	// its type.
	InBalloon func(Mark) int
}

// Mark identifies the containers of a balloon that belong to one namespace, or to one group.
type Mark struct {
	Balloon   string
	Namespace string // "" for a group
	Group     string // "" for a namespace
}

// Subject is the container that a question is about, or a whole pod.
type Subject struct {
	Intent *intent.Pod
	// Requested are the resources of the runtime's request, and PodRequested those of its pod;
	// nil if unknown.
	Requested, PodRequested *lifecycle.Resources
	// KubeletGrant is what the kubelet's static managers gave it.
	KubeletGrant lifecycle.StaticGrant
	// Devices are the devices of the containers that own the same CPUs.
	Devices []lifecycle.DeviceGrant
	// Owned are the CPUs that its pod owns.
	Owned topology.Set
	// New reports that its pool was not decided before. RunsOn are the CPUs that it runs on, if
	// an earlier agent chose them and left no record; otherwise empty.
	New    bool
	RunsOn topology.Set
	// Memory is the memory that should be near, if it is bound to NUMA nodes.
	Memory Memory
	// PoolNode is the NUMA node of its pool, and PodPoolNode that of the other containers of its
	// pod. Only are the NUMA nodes that may be chosen; empty allows all.
	PoolNode, PodPoolNode lifecycle.Opt[int]
	Only                  []int
	// Pod is its pod, and Name its name. Balloon is the balloon that it is in; "" for none.
	// Neighbours are the other live containers of its pod.
	Pod        *lifecycle.Pod
	Name       string
	Balloon    string
	Neighbours []Neighbour
}

// Neighbour is another container of the pod: its name, and the pool that it is in or the CPUs
// that it owns.
type Neighbour struct {
	Name, Pool string
	Owned      topology.Set
}

// Payment says which request determines how many CPUs a policy chooses.
type Payment int

// The payments.
const (
	Nothing   Payment = iota // the policy chooses none
	Resources                // the pod's resources, or the container's if the pod's are unknown
	WholeCPUs                // a container's request for whole CPUs, equal to its limit
)

// Terms are the conditions under which a container owns CPUs.
type Terms struct {
	// Chooses reports that the policy chooses CPUs and memory nodes for containers.
	Chooses bool
	// KeepsMemory: it leaves the memory nodes as the runtime requests them. Otherwise Memory says
	// which an owner gets.
	KeepsMemory bool
	Memory      MemoryChoice
	// Threads are those of its CPUs that an owner runs on.
	Threads Threads
	Pays    Payment
	Key     string // the key that asks for owned CPUs
	// Lent and ExclusiveNodes become those of the grant.
	Lent, ExclusiveNodes bool
	// NearDevices reports that the place of devices affects the choice.
	NearDevices bool
	// DecidedElsewhere is the reason why the agent grants no CPUs: another program decides. It
	// is nil if the agent decides.
	DecidedElsewhere error
	// External is what that program gave the container.
	External ExternalGrant
}

// ExternalGrant are the CPUs that another program gave to a container exclusively.
type ExternalGrant struct {
	CPUs topology.Set
	// Offline are more of them, which are offline.
	Offline topology.Set
	Why     string
	// Mems are the memory nodes that it was bound to.
	Mems []int
	// Problems describe contradictions in the sources.
	Problems []lifecycle.Problem
}

// ByKubelet is the key of grants and groups for CPUs that the kubelet gave.
const ByKubelet = "the kubelet's static CPU manager"

// CPURequest is how many CPUs an owner should have.
type CPURequest struct {
	N int
	// Have are the CPUs that the owner has and can use. The policy adds CPUs to them, or chooses
	// the best part of them. Held are Have and the CPUs that the owner has but cannot use now.
	Have, Held topology.Set
	// TakenOver are CPUs of its pod that a new owner should get before all others.
	TakenOver topology.Set
	// AnyCPUs reports that the owner has no preference among CPUs.
	AnyCPUs bool
	// Memory is the memory that a new owner may use.
	Memory Memory
}

// Memory is an amount of memory, and the free memory of the nodes.
type Memory struct {
	Bytes uint64 // 0 for no limit
	// Left is the free memory of each NUMA node in bytes, in the order of the machine; nil if
	// unknown.
	Left []uint64
}

// Assignment is the CPUs or the pool of a container, and why.
type Assignment struct {
	CPUs     topology.Set
	Group    CPUGroup
	PoolNode lifecycle.Opt[int]
	// Marks are the namespace and group of the container, if its balloon's type distinguishes
	// containers by these.
	Marks []Mark
	// Memory says which memory nodes it is bound to, if the policy chooses these.
	Memory MemoryChoice
	// Scheduling is how its processes are scheduled, if the policy says so.
	Scheduling lifecycle.SchedulingClass
	// From is the key, and Why the clause that explains it.
	From, Why string
	Problems  []lifecycle.Problem
}

// MemoryChoice says which memory nodes a container is bound to. The zero value binds it to DRAM
// near its CPUs, and to other kinds if there is too little.
type MemoryChoice struct {
	// Keep: it is bound to none, beside those of the runtime's request.
	Keep bool
	// Kinds are the kinds of memory that it gets a node of each, near its CPUs; From is the key
	// that says so.
	Kinds []topology.MemoryKind
	From  string
}

// sharesOfCPU are the shares that the kubelet sets for one CPU.
const sharesOfCPU = 1024

// Pinned returns the CPUs that the kubelet's static CPU manager gave to a container
// exclusively, as the runtime's request shows them. No field says so explicitly. In a
// Guaranteed pod, a request for whole CPUs together with a cpuset of as many CPUs is the sign
// (Kubernetes 1.36, cm/cpumanager/policy_static.go, guaranteedCPUs). Other containers get the
// cpuset of the remaining CPUs, or none.
func Pinned(m *topology.Machine, in *intent.Pod, requested *lifecycle.Resources) topology.Set {
	if in.QoS != intent.Guaranteed || requested.CPU.CPUs == "" || in.CPUs.IsSet() {
		return topology.Set{}
	}
	// It owns CPUs that went offline as well.
	if requested.CPU.Shares.V != uint64(m.PlacesOf(requested.CPU.CPUs).Len())*sharesOfCPU {
		return topology.Set{}
	}
	return m.OnlineOf(requested.CPU.CPUs)
}

// ShareByClass assigns a container to the pool of its class. It follows the order of cases of
// Koordinator for pods without assigned CPUs (plugin CPUSetAllocator, v1.7), with the
// differences that hook.CPUSet states.
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
	case class == intent.Dedicated && v.Layout.Sized(): // the agent chooses CPUs; a problem says why it could not
		sit(shared, key, "the shared pool: it got no CPUs of its own")
	case class == intent.Dedicated:
		sit(shared, key, "the shared pool: the scheduler assigned no CPUs")
	case pools.UnlabelledShared && in.QoS != intent.BestEffort:
		sit(shared, "hooks.cpuset.unlabelled", "the shared pool, which pods without a class use")
	default:
		a.Why = "without the CPUs that others own"
	}
	return a
}

// SharedNodes returns the NUMA nodes, by id, to which a pod of class shared is bound together:
// those that a scheduler chose, if there are several. It is empty if the pod is bound to one
// node, or to none.
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

// near narrows a pool to the CPUs of the NUMA nodes that a scheduler chose.
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
