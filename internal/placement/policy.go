package placement

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy decides which containers own CPUs that no scheduler assigned, and which CPUs all other containers share. A
// policy keeps no state, so each result depends only on the arguments and the configuration. The engine handles
// recovery, resizes, init containers, offline CPUs and authorization.
type Policy interface {
	// Terms returns whether and on which conditions a container owns CPUs.
	Terms(m *topology.Machine, s Subject) Terms
	// Choose returns all CPUs that the subject s (a container or a pod) should own. The parameter w says how many CPUs
	// these are, and which of them the subject owns already. The error is a sentence for users.
	Choose(v View, s Subject, w CPURequest) (Assignment, error)
	// Share returns the pool of a container that owns no CPUs. For a container with owned CPUs, Share returns the pool
	// whose CPUs it uses in addition. This happens only if Terms.SharesFraction is set.
	Share(v View, s Subject) Assignment
	// Layout computes the CPUs of the pools.
	Layout(p *Pools, d Demand) *Layout
}

// Partitioner is a policy that places containers in parts of the node, such as NUMA nodes.
type Partitioner interface {
	// PartOf returns the name of the part of the node in which the policy placed a container, or "" if it placed the
	// container in no part. The parameter g is the CPU group of the container.
	PartOf(g CPUGroup) string
}

// PartOf returns the name of the part of the node in which a policy placed a container, or "" if it placed the
// container in no part. The parameter g is the CPU group of the container.
func PartOf(p Policy, g CPUGroup) string {
	if parted, is := p.(Partitioner); is {
		return parted.PartOf(g)
	}
	return ""
}

// SchedulingChooser is a policy that chooses scheduling classes for all containers, including those that own CPUs.
type SchedulingChooser interface {
	// SchedulingOf returns the scheduling class of a container. The class has no name if the container gets no
	// scheduling class.
	SchedulingOf(s Subject) (lifecycle.SchedulingClass, []lifecycle.Problem)
}

// SchedulingOf returns the scheduling class that a policy chooses for a container. The class has no name if the policy
// is no SchedulingChooser, or chooses no class. Some other policies choose a scheduling class in Policy.Share, for
// containers in pools.
func SchedulingOf(p Policy, s Subject) (c lifecycle.SchedulingClass, problems []lifecycle.Problem) {
	if schedules, is := p.(SchedulingChooser); is {
		return schedules.SchedulingOf(s)
	}
	return c, nil
}

// BalloonNamer is a policy that chooses a balloon type for containers, and names the balloons of each type.
type BalloonNamer interface {
	// BalloonOf returns the name of the balloon with the index nth, from 0, of a container's balloon type. It returns
	// "" if the container is in no balloon, or if the type may not have so many balloons.
	BalloonOf(s Subject, nth int) string
}

// BalloonOf returns the name of the balloon with the index nth, from 0, of a container's balloon type. It returns "" if
// there is no such balloon, or if the policy is no BalloonNamer.
func BalloonOf(p Policy, s Subject, nth int) string {
	if names, is := p.(BalloonNamer); is {
		return names.BalloonOf(s, nth)
	}
	return ""
}

// View is the state of the node that a policy may use.
type View struct {
	Machine *topology.Machine
	Pools   *Pools
	// Layout has the current CPUs of the pools, and the demand for which they were computed.
	Layout *Layout
	// FreeCPUs are the CPUs that the subject's pod does not own yet, but could own.
	FreeCPUs topology.Set
	// PlacementOff reports that the agent does not place containers on CPUs (hooks.cpuset is disabled), so no container
	// owns CPUs.
	PlacementOff bool
	// CountMembers returns the number of live containers that have the membership m: they are in the balloon or part of
	// the node m.Balloon, and belong to the namespace or group in m.
	CountMembers func(m Membership) int
}

// Membership identifies containers that are in the same balloon or part of the node, and belong to the same namespace,
// or to the same group (groupBy of a balloon type).
type Membership struct {
	Balloon   string
	Namespace string // "" if Group is set
	Group     string // "" if Namespace is set
}

// Subject is the container, or the whole pod, that a policy decides about.
type Subject struct {
	Intent *intent.Pod // what the pod requests in its labels, annotations and resource claims
	// Requested are the container's resources in the runtime's request. PodRequested are the resources of the
	// container's pod. Both are nil if unknown.
	Requested, PodRequested *lifecycle.Resources
	// KubeletGrant has the CPUs and memory nodes that the kubelet's static managers gave the container. Claims has the
	// CPUs that resource claims give the container; nil for none.
	KubeletGrant lifecycle.StaticGrant
	Claims       *lifecycle.ClaimGrant
	// Devices are the devices of all containers that own, or will own, the same CPUs as the subject.
	Devices []lifecycle.DeviceGrant
	// OwnedByPod are the CPUs that the containers of the subject's pod own.
	OwnedByPod topology.Set
	// OwnedByContainer is set only for calls of Policy.Share. It has the CPUs that the container owns, to which Share
	// adds a pool; empty if the container owns no CPUs.
	OwnedByContainer topology.Set
	// FirstPoolChoice reports that no policy has chosen a pool for the container before. Sometimes the container
	// nevertheless runs already, because an earlier agent started it and left no record. CurrentCPUs are then the CPUs
	// on which the container runs; otherwise CurrentCPUs is empty.
	FirstPoolChoice bool
	CurrentCPUs     topology.Set
	// Memory is the memory that should be near the subject's CPUs. It matters only if the container is to be bound to
	// NUMA nodes.
	Memory Memory
	// PoolNode is the NUMA node to which the container's pool is bound. PodPoolNode is the NUMA node to which the pools
	// of the other containers of the pod are bound. AllowedNodes are the ids of the NUMA nodes that the policy may
	// choose; empty means all.
	PoolNode, PodPoolNode lifecycle.Opt[int]
	AllowedNodes          []int
	// Pod is the container's pod, and Name the container's name. PoolName is the name of the container's balloon, or of
	// its part of the node; "" for none. Neighbours are the other live containers of the pod.
	Pod        *lifecycle.Pod
	Name       string
	PoolName   string
	Neighbours []Neighbour
	// AffinityWeights returns how much each part of the node attracts the container, by the name of the part. It is the
	// sum of the weights of the container's affinities over the other containers in the part that the affinities match.
	// If the sum is negative, the container should not be in the part.
	AffinityWeights func() map[string]int
}

// Neighbour is another container of the same pod. It has either the name of its pool or the CPUs that it
// owns.
type Neighbour struct {
	Name, Pool string
	Owned      topology.Set
}

// CountBasis says which request determines how many CPUs a policy chooses for an owner.
type CountBasis int

// The values of CountBasis.
const (
	CountNone         CountBasis = iota // the policy chooses no CPUs
	CountByResources                    // the resources of the pod, or the resources of the container if the pod's resources are unknown
	CountWholeRequest                   // the container's request, if the request is a whole number of CPUs and equal to the limit
	CountWholePart                      // the container's request rounded down to whole CPUs, if the request is equal to the limit
)

// Terms are the conditions under which a container owns CPUs.
type Terms struct {
	// ChoosesCPUsOrMemory reports that the policy chooses CPUs or memory nodes for containers.
	ChoosesCPUsOrMemory bool
	// KeepsRequestedMemory means that the policy leaves the memory nodes as the runtime requests them.
	// Otherwise Memory says which memory nodes an owner gets.
	KeepsRequestedMemory bool
	Memory               MemoryChoice
	// Threads says on which threads of its CPUs an owner runs.
	Threads    Threads
	CountBasis CountBasis
	Key        string // the annotation or configuration key that requests owned CPUs
	// Lent means that containers of class reclaimed may also use the owner's CPUs. ExclusiveNodes means that no other
	// pod may get memory of the NUMA nodes of the owner's CPUs.
	Lent, ExclusiveNodes bool
	// SharesFraction means that an owner also shares CPUs of a pool, if its request has a fraction of a CPU. The method
	// Policy.Share returns the pool.
	SharesFraction bool
	// NearDevices reports that the policy chooses CPUs near the devices of an owner.
	NearDevices bool
	// PoolsNearDevices reports that pools also get CPUs near the devices of their containers.
	PoolsNearDevices bool
	// NoGrantReason is the reason why the agent grants no CPUs: another program decides which containers own CPUs. It
	// is nil if the agent decides.
	NoGrantReason error
	// ByClaims means that resource claims decide who owns CPUs. A cpuset in the runtime's request then comes
	// from the DRA driver, and does not limit pools.
	ByClaims bool
	// External has the CPUs that another program, such as the kubelet's CPU manager, gave the container.
	External ExternalGrant
}

// WithoutGrants returns the terms for a node where another program decides who owns CPUs. The agent grants no
// CPUs there, for the given reason. Containers own only CPUs that the other program gives them.
func (t Terms) WithoutGrants(reason error) Terms {
	t.SharesFraction = false
	if t.NoGrantReason = reason; t.CountBasis == CountWholeRequest || t.CountBasis == CountWholePart {
		t.CountBasis, t.Key = CountNone, ""
	}
	return t
}

// ExternalGrant are the CPUs that another program gave to a container exclusively.
type ExternalGrant struct {
	CPUs topology.Set
	// From names the program: ByKubelet or ByClaims. It becomes Grant.From. SentenceStart is the beginning of an error
	// message, such as "the kubelet gave it". The message says that another container owns the given CPUs already.
	From, SentenceStart string
	// Claims has the CPUs by UID of the claim. Containers with the same claim share the CPUs of the claim.
	Claims map[string]topology.Set
	// Offline are further CPUs that the program gave the container and that are offline.
	Offline topology.Set
	Why     string // a clause for users that explains why the container owns the CPUs
	// Mems are the ids of the memory nodes to which the program bound the container.
	Mems []int
	// Problems describe contradictions in what the program reports.
	Problems []lifecycle.Problem
}

// ByKubelet is the value of the field From in grants and assignments whose CPUs the kubelet gave.
const ByKubelet = "the kubelet's static CPU manager"

// ByClaims is the value of the field From in grants and assignments whose CPUs resource claims gave.
const ByClaims = "resource claims"

// IsExternal reports whether another program gave the CPUs of a grant. The parameter from is the field From of the
// grant. After a restart of the agent, the other program reports such a grant again.
func IsExternal(from string) bool { return from == ByKubelet || from == ByClaims }

// CPURequest says how many CPUs an owner should have, and which CPUs it has.
type CPURequest struct {
	N int // the number of CPUs that the owner should have
	// UsableCPUs are the CPUs that the owner has already and can use. If N is larger, the policy adds CPUs to them. If
	// N is smaller, the policy chooses which of them the owner keeps. OwnedCPUs are all CPUs that the owner has
	// already, including CPUs that it cannot use now.
	UsableCPUs, OwnedCPUs topology.Set
	// TakenOverCPUs are CPUs of the pod that no other container of the pod needs any more, such as CPUs of init
	// containers. A new owner should get these CPUs before any other CPUs.
	TakenOverCPUs topology.Set
	// AnyCPUs means that the policy may choose any CPUs, because the owner has no preference.
	AnyCPUs bool
	// Memory is the memory that a new owner may use.
	Memory Memory
}

// Memory is an amount of memory, and the free memory of the NUMA nodes.
type Memory struct {
	Bytes uint64 // the amount; 0 means that the amount is not limited
	// FreeByNode is the free memory of each NUMA node in bytes, in the order of topology.Machine.Nodes; nil if unknown.
	FreeByNode []uint64
}

// RequirementError is the error for CPUs that a pod requires and cannot get. The agent must not let the runtime create
// the pod's container without these CPUs.
type RequirementError struct{ Key, Reason string }

// Error returns a text with the key that requires the CPUs, and the reason why the pod cannot get the CPUs.
func (u *RequirementError) Error() string { return u.Key + ": " + u.Reason }

// Assignment is what a policy chose for a container: CPUs of its own or a pool, and the reason.
type Assignment struct {
	CPUs     topology.Set       // the CPUs that the container owns; empty if it owns none
	Group    CPUGroup           // the pool, and the limits in the pool; for a container that shares CPUs
	PoolNode lifecycle.Opt[int] // the NUMA node to which the pool is bound
	// Memberships say in which balloon or part of the node the container is, and to which namespace or group it
	// belongs. They are set only if the policy counts such containers (View.CountMembers).
	Memberships []Membership
	// Devices are the devices of the container near which the container's pool should have CPUs.
	Devices []DeviceCPUs
	// Memory says to which memory nodes the container is bound, if the policy chooses them.
	Memory MemoryChoice
	// Scheduling is the scheduling class of the container's processes. It has no name if the policy chooses no class.
	Scheduling lifecycle.SchedulingClass
	// From is the annotation or configuration key that requested the choice. Why is a clause for users that explains
	// the choice.
	From, Why string
	Problems  []lifecycle.Problem
}

// MemoryChoice says to which memory nodes a container is bound. The zero value binds the container to DRAM near its
// CPUs. If there is too little DRAM, it also binds the container to other kinds of memory.
type MemoryChoice struct {
	// KeepRequested means that the agent binds the container to no memory nodes. The nodes of the runtime's
	// request stay.
	KeepRequested bool `json:"Keep"`
	// Kinds are kinds of memory: the container gets the nearest node of each kind, and further nodes of these kinds if
	// the container's memory does not fit. From is the annotation or configuration key that requested the kinds.
	Kinds []topology.MemoryKind
	From  string
	// ColdStartSeconds is the duration of the cold start. During this time a started container has only PMEM.
	// ColdStartKey is the annotation or configuration key that requested the cold start.
	ColdStartSeconds int    `json:"Cold"`
	ColdStartKey     string `json:"ColdFrom"`
}

// sharesOfCPU is the value of cpu.shares that the kubelet sets for a request of one CPU.
const sharesOfCPU = 1024

// KubeletCPUsByRequest returns the CPUs that the kubelet's static CPU manager gave to a container exclusively. NRI and
// the CRI have no field that says this. So KubeletCPUsByRequest compares the cpuset and the cpu.shares in the runtime's
// request. The kubelet gave CPUs exclusively if the pod is Guaranteed, and the cpu.shares are 1024 for each CPU of the
// cpuset (Kubernetes 1.36, cm/cpumanager/policy_static.go, guaranteedCPUs). To other containers the kubelet gives the
// cpuset of the remaining CPUs, or no cpuset. The result is empty if an annotation of the pod requests certain CPUs.
func KubeletCPUsByRequest(m *topology.Machine, in *intent.Pod, requested *lifecycle.Resources) topology.Set {
	if in.QoS != intent.Guaranteed || requested.CPU.CPUs == "" || in.CPUs.IsSet() {
		return topology.Set{}
	}
	// The cpuset may have offline CPUs. They count, because the container owns them, too.
	if requested.CPU.Shares.V != uint64(m.KnownCPUsOf(requested.CPU.CPUs).Len())*sharesOfCPU {
		return topology.Set{}
	}
	return m.OnlineOf(requested.CPU.CPUs)
}

// ShareByClass assigns a container to the pool of the container's class. The order of the cases is Koordinator's order
// for pods without assigned CPUs (plugin CPUSetAllocator, v1.7). Two configuration keys of hooks.cpuset can change the
// pool: unlabelled for pods without a class, and reclaimedByNUMA for pods of class reclaimed.
func ShareByClass(v View, s Subject) (a Assignment) {
	in, pools := s.Intent, v.Pools
	class, key := in.Class.V, in.Class.Key
	assign := func(g CPUGroup, from, why string) { a.Group, a.From, a.Why = g, from, why }
	shared, reclaimed, named := CPUGroup{Pool: Shared}, CPUGroup{Pool: Reclaimed}, v.Layout.SizesSharedPools() && in.Pool.IsSet()
	a.PoolNode = s.PoolNode
	switch {
	case v.PlacementOff:
	case class == intent.Shared && s.PoolNode.Set:
		w := PoolID{Name: in.Pool.V, BoundToNodes: true, Node: s.PoolNode.V, ExclusiveNode: in.NUMA.V.ExcludeOthers}
		assign(CPUGroup{Pool: Shared, PoolID: w}, in.NUMA.Key, "the shared pool of the NUMA node to which the container is bound")
	case class == intent.Shared && len(SharedNodes(v, in)) > 1:
		w := BoundPool(in.Pool.V, SharedNodes(v, in))
		assign(CPUGroup{Pool: Shared, PoolID: w}, in.NUMA.Key, "the shared pool of the NUMA nodes that the scheduler chose")
		a.Problems = unknownNodes(v.Machine, in)
	case class == intent.Reclaimed && s.PoolNode.Set:
		node, _ := v.Machine.Node(s.PoolNode.V)
		assign(CPUGroup{Pool: Reclaimed, Near: node.CPUs}, in.NUMA.Key, "the reclaimed pool, on the NUMA node to which the container is bound")
	case class == intent.Reclaimed && in.NUMA.IsSet() && len(in.Nodes.V) > 1 && v.Layout.SizesSharedPools():
		assign(reclaimed, in.NUMA.Key, "the reclaimed pool, on the NUMA nodes that the scheduler chose")
		a.narrowToNodes(v.Machine, in)
	case in.Nodes.IsSet() && class != intent.Reclaimed:
		assign(shared, in.Nodes.Key, "the shared pool of the NUMA nodes that the scheduler chose")
		a.narrowToNodes(v.Machine, in)
	case in.Nodes.IsSet() && pools.ReclaimedByNUMA:
		assign(reclaimed, in.Nodes.Key, "the reclaimed pool of the NUMA nodes that the scheduler chose")
		a.narrowToNodes(v.Machine, in)
	case class == intent.Shared && named:
		assign(CPUGroup{Pool: Shared, PoolID: PoolID{Name: in.Pool.V}}, in.Pool.Key, "the shared pool that the pod names")
	case class == intent.System && named && (in.Pool.V != ReservedPool || !pools.Reserved.Empty()):
		assign(CPUGroup{Pool: System, PoolID: PoolID{Name: in.Pool.V}}, in.Pool.Key, "the shared pools whose names begin with the name that the pod gives")
	case class == intent.System && !pools.System.Empty():
		assign(CPUGroup{Pool: System}, key, "the system pool")
	case class == intent.Reclaimed:
		assign(reclaimed, key, "the reclaimed pool")
	case class == intent.Shared:
		assign(shared, key, "the shared pool")
	case class == intent.Dedicated && v.Layout.SizesSharedPools(): // the agent could choose no CPUs for the container, and a problem says why
		assign(shared, key, "the shared pool: the container got no CPUs of its own")
	case class == intent.Dedicated:
		assign(shared, key, "the shared pool: the scheduler assigned no CPUs")
	case pools.UnlabelledShared && in.QoS != intent.BestEffort:
		assign(shared, "hooks.cpuset.unlabelled", "the shared pool, which pods without a class use")
	default:
		a.Why = "the CPUs that no container owns"
	}
	return a
}

// SharedNodes returns the ids of the NUMA nodes that a scheduler chose for a pod of class shared, if the scheduler
// chose several. The result is empty if the pod is bound to one NUMA node or to no NUMA node.
func SharedNodes(v View, in *intent.Pod) (ids []int) {
	if in.Class.V != intent.Shared || !in.NUMA.IsSet() || in.NUMA.V.ExcludeOthers || len(in.NUMA.V.IDs) > 0 || !v.Layout.SizesSharedPools() {
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

// narrowToNodes limits the CPUs of the assigned pool to the NUMA nodes that a scheduler chose.
func (a *Assignment) narrowToNodes(m *topology.Machine, in *intent.Pod) {
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
		Reason: "the machine has no NUMA nodes with these ids, or they have no CPUs", Refused: true,
	}}
}
