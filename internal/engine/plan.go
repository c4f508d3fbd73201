package engine

import (
	"iter"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Record is what the agent stores about a container.
type Record = lifecycle.Record

// Facts are the inputs of a decision, in addition to the state and the event. The names Synchronize, Configure, Expect
// and Inform in the comments are kinds of events.
type Facts struct {
	// Records are the trusted records of the event's containers, by container id.
	Records map[string]Record
	// UntrustedRecords has the problems of records that are not trusted, by container id.
	UntrustedRecords map[string]lifecycle.Problem
	// FormerAgent has the CPUs and memory nodes that another agent gave to the containers of a Synchronize before
	// Trimtab managed the node, by container id. It is nil if there was no other agent.
	FormerAgent map[string]lifecycle.FormerContainer
	// ParentCPUs has the CPUs that pods' cgroups allow, by sandbox id, as kernel lists; "" allows all CPUs.
	ParentCPUs map[string]string
	// Balloons has the CPUs of each balloon before a Synchronize, by name, as kernel lists.
	Balloons map[string]string
	// KernelCPUs has, by container id, the CPUs that the kernel gives to a container in a Synchronize, as kernel lists.
	// The map has only containers whose record is missing or possibly older than a resize. But if any record is not
	// trusted, the map has all containers.
	KernelCPUs map[string]string
	// KernelMems has, by container id, the memory nodes that the kernel gives to a container in a Synchronize, as
	// kernel lists. The map has only containers whose record has a cold start.
	KernelMems map[string]string
	// RunningCPUs has, by container id, the CPUs that the kernel gives to each container in a Synchronize, as kernel
	// lists. The map is nil unless the runtime cannot describe one of the containers.
	RunningCPUs map[string]string
	// OwnedCPUs has the CPUs that pods are known to own at a Synchronize, by pod UID, as kernel lists.
	OwnedCPUs map[string]string
	// LentPods has the UIDs of the pods in OwnedCPUs whose CPUs reclaimed containers may use.
	LentPods map[string]bool
	// ExpectsMorePods means that a runtime will possibly create pods that are in OwnedCPUs and that it does not list
	// yet. The CPUs of these pods are kept until an Expect event decides about the pods.
	ExpectsMorePods bool
	// EndedSandboxes has the ids of sandboxes whose cgroup is gone and whose end no runtime reported.
	EndedSandboxes map[string]bool
	// CgroupGone means that the agent made this RemovePodSandbox event, because the pod's cgroup is gone. The runtime
	// may still list the pod.
	CgroupGone bool
	// Specs has the known pod specs, by pod UID.
	Specs map[string]*lifecycle.PodSpec
	// Granted has the kubelet's grants to the containers of pods, by pod UID.
	Granted map[string]*lifecycle.KubeletGrants
	// Claims has the resource claims that give CPUs to the event's containers, by container id.
	Claims map[string]*lifecycle.ClaimGrant
	// HookServers has the merged answers of hook servers for the event's container or pod.
	HookServers lifecycle.HookServerAnswer
	// PluginValues has the values that resource plugins allocate now for containers of an Inform, by pod UID and
	// container name.
	PluginValues map[string]map[string][]lifecycle.Value
	// HostInterfaces has an entry for each network interface that a new container requests, by name. The value says
	// whether the host has this interface. The map is nil if that is unknown.
	HostInterfaces map[string]bool
	// NodeDevices are the node's CDI devices, if a new container requests CDI devices.
	NodeDevices []lifecycle.NodeDevice
	// HeldDevices has the CDI devices that containers are known to have exclusively at a Synchronize, by pod
	// UID and container name.
	HeldDevices map[string]map[string][]string
	// ColdStartsOver has the ids of the containers of an Inform whose cold start is over.
	ColdStartsOver map[string]bool
	// CannotRefuse means that the container already exists, so its creation cannot be refused.
	CannotRefuse bool
	// Policy is the new policy of a Configure.
	Policy *Policy
	// Machine is the new machine of a Configure, if it changed.
	Machine *topology.Machine
}

// GroupChange is a change of the CPUs of a CPU group. Each container in the group gets the new CPUs. The agent computes
// the values of these containers only when it applies the plan.
type GroupChange struct {
	Group   placement.CPUGroup
	Before  topology.Set
	After   topology.Set
	Members []string // container ids, sorted
	// UsesFallbackCPUs means that other containers own all CPUs that are meant for the group, so the group gets other
	// CPUs.
	UsesFallbackCPUs bool
}

// Plan is the result of a decision. It has no effect until it is committed to the state and applied to the
// node.
type Plan struct {
	// Reject is the reason why the agent refuses the runtime's request; "" if the agent does not refuse it. A plan with
	// Reject changes nothing.
	Reject string
	// RefusedAsUnaligned means that the topology manager refuses the request.
	RefusedAsUnaligned bool
	// refusedForContainer is set if the event's container is refused because a later container of the pod could not be
	// admitted (checkLaterContainers). It is the name of the later container.
	refusedForContainer string
	// ConditionMatches has the number of new pods and containers that meet the condition of a hook, by hook; nil for
	// none.
	ConditionMatches map[string]int
	// Container is the event's container after the decision; nil for pod events.
	Container *Container
	// Pod is the event's pod after the decision.
	Pod *Pod
	// Changed are the ids of containers that this event decided, sorted.
	Changed []string
	// ReassignedContainers are the ids of containers that were in pools and were decided again because CPUs were
	// granted or freed. These ids are also in Changed. The event's own container is not among them.
	ReassignedContainers []string
	// ChangedPods are the ids of sandboxes that this event decided, sorted.
	ChangedPods []string
	// EndedContainers are the ids of containers that ended. Callers can then drop what they store about these
	// containers.
	EndedContainers []string
	// EndedPods are the ids of sandboxes that ended. Callers can then drop what they store about these sandboxes.
	EndedPods []string
	// FailedCreates is the number of earlier creations of the event's container that failed.
	FailedCreates int
	// GroupChanges are the CPU groups whose CPUs change.
	GroupChanges []GroupChange
	// UsesExpectedCPUs means that the event's container gets the CPUs that an Expect event kept for it.
	UsesExpectedCPUs bool
	// NotExpectedReason is the reason why, at an Expect event, the ledger keeps nothing for the event's container; ""
	// if there is no such reason.
	NotExpectedReason string

	baseGeneration uint64 // State.Generation when the plan was made; Commit checks that it is still the same
	draft          *draft // the changes that Commit applies to the state
}

// GrantsChanged reports whether the owned, lent or reserved CPUs changed.
func (p *Plan) GrantsChanged() bool { return p.draft != nil && p.draft.n.ledger.grantsChanged }

// Commit applies a plan to the state. It panics if the state has changed since the plan was made, because only a
// programming error can cause this.
func (s *State) Commit(p *Plan) {
	if p.baseGeneration != s.Generation {
		panic("engine: a plan was committed to a state that has changed")
	}
	d := p.draft
	if p.Reject != "" || d == nil {
		return
	}
	n := &d.n
	s.Generation++
	if n.ignoresBase {
		s.reset()
	}
	layout, other := n.layout(nil), s.Machine != n.machine
	anew := other || n.policy != &s.Policy
	var changed []*groupMembers // pointers, because keys of groups are large
	if s.poolsResized = s.layout != layout; anew {
		changed = slices.Collect(maps.Values(s.groups))
	} else {
		changed = slices.AppendSeq(changed, s.groupsSince(layout))
	}
	s.ledger, s.Machine, s.layout = n.ledger.Ledger, n.machine, layout
	if n.policy != &s.Policy {
		s.Policy = *n.policy
	}
	if s.commitExpected(d.expectedChanges); d.removesAllExpected {
		s.forgetCount++
	}
	for id, pod := range n.pods {
		if s.pods[id] = pod; pod == nil {
			delete(s.pods, id)
		}
	}
	if d.endedPodID != "" {
		s.endedPods.add(d.endedPodID)
	}
	for _, id := range n.changeOrder {
		s.putContainer(id, n.containers[id])
	}
	if s.updateUseOfPods(n.pods); other {
		s.hugePageUse = newHugePageUse(s.Machine)
		s.updateUseOfPods(s.pods)
	}
	s.indexPods(n.pods)
	s.refreshGroups(changed, anew)
}

// putContainer replaces, adds or (if c is nil) removes one container, and updates its group and all indexes.
func (s *State) putContainer(id string, c *Container) {
	old := s.containers[id]
	if old != nil {
		s.leaveGroup(old)
		s.countMemberships(old, -1)
	}
	s.updateUse(id, c)
	s.indexContainer(id, c)
	if old != nil && old.Pristine.CPU.CPUs != "" {
		s.containersWithCPUList--
	}
	if c != nil && c.Pristine.CPU.CPUs != "" {
		s.containersWithCPUList++
	}
	if old != nil && (c == nil || c.PodID != old.PodID) {
		s.containerIDsByPod[old.PodID] = slices.DeleteFunc(slices.Clone(s.containerIDsByPod[old.PodID]), func(x string) bool { return x == id })
		if len(s.containerIDsByPod[old.PodID]) == 0 {
			delete(s.containerIDsByPod, old.PodID)
		}
	}
	if c == nil {
		delete(s.containers, id)
		return
	}
	if old == nil || old.PodID != c.PodID {
		s.containerIDsByPod[c.PodID] = append(slices.Clone(s.containerIDsByPod[c.PodID]), id)
	}
	s.containers[id] = c
	if s.countMemberships(c, 1); c.Alive() {
		s.joinGroup(c)
	}
}

// leaveGroup removes a container from its CPU group, and removes the group if it is empty.
func (s *State) leaveGroup(c *Container) {
	group := c.Assignment.CPUGroup
	b := s.groups[group]
	if b == nil {
		return
	}
	if i, isMember := slices.BinarySearch(b.members, c.ID); isMember {
		b.members = slices.Delete(b.members, i, i+1)
	}
	if len(b.members) == 0 {
		delete(s.groups, group)
		delete(s.layoutGroups, b)
		left := slices.DeleteFunc(slices.Clone(s.poolGroups[group.PoolID]), func(g placement.CPUGroup) bool { return g == group })
		if s.poolGroups[group.PoolID] = left; len(left) == 0 {
			delete(s.poolGroups, group.PoolID)
		}
	}
}

// joinGroup adds a container to its CPU group, and makes the group if there is none.
func (s *State) joinGroup(c *Container) {
	group := c.Assignment.CPUGroup
	b := s.groups[group]
	if b == nil {
		b = &groupMembers{group: group}
		s.groups[group], s.newGroups = b, append(s.newGroups, b)
		if group.Pool != placement.Exclusive || group.OwnsAndShares() {
			s.layoutGroups[b] = true
		}
		if group.Pool.Named() {
			s.poolGroups[group.PoolID] = append(slices.Clone(s.poolGroups[group.PoolID]), group)
		}
	}
	if i, isMember := slices.BinarySearch(b.members, c.ID); !isMember {
		b.members = slices.Insert(b.members, i, c.ID)
	}
	if c.Assignment.Pool == placement.Unclassified && b.cpuList != "" && !b.hasAllCPUs {
		s.markCPUSetLimited([]string{c.ID})
	}
}

// groupsSince iterates over the CPU groups whose CPUs possibly differ between the layout l and the state's layout.
func (s *State) groupsSince(l *placement.Layout) iter.Seq[*groupMembers] {
	which, known := l.ChangedSince(s.layout)
	if !known {
		return maps.Keys(s.layoutGroups)
	}
	return func(yield func(*groupMembers) bool) {
		for _, w := range which {
			for _, group := range s.poolGroups[w] {
				if !yield(s.groups[group]) {
					return
				}
			}
		}
	}
}

// refreshGroups sets the CPUs of CPU groups as the state's layout says. It handles the groups in changed and all new
// groups. anew means that the machine or the policy changed, so that the kernel lists of all groups are made again.
func (s *State) refreshGroups(changed []*groupMembers, anew bool) {
	var open *placement.Layout // the layout that the pools would have if no CPU had an owner
	for _, b := range append(changed, s.newGroups...) {
		if len(b.members) == 0 {
			continue // the last container of the group ended
		}
		if cpus, _ := s.layout.CPUs(b.group); anew || cpus != b.cpus || b.cpuList == "" {
			b.cpus, b.cpuList = cpus, s.Machine.Format(cpus)
		}
		if b.group.Pool != placement.Unclassified {
			continue
		}
		if open == nil {
			open = (&placement.Pools{Online: s.Policy.Pools.Online}).DefaultLayout(placement.Demand{})
		}
		unowned, _ := open.CPUs(b.group)
		if b.hasAllCPUs = b.cpus == unowned; !b.hasAllCPUs {
			s.markCPUSetLimited(b.members)
		}
	}
	s.newGroups = nil
}

// markCPUSetLimited sets the flag cpusetLimited in the decisions about the containers with these ids.
func (s *State) markCPUSetLimited(ids []string) {
	for _, id := range ids {
		if c := s.containers[id]; !c.decision.cpusetLimited {
			t := *c
			t.decision.cpusetLimited = true
			s.containers[id] = &t
		}
	}
}
