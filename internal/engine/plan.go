package engine

import (
	"iter"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Record is what is stored about a container.
type Record = lifecycle.Record

// Facts are the inputs of a decision besides the runtime's request.
type Facts struct {
	// Records are the trusted records of the event's containers, by container id.
	Records map[string]Record
	// Distrusted has the reason why a record is not trusted, by id of its container.
	Distrusted map[string]lifecycle.Problem
	// ParentCPUs are the CPUs that pods' cgroups allow, by sandbox id, as kernel lists; ""
	// allows all.
	ParentCPUs map[string]string
	// Balloons are the CPUs that each balloon had at a Synchronize, by name, as kernel lists.
	Balloons map[string]string
	// Kernel are the CPUs that the kernel gives to containers of a Synchronize, by id, as
	// kernel lists. It has containers whose record is lost or may be older than a resize; all
	// containers if some records are distrusted.
	Kernel map[string]string
	// Runs are the CPUs that the kernel gives to each container of a Synchronize. It is filled
	// only if the runtime cannot describe one of the containers.
	Runs map[string]string
	// Grants are the CPUs that pods are known to own at a Synchronize, by pod UID, as kernel
	// lists.
	Grants map[string]string
	// Expecting: pods of Grants that no runtime lists may still come. Their CPUs are kept until an
	// Expect decides about them.
	Expecting bool
	// Ended are sandboxes whose cgroup is gone and whose end no runtime reported.
	Ended map[string]bool
	// Swept: the agent created the event because the pod's cgroup is gone. The runtime may
	// still list the pod.
	Swept bool
	// Specs are the known pod specs, by pod UID.
	Specs map[string]*lifecycle.PodSpec
	// Granted are the kubelet's grants to pods' containers, by pod UID.
	Granted map[string]*lifecycle.KubeletGrants
	// HookServers are the answers of hook servers for the event's container or pod.
	HookServers lifecycle.HookServerAnswer
	// Allocated has what resource plugins have allocated now for containers of an Inform, by pod UID
	// and container name.
	Allocated map[string]map[string][]lifecycle.Value
	// HostInterfaces reports whether the host has a network interface, by name. It has those that a
	// new container asks for; nil if that is unknown.
	HostInterfaces map[string]bool
	// Unstoppable: the container exists, and its creation cannot be refused any more.
	Unstoppable bool
	// Policy is the new policy of a Configure.
	Policy *Policy
	// Machine is the new machine of a Configure, if it changed.
	Machine *topology.Machine
}

// GroupChange is a change of a CPU group's CPUs. It stands for a change of each container in the
// group, and is expanded to these only when it is applied.
type GroupChange struct {
	Group   placement.CPUGroup
	Before  topology.Set
	After   topology.Set
	Members []string // container ids, sorted
	// Starved: other containers own every CPU that the group may use, so it got other CPUs.
	Starved bool
}

// Plan is the result of a decision. It takes effect when it is committed to the state and
// applied to the node.
type Plan struct {
	// Reject is the policy's reason to refuse the request; "" if it does not. A plan that
	// rejects changes nothing.
	Reject string
	// Unaligned means that the topology manager is the one that rejects.
	Unaligned bool
	// Matched is the number of new pods and containers that meet each hook's condition, by hook;
	// nil for none.
	Matched map[string]int
	// Container is the event's container after the decision; nil for pod events.
	Container *Container
	// Pod is the event's pod after the decision.
	Pod *Pod
	// Changed are the ids of containers that this event decided again, sorted.
	Changed []string
	// Reassigned are the containers of Changed whose CPUs changed, without the event's own
	// container.
	Reassigned []string
	// ChangedPods are the ids of sandboxes that this event decided again, sorted.
	ChangedPods []string
	// Gone are the ids of containers that have ended, so that other code can drop its state of
	// them.
	Gone []string
	// GonePods are the ids of sandboxes that have ended, so that other code can drop its state
	// of them.
	GonePods []string
	// FailedCreates counts earlier creations of the event's container that failed.
	FailedCreates int
	// GroupChanges are the CPU groups whose CPUs change.
	GroupChanges []GroupChange
	// Expected: the event's container gets the CPUs that were kept for it by an Expect.
	Expected bool
	// NotExpected is why an Expect keeps nothing; "" if it does.
	NotExpected string

	base  uint64
	draft *draft
}

// Moved reports whether a pod or container got or lost CPUs.
func (p *Plan) Moved() bool { return p.draft != nil && p.draft.n.ledger.moved }

// Commit applies a plan to the state. It panics if the plan was made for another state, which
// only a programming error can cause.
func (s *State) Commit(p *Plan) {
	if p.base != s.Generation {
		panic("engine: a plan was committed to a state that has changed")
	}
	d := p.draft
	if p.Reject != "" || d == nil {
		return
	}
	n := &d.n
	s.Generation++
	if n.fresh {
		s.reset()
	}
	layout := n.layout(nil)
	var changed []placement.CPUGroup
	for seat := range s.groupsSince(layout) {
		changed = append(changed, seat)
	}
	if s.resized = s.layout != layout; s.Machine != n.machine || n.policy != &s.Policy {
		changed = slices.Collect(maps.Keys(s.groups))
	}
	s.ledger, s.Machine, s.layout = n.ledger.Ledger, n.machine, layout
	if n.policy != &s.Policy {
		s.Policy = *n.policy
	}
	if s.commitExpected(d.expects); d.forgets {
		s.forgotten++
	}
	for id, pod := range n.pods {
		if s.pods[id] = pod; pod == nil {
			delete(s.pods, id)
		}
	}
	if d.ended != "" {
		s.ended.add(d.ended)
	}
	for _, id := range n.order {
		s.put(id, n.containers[id])
	}
	s.chargePods(n.pods)
	s.refreshGroups(changed)
}

// put replaces, adds or (if c is nil) removes one container, also in its group.
func (s *State) put(id string, c *Container) {
	old := s.containers[id]
	if old != nil {
		s.leave(old)
		s.mark(old, -1)
	}
	s.charge(id, c)
	if old != nil && old.Pristine.CPU.CPUs != "" {
		s.listed--
	}
	if c != nil && c.Pristine.CPU.CPUs != "" {
		s.listed++
	}
	if old != nil && (c == nil || c.PodID != old.PodID) {
		s.byPod[old.PodID] = slices.DeleteFunc(slices.Clone(s.byPod[old.PodID]), func(x string) bool { return x == id })
		if len(s.byPod[old.PodID]) == 0 {
			delete(s.byPod, old.PodID)
		}
	}
	if c == nil {
		delete(s.containers, id)
		return
	}
	if old == nil || old.PodID != c.PodID {
		s.byPod[c.PodID] = append(slices.Clone(s.byPod[c.PodID]), id)
	}
	s.containers[id] = c
	if s.mark(c, 1); c.Alive() {
		s.join(c)
	}
}

// leave removes a container from its group.
func (s *State) leave(c *Container) {
	seat := c.Assignment.CPUGroup
	b := s.groups[seat]
	if b == nil {
		return
	}
	if i, sits := slices.BinarySearch(b.members, c.ID); sits {
		b.members = slices.Delete(b.members, i, i+1)
	}
	if len(b.members) == 0 {
		delete(s.groups, seat)
		left := slices.DeleteFunc(slices.Clone(s.seats[seat.Which]), func(g placement.CPUGroup) bool { return g == seat })
		if s.seats[seat.Which] = left; len(left) == 0 {
			delete(s.seats, seat.Which)
		}
	}
}

// join adds a container to its group.
func (s *State) join(c *Container) {
	seat := c.Assignment.CPUGroup
	b := s.groups[seat]
	if b == nil {
		b = &groupMembers{}
		s.groups[seat], s.begun = b, append(s.begun, seat)
		if seat.Pool.Named() {
			s.seats[seat.Which] = append(slices.Clone(s.seats[seat.Which]), seat)
		}
	}
	if i, sits := slices.BinarySearch(b.members, c.ID); !sits {
		b.members = slices.Insert(b.members, i, c.ID)
	}
	if c.Assignment.Pool == placement.Unclassified && b.text != "" && !b.complete {
		s.markNarrowed([]string{c.ID})
	}
}

// groupsSince iterates over the groups that may have other CPUs under another layout than under
// the state's.
func (s *State) groupsSince(l *placement.Layout) iter.Seq2[placement.CPUGroup, *groupMembers] {
	which, known := l.Since(s.layout)
	if !known {
		return maps.All(s.groups)
	}
	return func(yield func(placement.CPUGroup, *groupMembers) bool) {
		for _, w := range which {
			for _, seat := range s.seats[w] {
				if !yield(seat, s.groups[seat]) {
					return
				}
			}
		}
	}
}

// refreshGroups updates the CPUs of some groups, and of those that are new, from the layout.
func (s *State) refreshGroups(changed []placement.CPUGroup) {
	var open *placement.Layout // the layout of the pools if no CPU had an owner
	for _, seat := range append(changed, s.begun...) {
		b := s.groups[seat]
		if b == nil {
			continue // its last container ended
		}
		if open == nil {
			open = (&placement.Pools{Online: s.Policy.Pools.Online}).Lay(placement.Demand{})
		}
		b.cpus, _ = s.layout.CPUs(seat)
		b.text = s.Machine.Format(b.cpus)
		unowned, _ := open.CPUs(seat)
		b.complete = seat.Pool == placement.Unclassified && b.cpus == unowned
		if seat.Pool == placement.Unclassified && !b.complete {
			s.markNarrowed(b.members)
		}
	}
	s.begun = nil
}

// markNarrowed marks containers as narrowed, once per container.
func (s *State) markNarrowed(ids []string) {
	for _, id := range ids {
		if c := s.containers[id]; !c.decided.narrowed {
			t := *c
			t.decided.narrowed = true
			s.containers[id] = &t
		}
	}
}
