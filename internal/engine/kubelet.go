package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// pinned returns the CPUs that the kubelet's static CPU manager gave to a
// container alone, empty for none: by its word, where that counts, else by what the
// runtime was asked for.
func (d *draft) pinned(p *Pod, container string, told *lifecycle.Resources) topology.Set {
	if p == nil {
		return topology.Set{}
	}
	if t := d.termsOf(p, container, told); t.Elsewhere != nil {
		return t.Given.CPUs
	}
	return placement.Pinned(d.machine, p.Intent, told)
}

// seatKubelets has a container own what the kubelet gave it, where the kubelet has
// the say. Its CPUs are taken from all others and it is itself left alone. They are
// not put on record: they are the kubelet's to tell, after a restart as well.
func (d *draft) seatKubelets(p *Pod, c *Container) bool {
	t := d.termsOf(p, c.Name, &c.Pristine)
	if t.Elsewhere == nil || !d.policy.Place {
		return false
	}
	cpus := t.Given.CPUs
	c.Trouble = append(c.Trouble, t.Given.Problems...)
	if cpus.Empty() {
		if g, owns := d.ledger.Of(c.Key); owns && g.From == placement.ByKubelet {
			d.dropKey(c.Key)
		}
		return false
	}
	if taken := d.takenFrom(c.Key, cpus); taken != nil {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: "authority", Value: d.machine.Format(cpus), Refused: true, Then: "it owns none of them",
			Reason: fmt.Sprintf("the kubelet gave it CPUs %s that %s owns", d.machine.Format(taken.CPUs), intent.Printable(taken.Owner.Pod)),
		})
		return false
	}
	d.own(p, c, cpus, placement.ByKubelet, t.Given.Why)
	c.Born = topology.Set{}
	d.sayAway(c, "authority", t.Given.Away, "it runs on those that are left")
	return true
}

// takenFrom returns who else owns some of CPUs that the kubelet gave to a
// container, nil for nobody. Who had them by the kubelet's word and does not run
// any more has lost them by this one.
func (d *draft) takenFrom(key placement.Key, cpus topology.Set) *placement.Taken {
	for {
		var taken *placement.Taken
		if !errors.As(d.ledger.Check(key, cpus), &taken) {
			return nil
		}
		if taken.Owner.From != placement.ByKubelet || d.runs(taken.Owner.Key) {
			return taken
		}
		d.dropKey(taken.Owner.Key)
	}
}

// runs reports whether a container lives.
func (d *draft) runs(key placement.Key) bool {
	return slices.ContainsFunc(d.everyone(), func(c *Container) bool { return c.Key == key && c.Alive() })
}

// kubelets returns which of these CPUs the kubelet gave to containers of other
// pods, and a pod that has some. What somebody owns already is the ledger's.
func (d *draft) kubelets(p *Pod, cpus topology.Set) (both topology.Set, owner string) {
	note := func(c *Container) {
		if c == nil || c.Pristine.CPU.CPUs == "" || !c.Alive() || c.Key.PodUID == p.Pod.UID || c.Seat.Pool == placement.Own {
			return
		}
		other := d.pod(c.PodID)
		has := d.pinned(other, c.Name, &c.Pristine).Minus(d.ledger.Exclusive()).And(cpus)
		if !has.Empty() && (owner == "" || other.FullName() < owner) {
			owner = other.FullName()
		}
		both = both.Union(has)
	}
	if !d.fresh && d.base.listed > 0 {
		for id, c := range d.base.containers {
			if _, changed := d.containers[id]; !changed {
				note(c)
			}
		}
	}
	for _, c := range d.containers {
		note(c)
	}
	return both, owner
}

// besideKubelet reports whether the kubelet gave CPUs to other pods: what it
// tells of a container's CPUs is then what it left for all, and pools keep to
// that, too.
func (d *draft) besideKubelet(p *Pod) bool {
	some, _ := d.kubelets(p, d.machine.Online())
	return !some.Empty()
}

// reseat brings pools in line where the kubelet has given CPUs to somebody by this
// event, or has them back: what it told of others' CPUs counts only as long.
func (d *draft) reseat(p *Plan) {
	if !d.policy.Place || !d.pinsMoved() {
		return
	}
	pod, ctr := p.Pod, p.Container
	for _, id := range slices.Concat(d.base.Containers(), d.order) {
		c := d.container(id)
		if c == nil || !c.Alive() || c.Pristine.CPU.CPUs == "" || c.Seat.Pool == placement.Own || slices.Contains(p.Reseated, id) {
			continue
		}
		if p.Pod = d.pod(c.PodID); p.Pod == nil || p.Pod.Stopped || d.within(p.Pod, c) == c.Seat.Within {
			continue
		}
		n := *c
		d.settle(p, &n, nil)
		if ctr == nil || ctr.ID != id {
			p.Reseated = append(p.Reseated, id)
			continue
		}
		ctr = &n
	}
	p.Pod, p.Container = pod, ctr
}

// regive has containers own what the kubelet gave them and somebody else had: an
// owner's end may be told after the word that gives its CPUs to another.
func (d *draft) regive(p *Plan) {
	if !d.policy.KubeletGives() || !d.freed() {
		return
	}
	pod, ctr := p.Pod, p.Container
	for _, id := range slices.Concat(d.base.Containers(), d.order) {
		c := d.container(id)
		if c == nil || !c.Alive() || c.Seat.Pool == placement.Own || slices.Contains(p.Changed, id) {
			continue
		}
		if p.Pod = d.pod(c.PodID); p.Pod == nil || p.Pod.Stopped {
			continue
		}
		cpus := d.pinned(p.Pod, c.Name, &c.Pristine)
		if cpus.Empty() || d.takenFrom(c.Key, cpus) != nil {
			continue
		}
		n := *c
		d.settle(p, &n, nil)
		p.Reseated = append(p.Reseated, id)
	}
	p.Pod, p.Container = pod, ctr
}

// freed reports whether somebody owns less than before by this event, or has
// ended who owns by the kubelet's word: others may have what is its then.
func (d *draft) freed() bool {
	return d.moved || slices.ContainsFunc(d.order, func(id string) bool {
		was, now := d.base.containers[id], d.containers[id]
		return was != nil && was.Alive() && was.Seat.Pool == placement.Own && (now == nil || !now.Alive())
	})
}

// pinsMoved reports whether the kubelet has given CPUs by this event or has them
// back, as far as nobody owns them by the ledger.
func (d *draft) pinsMoved() bool {
	pins := func(pod *Pod, c *Container) topology.Set {
		if c == nil || !c.Alive() || c.Seat.Pool == placement.Own {
			return topology.Set{}
		}
		return d.pinned(pod, c.Name, &c.Pristine)
	}
	return slices.ContainsFunc(d.order, func(id string) bool {
		now, was := d.containers[id], d.base.containers[id]
		var before, after topology.Set
		if was != nil {
			before = pins(d.base.pods[was.PodID], was)
		}
		if now != nil {
			after = pins(d.pod(now.PodID), now)
		}
		return before != after
	})
}
