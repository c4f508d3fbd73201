package engine

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// countMemberships adds sign to the counts of a container's memberships.
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

// balloonContainers answers questions about the containers of balloons in a view.
type balloonContainers struct{ n *view }

// countMembers returns the number of live containers with a membership.
func (o balloonContainers) countMembers(m placement.Membership) int {
	if o.n.ignoresBase {
		return o.n.memberships[m]
	}
	return o.n.base.memberships[m] + o.n.memberships[m]
}

// recountMemberships adds sign to the view's counts for a container that the view adds or replaces.
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

// cpus returns the CPUs near which a container in a balloon, or in a part of the node, gets memory. If the
// container is new, the result includes the CPUs that the balloon gets because of the container.
func (o balloonContainers) cpus(c *Container) topology.Set {
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

// countUndecidedMembers adds the containers of a Synchronize to the needs of their balloons before the
// containers are decided. The balloons come from records, or from another agent (formerBalloons). It also
// notes the CPUs that balloons had, which come from the checkpoint, or else from the kernel and the records.
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

// dropUndecidedMembers runs at the end of a Synchronize. It subtracts the containers that were counted for their
// balloons and were not decided. The final layout is computed from the CPUs that balloons had before the Synchronize.
func (d *draft) dropUndecidedMembers() {
	for id, c := range d.n.undecidedMembers {
		if _, decided := d.n.containers[id]; !decided {
			d.n.poolNeeds = addNeed(d.n.poolNeeds, d.n.lastLayout(), c, -1)
		}
	}
	d.n.undecidedMembers, d.n.stepLayout, d.n.layoutCache = nil, nil, nil
}

// heldBalloonCPUs returns CPUs that a container's balloon had: those on which it runs, and the other threads
// of their cores if the record has them. The container may run on only one thread of each core. If it is not
// known where the container runs, it returns all CPUs of the record. Both parameters are kernel lists.
func (n *view) heldBalloonCPUs(runs, recorded string) topology.Set {
	on, known := n.machine.OnlineOf(runs), n.machine.OnlineOf(recorded)
	if on.Empty() {
		return known
	}
	return on.Union(known.And(n.machine.ExpandToGroups(topology.CoreLevel, on)))
}

// BalloonCPUs returns the own CPUs of a balloon.
func (s *State) BalloonCPUs(name string) (cpus topology.Set) {
	if b := s.layout.Balloons.ByName(name); b != nil {
		return b.OwnCPUs
	}
	return cpus
}

// PoolsResized reports whether the last plan changed the CPUs of pools or balloons.
func (s *State) PoolsResized() bool { return s.poolsResized }

// Balloons returns the own CPUs of each balloon and of each component of a composite balloon, by name; nil if
// the policy makes no balloons.
func (s *State) Balloons() map[string]topology.Set { return s.layout.CPUsByBalloon() }
