package engine

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// countMemberships adds sign (1 or -1) to the state's count of live containers for each membership of c. A membership
// is a balloon together with a namespace or group whose containers belong to the balloon.
func (s *State) countMemberships(c *Container, sign int) {
	if !c.Alive() {
		return
	}
	for _, m := range c.Assignment.Memberships {
		if s.memberships[m] += sign; s.memberships[m] == 0 {
			delete(s.memberships, m)
		}
	}
}

// balloonContainers counts and lists the containers of balloons in a view.
type balloonContainers struct{ n *view }

// countMembers returns the number of live containers that have the membership m.
func (o balloonContainers) countMembers(m placement.Membership) int {
	if o.n.ignoresBase {
		return o.n.memberships[m]
	}
	return o.n.base.memberships[m] + o.n.memberships[m]
}

// recountMemberships adds sign (1 or -1) to the view's count of each membership of a container. c may be nil.
func (n *view) recountMemberships(c *Container, sign int) {
	if c == nil || !c.Alive() {
		return
	}
	for _, m := range c.Assignment.Memberships {
		if n.memberships == nil {
			n.memberships = map[placement.Membership]int{}
		}
		n.memberships[m] += sign
	}
}

// neighbours returns the other live containers of a container's pod.
func (o balloonContainers) neighbours(c *Container) (all []placement.Neighbour) {
	for _, other := range o.n.containersOf(c.PodID) {
		if other.ID != c.ID && other.Alive() {
			all = append(all, placement.Neighbour{Name: other.Name, Pool: other.Assignment.PoolID.Name, Owned: other.Assignment.Owned})
		}
	}
	return all
}

// memoryCPUs returns the CPUs near which the agent chooses memory for a container that is in a balloon or in a part of
// the node. If the container is new, the result includes the CPUs that its balloon will gain for this container.
func (o balloonContainers) memoryCPUs(c *Container) topology.Set {
	n := o.n
	laid := n.lastLayout()
	if n.container(c.ID) == nil {
		laid = n.layout(c)
	}
	cpus, _ := laid.CPUs(c.Assignment.CPUGroup)
	if b := laid.Balloons.ByName(c.Assignment.PoolID.Name); b != nil && !b.MemoryCPUs.Empty() {
		return b.MemoryCPUs
	}
	return cpus
}

// countUndecidedMembers runs at the start of a Synchronize event, before the engine decides about the listed
// containers. It adds the CPU requests of these containers to the needs of their balloons. The names of the balloons
// come from records, or from another agent that ran before (formerBalloons). countUndecidedMembers also sets baseLayout
// to the CPUs that the balloons had. These CPUs come from the checkpoint. If the checkpoint does not have a balloon,
// they come from the kernel and the records.
func (d *draft) countUndecidedMembers(all []*lifecycle.Container) {
	d.n.undecidedMembers = map[string]*Container{}
	held := make(map[string]topology.Set, len(d.facts.Balloons))
	for name, list := range d.facts.Balloons {
		held[name] = d.n.machine.OnlineOf(list)
	}
	pool := d.n.lastLayout().NamedPoolKind()
	expect := func(c *lifecycle.Container, asked *lifecycle.Resources, at placement.CPUGroup) {
		d.n.undecidedMembers[c.ID] = &Container{
			ID: c.ID, Life: c.State, Assignment: Assignment{CPUGroup: at}, RecordFields: lifecycle.RecordFields{Pristine: *asked},
		}
		d.n.poolNeeds = addNeed(d.n.poolNeeds, d.n.lastLayout(), d.n.undecidedMembers[c.ID], 1)
	}
	for name, b := range d.formerBalloons(all) {
		for _, c := range b.members {
			asked := pristineResources(&c.Resources)
			expect(c, &asked, placement.CPUGroup{Pool: pool, PoolID: placement.PoolID{Name: name}})
		}
		held[name] = b.cpus
	}
	for _, c := range all {
		if rec, known := d.facts.Records[c.ID]; known && rec.Balloon != "" {
			at := placement.CPUGroup{Pool: pool, PoolID: placement.PoolID{Name: rec.Balloon}}
			if owned := d.n.machine.OnlineOf(rec.CPUs); pool == placement.TreePool && !owned.Empty() {
				at.Pool, at.Owned = placement.Exclusive, owned
			}
			asked := requestFromRecord(&rec, &c.Resources)
			expect(c, &asked, at)
			if d.facts.Balloons[rec.Balloon] == "" {
				held[rec.Balloon] = held[rec.Balloon].Union(d.n.heldBalloonCPUs(d.facts.RunningCPUs[c.ID], rec.BalloonCPUs))
			}
		}
	}
	d.n.baseLayout = &placement.Layout{Balloons: placement.BalloonsFromCPUs(held)}
}

// dropUndecidedMembers runs at the end of a Synchronize event. If the engine did not decide about a container whose
// requests countUndecidedMembers added, dropUndecidedMembers subtracts the requests again from the needs of the
// container's balloon. It also drops the layouts of pools that the event computed so far. So the final layout is
// computed from the CPUs that the balloons had before the event.
func (d *draft) dropUndecidedMembers() {
	for id, c := range d.n.undecidedMembers {
		if _, decided := d.n.containers[id]; !decided {
			d.n.poolNeeds = addNeed(d.n.poolNeeds, d.n.lastLayout(), c, -1)
		}
	}
	d.n.undecidedMembers, d.n.stepLayout, d.n.layoutCache = nil, nil, nil
}

// heldBalloonCPUs returns the CPUs that a container's balloon had, as far as this container shows. Both parameters are
// kernel lists: runsOn are the CPUs on which the container runs, and recorded are the balloon's CPUs in the container's
// record. If runsOn is empty, the result is recorded. Otherwise the result has the CPUs in runsOn. A container can be
// limited to one thread of each core, so the result also has the other threads of these cores if they are in recorded.
func (n *view) heldBalloonCPUs(runsOn, recorded string) topology.Set {
	on, known := n.machine.OnlineOf(runsOn), n.machine.OnlineOf(recorded)
	if on.Empty() {
		return known
	}
	return on.Union(known.And(n.machine.ExpandToGroups(topology.CoreLevel, on)))
}

// BalloonCPUs returns the CPUs that only the balloon with this name has.
func (s *State) BalloonCPUs(name string) (cpus topology.Set) {
	if b := s.layout.Balloons.ByName(name); b != nil {
		return b.OwnCPUs
	}
	return cpus
}

// PoolsResized reports whether the last plan changed the CPUs of pools or balloons.
func (s *State) PoolsResized() bool { return s.poolsResized }

// Balloons returns, by name, the CPUs that only one balloon, or one component of a composite balloon, has. It returns
// nil if the placement policy makes no balloons.
func (s *State) Balloons() map[string]topology.Set { return s.layout.CPUsByBalloon() }
