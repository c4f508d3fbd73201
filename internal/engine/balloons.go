package engine

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// mark counts a container where its balloon distinguishes containers.
func (s *State) mark(c *Container, sign int) {
	if !c.Alive() {
		return
	}
	for _, m := range c.Assignment.Marks {
		if s.marks[m] += sign; s.marks[m] == 0 {
			delete(s.marks, m)
		}
	}
}

// balloonContainers are the containers of balloons in a view.
type balloonContainers struct{ n *view }

// marked counts the live containers with a mark.
func (o balloonContainers) marked(m placement.Mark) int {
	if o.n.fresh {
		return o.n.marks[m]
	}
	return o.n.base.marks[m] + o.n.marks[m]
}

// recount counts a container that the view replaces or gets.
func (n *view) recount(c *Container, sign int) {
	if c == nil || !c.Alive() {
		return
	}
	for _, m := range c.Assignment.Marks {
		if n.marks == nil {
			n.marks = map[placement.Mark]int{}
		}
		n.marks[m] += sign
	}
}

// neighbours returns the other live containers of a container's pod.
func (o balloonContainers) neighbours(c *Container) (all []placement.Neighbour) {
	for _, other := range o.n.containersOf(c.PodID) {
		if other.ID != c.ID && other.Alive() {
			all = append(all, placement.Neighbour{Name: other.Name, Pool: other.Assignment.Which.Name, Owned: other.Assignment.Owned})
		}
	}
	return all
}

// cpus returns the CPUs of a container's balloon that its memory is near. If the container is new, they include
// those that the balloon gets with it.
func (o balloonContainers) cpus(c *Container) topology.Set {
	n := o.n
	laid := n.laid()
	if n.container(c.ID) == nil {
		laid = n.layout(c)
	}
	cpus, _ := laid.CPUs(c.Assignment.CPUGroup)
	if b := laid.Balloons.Of(c.Assignment.Which.Name); b != nil && !b.Near.Empty() {
		return b.Near
	}
	return cpus
}

// expectBalloons notes the balloons of the containers of a Synchronize, and their CPUs. The
// checkpoint has these. Otherwise they are what the kernel gives the containers, or what their
// records say. A container may also run on CPUs that its balloon does not have for itself.
func (d *draft) expectBalloons(all []*lifecycle.Container) {
	d.n.expected = map[string]*Container{}
	held := make(map[string]topology.Set, len(d.facts.Balloons))
	for name, list := range d.facts.Balloons {
		held[name] = d.n.machine.OnlineOf(list)
	}
	pool := d.n.laid().NamedPool()
	for _, c := range all {
		if rec, known := d.facts.Records[c.ID]; known && rec.Balloon != "" {
			w := placement.Which{Name: rec.Balloon}
			d.n.expected[c.ID] = &Container{
				ID: c.ID, Life: c.State, Assignment: Assignment{CPUGroup: placement.CPUGroup{Pool: pool, Which: w}},
				RecordFields: lifecycle.RecordFields{Pristine: askedSince(&rec, &c.Resources)},
			}
			d.n.poolNeeds = addNeed(d.n.poolNeeds, d.n.laid(), d.n.expected[c.ID], 1)
			if d.facts.Balloons[rec.Balloon] == "" {
				held[rec.Balloon] = held[rec.Balloon].Union(d.n.heldOf(d.facts.Runs[c.ID], rec.BalloonCPUs))
			}
		}
	}
	d.n.before = &placement.Layout{Balloons: placement.HeldBy(held)}
}

// forgetExpected ends the steps of a Synchronize: the last layout is made from what balloons had
// before all of it. Containers that were expected and not decided no longer count.
func (d *draft) forgetExpected() {
	for id, c := range d.n.expected {
		if _, decided := d.n.containers[id]; !decided {
			d.n.poolNeeds = addNeed(d.n.poolNeeds, d.n.laid(), c, -1)
		}
	}
	d.n.expected, d.n.step, d.n.layoutCache = nil, nil, nil
}

// heldOf returns the CPUs that a container's balloon had: those that it runs on, and of those
// in its record the other threads of the same cores, since it may run on one thread of each.
// Without the former, all of its record count.
func (n *view) heldOf(runs, recorded string) topology.Set {
	on, known := n.machine.OnlineOf(runs), n.machine.OnlineOf(recorded)
	if on.Empty() {
		return known
	}
	return on.Union(known.And(n.machine.Spread(topology.CoreLevel, on)))
}

// BalloonCPUs returns the CPUs that a balloon has for itself.
func (s *State) BalloonCPUs(name string) (cpus topology.Set) {
	if b := s.layout.Balloons.Of(name); b != nil {
		return b.Own
	}
	return cpus
}

// Resized reports whether the last plan changed the CPUs of pools or balloons.
func (s *State) Resized() bool { return s.resized }

// Balloons returns the CPUs that each balloon, and each part of a composite one, has for itself, by
// name; nil if the policy makes none.
func (s *State) Balloons() map[string]topology.Set { return s.layout.Held() }
