package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/expression"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is the part of the configuration that the engine needs.
type Policy struct {
	// Strict means that the agent refuses containers of pods with malformed annotations.
	Strict bool
	// Dialects are the names of the systems whose annotations and labels the agent reads.
	Dialects []string
	Pools    placement.Pools
	// Placement decides which containers own CPUs that no scheduler assigned, and which CPUs the pools have.
	Placement placement.Policy
	// Topology says how strictly the CPUs that a container owns must be on the NUMA nodes of its memory and devices.
	Topology TopologyManager
	// PlacementOn means that placement is on. If it is off, no container owns CPUs.
	PlacementOn bool
	// FatalHooks has the names of the hooks that failurePolicy.hooks covers. If such a hook fails, the agent refuses
	// the container.
	FatalHooks map[string]bool
	// Rules are the authorization rules. Without rules the defaults apply.
	Rules intent.Rules
	// Serving says which requests of pods have an effect on this node; nil means all.
	Serving *intent.ServingSettings
	Hooks   []hook.Hook
}

// Pod is what the engine knows about a pod sandbox. Code never changes a Pod in the state, but replaces it by another.
type Pod struct {
	Pod    *lifecycle.Pod
	Intent *intent.Pod
	// Spec has the parts of the pod's spec that the runtime does not report; nil if no source
	// has them.
	Spec *lifecycle.PodSpec
	// Granted are the CPUs, memory nodes and devices that the kubelet granted to the pod's containers; nil if not
	// known.
	Granted *lifecycle.KubeletGrants
	// AllowedCPUs are the CPUs that the pod's cgroup allows; empty if it allows all.
	AllowedCPUs    topology.Set
	Values         []lifecycle.Value // for the pod's own cgroup
	ProblemSummary ProblemSummary
	Stopped        bool // the sandbox was stopped, and was not removed yet
	// requestFromSpec reports that the pod's resources come from its spec, because the runtime reported
	// none.
	requestFromSpec bool
	// burstSum is the sum of the bursts of the pod's live containers, in µs, when the pod's own values were decided.
	burstSum int64
	// exclusiveCPUs are the CPUs that the pod's cgroup could have exclusively when the pod's own values were decided.
	exclusiveCPUs topology.Set
	// assignedCPUs are the CPUs that a scheduler assigned to the pod and that could be granted when the pod's own
	// values were decided.
	assignedCPUs topology.Set
	// sumOutdated reports that the sum of the pod's resources comes from a Synchronize and is possibly older than a
	// resize. endedRequests has the requests of containers that had ended before the Synchronize, by container name.
	sumOutdated   bool
	endedRequests map[string]*lifecycle.Resources
	// specProblems are the problems of the pod's spec, and those of hooks that change the pod's intent.
	specProblems []lifecycle.Problem
}

// FullName returns namespace/name.
func (p *Pod) FullName() string { return p.Pod.Namespace + "/" + p.Pod.Name }

// Container is what the engine knows about a container. Code never changes a Container in the state, but replaces it by
// another.
type Container struct {
	ID          string
	Name        string
	Key         placement.Key   // the pod's UID and the container's name: they stay when the container is created again
	PodID       string          // the id of the pod's sandbox
	Life        lifecycle.State // such as created, running or stopped
	CgroupsPath string
	// RecordFields are the fields of the container's record, as the agent would write them now.
	lifecycle.RecordFields
	Assignment     Assignment
	Stamp          Stamp
	Undescribed    Undescribed
	ProblemSummary ProblemSummary
	// Properties has the labels, annotations and other properties that the runtime reported.
	Properties hook.ContainerProperties `json:"about"`
	// RequestedDevices are the devices in the runtime's request for the container.
	RequestedDevices lifecycle.DeviceGrant
	// Claims are the resource claims that give CPUs to the container; nil for none.
	Claims *lifecycle.ClaimGrant

	decision decision
}

// Assignment is the pool or the owned CPUs of a container.
type Assignment struct {
	placement.CPUGroup

	// From is the annotation or configuration key that requested the pool or the CPUs. Why is the reason for the
	// choice, for users.
	From, Why string
	// Memberships, Devices and Memory are copied from the placement.Assignment that the placement policy returned.
	Memberships []placement.Membership `json:"Marks"`
	Devices     []placement.DeviceCPUs
	Memory      placement.MemoryChoice
}

// Stamp is what the engine knows about the record that the runtime stores for a container, and whether that record is
// out of date.
type Stamp struct {
	// CPUs are the CPUs in the record: the CPUs that the container owns, including CPUs that it cannot use now.
	CPUs topology.Set
	// Stale reports that the record must be written again: the agent decides more values now, the container
	// owns other CPUs, or another container owns the CPUs in the record.
	Stale bool

	decidedBefore bool // the container was decided before, so its record possibly lacks fields that hooks decide only now
}

// Undescribed is about a container that the runtime lists but cannot describe: the runtime cannot report what was
// requested for the container. The zero value is for other containers.
type Undescribed struct {
	// Why is the runtime's error; "" if the runtime can describe the container. The container keeps its values until
	// the runtime can describe it.
	Why string
	// NoRequest means that no record has the container's request, or that the cgroup of its pod is not known. Then the
	// agent decides only the container's CPUs.
	NoRequest bool

	// kernelCPUs are the CPUs that the kernel gives to the container. If the container is in no other pool (pool
	// Unclassified), it stays on these CPUs.
	kernelCPUs topology.Set
}

// decision is the decision about a container, with inputs that are needed only while it is decided.
type decision struct {
	// proposed are the values of hooks. If the container is in a pool, its cpuset changes with the pool. So the cpuset
	// in proposed is not current, and State.value returns the pool's CPUs in its place.
	proposed []lifecycle.Value
	// creation has values that are known only while a container is created; nil if no hook needs them.
	creation *hook.Creation
	// cpusetLimited reports that the agent has limited the container's cpuset before. Then the agent must write
	// the cpuset even if the container may use all CPUs again.
	cpusetLimited bool
	// priorProblems are problems that were found before the decision, such as a record that is not trusted.
	priorProblems []lifecycle.Problem
	// hookRefusal is the reason why a hook refuses the container; "" if no hook does.
	hookRefusal string
	// missingRequirement is the reason why the container's creation is refused: the pod requires CPUs that it
	// cannot get; "" if there is none.
	missingRequirement string
	// unalignedReason is the reason why the topology manager refuses the container; "" if there is none.
	unalignedReason string
	// hints are the NUMA hints of resource plugins, while a new container is decided.
	hints []lifecycle.ResourceHints
	// affinity is the topology manager's choice of NUMA nodes for a new container; nil if there is no such choice.
	affinity *lifecycle.Affinity
	// refusals are the problems for those values of hook servers that the container does not get.
	refusals []lifecycle.Problem
}

// Alive reports whether the container has, or will have, a process.
func (c *Container) Alive() bool {
	return c.Life == lifecycle.StateCreated || c.Life == lifecycle.StateRunning || c.Life == lifecycle.StatePaused
}

// FullName returns namespace/name/container.
func (s *State) FullName(c *Container) string {
	if p := s.Pod(c.PodID); p != nil {
		return p.FullName() + "/" + c.Name
	}
	return c.Name
}

// Runs reports whether the runtime says that the container has a process.
func (c *Container) Runs() bool {
	return c.Life == lifecycle.StateRunning || c.Life == lifecycle.StatePaused
}

// groupMembers is a CPU group with its containers and its current CPUs.
type groupMembers struct {
	group   placement.CPUGroup
	members []string // container ids, sorted
	cpus    topology.Set
	cpuList string
	// hasAllCPUs means that containers own none of the CPUs that the group can use.
	hasAllCPUs bool
}

// State has all pods, containers and decisions about them. Only one goroutine at a time may use it.
type State struct {
	Machine *topology.Machine
	Policy  Policy
	// Generation is the number of committed plans.
	Generation uint64

	ledger *placement.Ledger
	// expectedContainers has the containers that no runtime has reported yet. Code replaces the map, and never changes
	// it.
	expectedContainers map[placement.Key]*expectedContainer
	// forgetCount counts how often all expected containers were removed; see ForgetCount.
	forgetCount       uint64
	pods              map[string]*Pod
	containers        map[string]*Container
	containerIDsByPod map[string][]string
	groups            map[placement.CPUGroup]*groupMembers
	// layoutGroups has the groups whose CPUs depend on the layout: all groups except those of containers that use only
	// CPUs that they own.
	layoutGroups map[*groupMembers]bool
	// poolGroups has the groups of each pool that has a name from the policy: a balloon, or a part of the node.
	// newGroups are the groups whose CPUs have not been computed yet.
	poolGroups map[placement.PoolID][]placement.CPUGroup
	newGroups  []*groupMembers
	// memoryUse is how much memory of each NUMA node the containers can use. hugePageUse has, by the name of the
	// resource, how many bytes of huge pages of each NUMA node the containers can use.
	memoryUse   nodeUse
	hugePageUse map[string]nodeUse
	// memberships has the number of live containers with each membership.
	memberships map[placement.Membership]int
	// affinityIndex is an index of the live containers in parts of the node, for affinities. It is nil in a Copy. A
	// Copy makes only few decisions, and each decision compares all containers instead.
	affinityIndex *expression.Index
	// containersWithCPUList is the number of containers whose request has a list of CPUs. Only the kubelet's
	// static CPU manager sends such lists.
	containersWithCPUList int
	layout                *placement.Layout // the present CPUs of pools and balloons
	// poolsResized means that the last plan changed the layout.
	poolsResized bool
	endedPods    endedPods
	// conditionMatches has the number of pods and containers that met the condition of a hook, by hook. Code replaces
	// the map, and never changes it.
	conditionMatches map[string]uint64
}

// NewState returns the state of a node on which nothing runs.
func NewState(m *topology.Machine, p Policy) *State {
	s := &State{Machine: m, Policy: p}
	s.reset()
	return s
}

// reset removes all pods, containers and grants.
func (s *State) reset() {
	s.ledger, s.expectedContainers = placement.NewLedger(), nil
	s.forgetCount++
	s.pods = map[string]*Pod{}
	s.containers = map[string]*Container{}
	s.containerIDsByPod = map[string][]string{}
	s.groups, s.layoutGroups = map[placement.CPUGroup]*groupMembers{}, map[*groupMembers]bool{}
	s.poolGroups, s.newGroups = map[placement.PoolID][]placement.CPUGroup{}, nil
	s.memberships, s.memoryUse, s.hugePageUse = map[placement.Membership]int{}, newNodeUse(), newHugePageUse(s.Machine)
	s.affinityIndex = expression.NewIndex()
	s.containersWithCPUList = 0
	s.layout = s.Policy.Placement.Layout(&s.Policy.Pools, placement.Demand{})
}

// Pod returns a pod by sandbox id, or nil.
func (s *State) Pod(id string) *Pod { return s.pods[id] }

// PodsOf returns the sandboxes of a pod by its UID, sorted by id.
func (s *State) PodsOf(uid string) []*Pod {
	return s.PodsWhere(func(p *Pod) bool { return p.Pod.UID == uid })
}

// PodsWhere returns the sandboxes that meet a condition, sorted by id.
func (s *State) PodsWhere(is func(*Pod) bool) []*Pod {
	var out []*Pod
	for _, p := range s.pods {
		if is(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *Pod) int { return cmp.Compare(a.Pod.ID, b.Pod.ID) })
	return out
}

// Container returns a container by id, or nil.
func (s *State) Container(id string) *Container { return s.containers[id] }

// IsLive reports whether id is the id of a known pod, or of a known container that has not ended. undecided reports
// whether the runtime cannot describe this pod or container yet, so that the engine decides few of its values.
func (s *State) IsLive(id string) (known, undecided bool) {
	if p := s.pods[id]; p != nil {
		return true, p.Pod.Undescribed != ""
	}
	c := s.containers[id]
	if known = c != nil && c.Alive(); known {
		undecided = c.Undescribed.Why != ""
	}
	return known, undecided
}

// Pods returns the ids of all pods, sorted.
func (s *State) Pods() []string { return sortedKeys(s.pods) }

// Containers returns the ids of all containers, sorted.
func (s *State) Containers() []string { return sortedKeys(s.containers) }

// ContainersOf returns the ids of a pod's containers, the oldest first.
func (s *State) ContainersOf(podID string) []string { return s.containerIDsByPod[podID] }

// Grants returns all grants of CPUs, sorted by key.
func (s *State) Grants() []placement.Grant { return s.ledger.Grants() }

// Owners returns the pods that own CPUs or CDI devices and have not been stopped.
func (s *State) Owners() []*Pod {
	held := s.CPUsByPod()
	for key := range s.ledger.Devices() {
		if _, owns := held[key.PodUID]; !owns {
			held[key.PodUID] = topology.Set{}
		}
	}
	if len(held) == 0 { // a fast path, because Owners is called whenever a container ends
		return nil
	}
	return s.PodsWhere(func(p *Pod) bool {
		_, owns := held[p.Pod.UID]
		return owns && !p.Stopped
	})
}

// CPUsByPod returns the CPUs of each pod that owns CPUs, by UID: the CPUs that its containers own,
// and offline CPUs that are reserved for them.
func (s *State) CPUsByPod() map[string]topology.Set {
	held := map[string]topology.Set{}
	for _, g := range append(s.ledger.Grants(), s.ledger.Reservations()...) {
		held[g.Key.PodUID] = held[g.Key.PodUID].Union(g.CPUs)
	}
	return held
}

// ReservedGrants returns the CPUs that are reserved for owners that cannot use them now.
func (s *State) ReservedGrants() []placement.Grant { return s.ledger.Reservations() }

// OwnedCPUs returns all CPUs that containers own.
func (s *State) OwnedCPUs() topology.Set { return s.ledger.OwnedCPUs() }

// PoolCPUs returns the current CPUs of a pool.
func (s *State) PoolCPUs(p placement.PoolKind) topology.Set {
	cpus, _ := s.layout.CPUs(placement.CPUGroup{Pool: p})
	return cpus
}

// CPUs returns the CPUs that were decided for a container.
func (s *State) CPUs(c *Container) topology.Set {
	if b := s.groups[c.Assignment.CPUGroup]; b != nil {
		return b.cpus
	}
	cpus, _ := s.layout.CPUs(c.Assignment.CPUGroup)
	return cpus
}

// Values returns the values that are decided for a container now. A container that requests nothing has a cpuset value
// only if other containers own CPUs, or owned CPUs before.
func (s *State) Values(c *Container) []lifecycle.Value {
	out := make([]lifecycle.Value, 0, len(c.decision.proposed))
	for i := range c.decision.proposed {
		if v, ok := s.value(c, &c.decision.proposed[i]); ok {
			out = append(out, v)
		}
	}
	return out
}

// value returns a proposed value with the current cpuset of the container's pool. ok is false if the
// container does not need the value.
func (s *State) value(c *Container, proposed *lifecycle.Value) (v lifecycle.Value, ok bool) {
	v = *proposed
	// If no hook decided the value, the value restores the runtime's request. It must not be replaced by the pool's
	// CPUs.
	if v.Field == lifecycle.CPUSetCPUs && v.Why.Hook != "" && (c.Assignment.Pool != placement.Exclusive || c.Assignment.OwnsAndShares()) {
		if b := s.groups[c.Assignment.CPUGroup]; b != nil {
			if c.Assignment.Pool == placement.Unclassified && b.hasAllCPUs && !c.decision.cpusetLimited {
				return v, false
			}
			v.Text = b.cpuList
		}
	}
	return v, true
}

// CPUSet returns the cpuset value of a container, if there is one.
func (s *State) CPUSet(c *Container) (lifecycle.Value, bool) {
	for i := range c.decision.proposed {
		if v, ok := s.value(c, &c.decision.proposed[i]); ok && v.Field == lifecycle.CPUSetCPUs {
			return v, true
		}
	}
	return lifecycle.Value{}, false
}

// sortedKeys returns the keys of a map, sorted.
func sortedKeys[V any](m map[string]V) []string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}
