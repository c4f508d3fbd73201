package engine

import (
	"cmp"

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

// occupants are the containers of balloons in a view.
type occupants struct{ n *view }

// marked counts the live containers with a mark.
func (o occupants) marked(m placement.Mark) int {
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

// ofPod returns the balloons of the other live containers of a container's pod.
func (o occupants) ofPod(c *Container) (all []string) {
	for _, other := range o.n.containersOf(c.PodID) {
		if other.ID != c.ID && other.Alive() && other.Assignment.Pool.Named() {
			all = append(all, other.Assignment.Which.Name)
		}
	}
	return all
}

// cpus returns the CPUs of a container's balloon that its memory is near. If the container is new, they include
// those that the balloon gets with it.
func (o occupants) cpus(c *Container) topology.Set {
	n := o.n
	laid := cmp.Or(n.layoutCache, n.base.layout)
	if n.container(c.ID) == nil {
		laid = n.layout(c)
	}
	cpus, _ := laid.CPUs(c.Assignment.CPUGroup)
	if near := laid.Balloons[c.Assignment.Which].Near; !near.Empty() {
		return near
	}
	return cpus
}

// addTo adds to a demand what balloons had before, and how many containers they have.
func (o occupants) addTo(d *placement.Demand, needs map[placement.Which]need) {
	if d.Held = o.n.held; d.Held == nil {
		d.Held = o.n.base.layout.Held()
	}
	d.Members = make(map[placement.Which]int, len(needs))
	for w, sum := range needs {
		d.Members[w] = sum.members
	}
}

// expectBalloons notes the balloons of the containers of a Synchronize, and their CPUs. The
// checkpoint has these. Otherwise they are what the kernel gives the containers, or what their
// records say. A container may also run on CPUs that its balloon does not have for itself.
func (d *draft) expectBalloons(all []*lifecycle.Container) {
	d.n.expected, d.n.held = map[string]*Container{}, map[placement.Which]topology.Set{}
	for name, list := range d.facts.Balloons {
		d.n.held[placement.Which{Name: name}] = d.n.machine.OnlineOf(list)
	}
	pool := d.n.layout(nil).NamedPool()
	for _, c := range all {
		if rec, known := d.facts.Records[c.ID]; known && rec.Balloon != "" {
			w := placement.Which{Name: rec.Balloon}
			d.n.expected[c.ID] = &Container{
				ID: c.ID, Life: c.State, Assignment: Assignment{CPUGroup: placement.CPUGroup{Pool: pool, Which: w}},
				RecordFields: lifecycle.RecordFields{Pristine: askedSince(&rec, &c.Resources)},
			}
			if d.facts.Balloons[rec.Balloon] == "" {
				d.n.held[w] = d.n.held[w].Union(d.n.heldOf(d.facts.Runs[c.ID], rec.BalloonCPUs))
			}
		}
	}
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
func (s *State) BalloonCPUs(name string) topology.Set {
	return s.layout.Balloons[placement.Which{Name: name}].Own
}

// Resized reports whether the last plan changed the CPUs of pools or balloons.
func (s *State) Resized() bool { return s.resized }

// Balloons returns the CPUs that each balloon, and each part of a composite one, has for itself, by
// name; nil if the policy makes none.
func (s *State) Balloons() map[string]topology.Set {
	held := s.layout.Held()
	if held == nil {
		return nil
	}
	out := make(map[string]topology.Set, len(held))
	for w, cpus := range held {
		out[w.Name] = cpus
	}
	return out
}
