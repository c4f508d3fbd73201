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
func (n *view) pinned(p *Pod, container string, requested *lifecycle.Resources) topology.Set {
	if p == nil {
		return topology.Set{}
	}
	if t := n.termsOf(p, container, requested); t.Elsewhere != nil {
		return t.Given.CPUs
	}
	return placement.Pinned(n.machine, p.Intent, requested)
}

// seatKubelets has a container own what the kubelet gave it, where the kubelet has
// the say. Its CPUs are taken from all others and it is itself left alone. They are
// not put on record: they are the kubelet's to tell, after a restart as well.
func (s *seating) seatKubelets() bool {
	t := s.n.termsOf(s.p, s.c.Name, &s.c.Pristine)
	if t.Elsewhere == nil || !s.n.policy.Place {
		return false
	}
	cpus := t.Given.CPUs
	s.c.Found.Problems = append(s.c.Found.Problems, t.Given.Problems...)
	if cpus.Empty() {
		if g, owns := s.n.ledger.Of(s.c.Key); owns && g.From == placement.ByKubelet {
			s.n.ledger.dropKey(s.c.Key)
		}
		return false
	}
	if taken := s.n.takenFrom(s.c.Key, cpus); taken != nil {
		s.c.Found.Problems = append(s.c.Found.Problems, lifecycle.Problem{
			Key: "authority", Value: s.n.machine.Format(cpus), Refused: true, Then: "it owns none of them",
			Reason: fmt.Sprintf("the kubelet gave it CPUs %s that %s owns", s.n.machine.Format(taken.CPUs), intent.Printable(taken.Owner.Pod)),
		})
		return false
	}
	s.own(cpus, placement.ByKubelet, t.Given.Why)
	s.c.Stamp.CPUs = topology.Set{}
	s.reportAway("authority", t.Given.Away, "it runs on those that are left")
	return true
}

// takenFrom returns who else owns some of CPUs that the kubelet gave to a
// container, nil for nobody. Who had them by the kubelet's word and does not run
// any more has lost them by this one.
func (n *view) takenFrom(key placement.Key, cpus topology.Set) *placement.Taken {
	for {
		var taken *placement.Taken
		if !errors.As(n.ledger.Check(key, cpus), &taken) {
			return nil
		}
		runs := func(c *Container) bool { return c.Key == taken.Owner.Key && c.Alive() }
		if taken.Owner.From != placement.ByKubelet || slices.ContainsFunc(n.everyone(true), runs) {
			return taken
		}
		n.ledger.dropKey(taken.Owner.Key)
	}
}

// kubelets returns which of these CPUs the kubelet gave to containers of other
// pods, and a pod that has some. What somebody owns already is the ledger's.
func (n *view) kubelets(p *Pod, cpus topology.Set) (both topology.Set, owner string) {
	for _, c := range n.everyone(n.base.listed > 0) {
		if c.Pristine.CPU.CPUs == "" || !c.Alive() || c.Key.PodUID == p.Pod.UID || c.Seat.Pool == placement.Own {
			continue
		}
		other := n.pod(c.PodID)
		has := n.pinned(other, c.Name, &c.Pristine).Minus(n.ledger.Exclusive()).And(cpus)
		if !has.Empty() && (owner == "" || other.FullName() < owner) {
			owner = other.FullName()
		}
		both = both.Union(has)
	}
	return both, owner
}

// regroup brings pools in line where the kubelet has given CPUs to somebody by this
// event, or has them back: what it told of others' CPUs counts only as long.
func (d *draft) regroup() {
	if d.n.policy.Place && d.pinsMoved() {
		d.seatAnew(func(p *Pod, c *Container) bool {
			return c.Pristine.CPU.CPUs != "" && !slices.Contains(d.plan.Reseated, c.ID) && d.n.within(p, c) != c.Seat.Within
		})
	}
}

// regrant has containers own what the kubelet gave them and somebody else had: an
// owner's end may be told after the word that gives its CPUs to another.
func (d *draft) regrant() {
	if d.n.policy.KubeletGives() && d.freed() {
		d.seatAnew(func(p *Pod, c *Container) bool {
			if slices.Contains(d.plan.Changed, c.ID) {
				return false
			}
			cpus := d.n.pinned(p, c.Name, &c.Pristine)
			return !cpus.Empty() && d.n.takenFrom(c.Key, cpus) == nil
		})
	}
}

// seatAnew seats those containers anew that share a pool and that something is to be
// done for.
func (d *draft) seatAnew(due func(*Pod, *Container) bool) {
	for _, id := range slices.Concat(d.n.base.Containers(), d.n.order) {
		c := d.n.container(id)
		if c == nil || !c.Alive() || c.Seat.Pool == placement.Own {
			continue
		}
		if p := d.n.pod(c.PodID); p == nil || p.Stopped || !due(p, c) {
			continue
		}
		now := *c
		d.decideContainer(&now, nil, nil)
		if about := d.plan.Container; about != nil && about.ID == id {
			d.plan.Container = &now
		} else {
			d.plan.Reseated = append(d.plan.Reseated, id)
		}
	}
}

// freed reports whether somebody owns less than before by this event, or has
// ended who owns by the kubelet's word: others may have what is its then.
func (d *draft) freed() bool {
	return d.n.ledger.moved || slices.ContainsFunc(d.n.order, func(id string) bool {
		was, now := d.n.base.containers[id], d.n.containers[id]
		return was != nil && was.Alive() && was.Seat.Pool == placement.Own && (now == nil || !now.Alive())
	})
}

// pinsMoved reports whether the kubelet has given CPUs by this event or has them
// back, as far as nobody owns them by the ledger.
func (d *draft) pinsMoved() bool {
	pins := func(pod func(id string) *Pod, c *Container) topology.Set {
		if c == nil || !c.Alive() || c.Seat.Pool == placement.Own {
			return topology.Set{}
		}
		return d.n.pinned(pod(c.PodID), c.Name, &c.Pristine)
	}
	return slices.ContainsFunc(d.n.order, func(id string) bool {
		return pins(d.n.base.Pod, d.n.base.containers[id]) != pins(d.n.pod, d.n.containers[id])
	})
}
