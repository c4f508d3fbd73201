package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is the part of the configuration that the engine needs.
type Policy struct {
	// Strict refuses containers of pods whose annotations are malformed.
	Strict   bool
	Dialects []string
	Pools    placement.Pools
	// Placement decides who owns CPUs that no scheduler assigned, and which CPUs the pools
	// have.
	Placement placement.Policy
	// Topology sets how strictly the CPUs of owners must be on the NUMA nodes of their memory
	// and devices.
	Topology TopologyManager
	// Place switches placement on. Without it no container owns CPUs.
	Place bool
	// Fatal names hooks whose failure refuses the container, because it must not start without
	// their values.
	Fatal map[string]bool
	// Rules limit which keys pods may use. Without rules the safe defaults apply.
	Rules intent.Rules
	// Serving lists the requests of pods that this node serves; nil serves all.
	Serving *intent.Serving
	Hooks   []hook.Hook
}

// Pod is what the engine knows about a pod sandbox. A value is never changed, only replaced.
type Pod struct {
	Pod    *lifecycle.Pod
	Intent *intent.Pod
	// Spec has the parts of the pod's spec that the runtime does not report; nil if no source
	// has them.
	Spec *lifecycle.PodSpec
	// Granted are the kubelet's grants to its containers; nil if not known.
	Granted *lifecycle.KubeletGrants
	// Within are the CPUs that the pod's cgroup allows; empty if it allows all.
	Within         topology.Set
	Values         []lifecycle.Value // for the pod's own cgroup
	ProblemSummary ProblemSummary
	Stopped        bool
	// bySpec reports that the pod's resources come from its spec, because the runtime reported
	// none.
	bySpec bool
	// bursts is the sum of its live containers' bursts, in µs, for which the pod's own values
	// were decided.
	bursts int64
	// exclusive are the exclusive CPUs for which the pod's own values were decided.
	exclusive topology.Set
	// assigned are the CPUs that a scheduler assigned to it and that could be granted, for
	// which the pod's own values were decided.
	assigned topology.Set
	// sumOld reports that the sum of resources comes from a Synchronize and may be older than a
	// resize. ended has the requests, by name, of containers that had ended before it.
	sumOld bool
	ended  map[string]*lifecycle.Resources
	// specProblems say what is wrong with the spec that a source sent for it.
	specProblems []lifecycle.Problem
}

// FullName returns namespace/name.
func (p *Pod) FullName() string { return p.Pod.Namespace + "/" + p.Pod.Name }

// Container is what the engine knows about a container. A value is never changed, only
// replaced.
type Container struct {
	ID          string
	Name        string
	Key         placement.Key
	PodID       string
	Life        lifecycle.State
	CgroupsPath string
	// RecordFields are the fields of its record, as written or as the agent would write them
	// now.
	lifecycle.RecordFields
	Assignment     Assignment
	Stamp          Stamp
	Undescribed    Undescribed
	ProblemSummary ProblemSummary
	// About has the labels, annotations and other properties that the runtime reported.
	About hook.About
	// RequestedDevices are the devices in the runtime's request.
	RequestedDevices lifecycle.DeviceGrant

	decided decision
}

// Assignment is the pool or the owned CPUs of a container, with the key that asked for them and
// the reason.
type Assignment struct {
	placement.CPUGroup

	From, Why string
	// Marks are those of the container in its balloon, and Memory its memory nodes.
	Marks  []placement.Mark
	Memory placement.MemoryChoice
}

// Stamp compares a container's written record with the current state.
type Stamp struct {
	// CPUs are the CPUs that it owned at its creation.
	CPUs topology.Set
	// Stale reports that the record lacks facts that are stored nowhere else. Either the agent
	// decides more values now, the container owns other CPUs, or another container owns the CPUs
	// in the record.
	Stale bool

	decidedBefore bool // it was decided before, so its record has the values that were ours then
}

// Undescribed is the state of a container that the runtime cannot describe.
type Undescribed struct {
	// Why is the reason; "" if the runtime can describe it. The container keeps what it has
	// until the runtime describes it.
	Why string
	// NoRequest reports that no record has its request either. Then the agent decides only its
	// CPUs, so that containers stay apart.
	NoRequest bool

	bound topology.Set // the CPUs that the kernel gave it; in a pool without a class it does not get more
}

// decision is the result of deciding a container, and its inputs.
type decision struct {
	// proposed are the hooks' values. The cpuset of a pool is filled in when the values are
	// read, because it changes with the pool.
	proposed []lifecycle.Value
	// creation is set while a new container is decided, if a hook needs it.
	creation *hook.Creation
	// narrowed reports that the agent has narrowed the container's cpuset before. Its cpuset
	// must then also be written when its group has all CPUs again.
	narrowed bool
	// distrust are the problems of its records that are not trusted, and of a description that
	// the runtime cannot give.
	distrust []lifecycle.Problem
	// refused is the reason why a hook refuses the container; "" if no hook does.
	refused string
	// unaligned is the reason why the topology manager refuses it; "" if it does not.
	unaligned string
	// hints are those of resource plugins, while a new container is decided.
	hints []lifecycle.ResourceHints
	// affinity is the topology manager's choice for a new container; nil if it made none.
	affinity *lifecycle.Affinity
	// refusals are the hook servers' values that were refused, with the reasons.
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

// groupMembers are the containers of a CPU group, and the CPUs that it has now.
type groupMembers struct {
	members []string // sorted ids
	cpus    topology.Set
	text    string
	// complete reports that the group has all CPUs that it would have if no CPU had an owner.
	complete bool
}

// State is everything decided so far. Only one goroutine at a time may use it.
type State struct {
	Machine *topology.Machine
	Policy  Policy
	// Generation counts committed plans.
	Generation uint64

	ledger *placement.Ledger
	// expected are containers that no runtime has reported yet. The map is replaced, never changed.
	expected map[placement.Key]*expected
	// forgotten counts how often all that was expected was forgotten.
	forgotten  uint64
	pods       map[string]*Pod
	containers map[string]*Container
	byPod      map[string][]string
	groups     map[placement.CPUGroup]*groupMembers
	// seats are the groups of pools that the policy names, and begun those that are new since
	// the groups' CPUs were last computed.
	seats map[placement.Which][]placement.CPUGroup
	begun []placement.CPUGroup
	// memory is what containers may use of each NUMA node.
	memory memoryUse
	// marks has the number of containers of each balloon, by namespace and by group.
	marks map[placement.Mark]int
	// listed is the number of containers whose request has a list of CPUs. Only the kubelet's
	// static CPU manager sends such lists.
	listed int
	layout *placement.Layout
	// resized: the last plan changed the layout.
	resized bool
	ended   endedPods
	// matched has the number of matches of each hook's condition. The map is replaced, never
	// changed.
	matched map[string]uint64
}

// NewState returns the state of a node on which nothing runs.
func NewState(m *topology.Machine, p Policy) *State {
	s := &State{Machine: m, Policy: p}
	s.reset()
	return s
}

func (s *State) reset() {
	s.ledger, s.expected = placement.NewLedger(), nil
	s.forgotten++
	s.pods = map[string]*Pod{}
	s.containers = map[string]*Container{}
	s.byPod = map[string][]string{}
	s.groups = map[placement.CPUGroup]*groupMembers{}
	s.seats, s.begun = map[placement.Which][]placement.CPUGroup{}, nil
	s.marks, s.memory = map[placement.Mark]int{}, newMemoryUse()
	s.listed = 0
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

// IsLive reports whether a pod, or a container that has not ended, is known by its id.
// undecided reports whether the runtime cannot describe it yet, so that few values are decided.
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

// ContainersOf returns the ids of a pod's containers in order of arrival.
func (s *State) ContainersOf(podID string) []string { return s.byPod[podID] }

// Grants returns which keys own which CPUs.
func (s *State) Grants() []placement.Grant { return s.ledger.Grants() }

// Owners returns the pods that own CPUs and have not been stopped.
func (s *State) Owners() []*Pod {
	held := s.Held()
	if len(held) == 0 { // called at every end of a container
		return nil
	}
	return s.PodsWhere(func(p *Pod) bool {
		_, owns := held[p.Pod.UID]
		return owns && !p.Stopped
	})
}

// Held returns the CPUs of each pod that owns CPUs, by UID: the CPUs that its containers own,
// and offline CPUs that are reserved for them.
func (s *State) Held() map[string]topology.Set {
	held := map[string]topology.Set{}
	for _, g := range append(s.ledger.Grants(), s.ledger.AllReserved()...) {
		held[g.Key.PodUID] = held[g.Key.PodUID].Union(g.CPUs)
	}
	return held
}

// ReservedGrants returns the CPUs that are reserved for owners that cannot use them now.
func (s *State) ReservedGrants() []placement.Grant { return s.ledger.AllReserved() }

// Exclusive returns all CPUs that have an owner.
func (s *State) Exclusive() topology.Set { return s.ledger.Exclusive() }

// PoolCPUs returns the current CPUs of a pool.
func (s *State) PoolCPUs(p placement.Pool) topology.Set {
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

// Values returns the current decision for a container. A container without any request has a
// cpuset value only if it must avoid owned CPUs, or had to avoid them before.
func (s *State) Values(c *Container) []lifecycle.Value {
	out := make([]lifecycle.Value, 0, len(c.decided.proposed))
	for i := range c.decided.proposed {
		if v, ok := s.value(c, &c.decided.proposed[i]); ok {
			out = append(out, v)
		}
	}
	return out
}

// value completes one proposed value; ok is false if the container has no such value.
func (s *State) value(c *Container, proposed *lifecycle.Value) (v lifecycle.Value, ok bool) {
	v = *proposed
	// A value without a hook restores a request, so it does not come from a pool.
	if v.Field == lifecycle.CPUSetCPUs && v.Why.Hook != "" && c.Assignment.Pool != placement.Own {
		if b := s.groups[c.Assignment.CPUGroup]; b != nil {
			if c.Assignment.Pool == placement.Unclassified && b.complete && !c.decided.narrowed {
				return v, false
			}
			v.Text = b.text
		}
	}
	return v, true
}

// CPUSet returns the cpuset among a container's values, if one is decided.
func (s *State) CPUSet(c *Container) (lifecycle.Value, bool) {
	for i := range c.decided.proposed {
		if v, ok := s.value(c, &c.decided.proposed[i]); ok && v.Field == lifecycle.CPUSetCPUs {
			return v, true
		}
	}
	return lifecycle.Value{}, false
}

func sortedKeys[V any](m map[string]V) []string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}
