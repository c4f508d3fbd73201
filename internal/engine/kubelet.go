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

// pinned returns the exclusive CPUs that the kubelet's static CPU manager gave to a container;
// empty if none. The source is the PodResources API if the agent uses it, otherwise the
// runtime's request.
func (n *view) pinned(p *Pod, container string, requested *lifecycle.Resources) topology.Set {
	if p == nil {
		return topology.Set{}
	}
	if t := n.termsOf(p, container, requested); t.DecidedElsewhere != nil {
		return t.External.CPUs
	}
	return placement.Pinned(n.machine, p.Intent, requested)
}

// placeByKubelet makes a container own the CPUs that the kubelet gave it, if the kubelet decides
// who owns CPUs. All other containers lose these CPUs. No other value of the container changes.
// Its record does not have the CPUs, because the kubelet reports them again after a restart.
func (s *placer) placeByKubelet() bool {
	t := s.n.termsOf(s.p, s.c.Name, &s.c.Pristine)
	if t.DecidedElsewhere == nil || !s.n.policy.Place {
		return false
	}
	cpus := t.External.CPUs
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, t.External.Problems...)
	if cpus.Empty() {
		if g, owns := s.n.ledger.Of(s.c.Key); owns && g.From == placement.ByKubelet {
			s.n.ledger.dropKey(s.c.Key)
		}
		return false
	}
	if taken := s.n.otherOwner(s.c.Key, cpus); taken != nil {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: "authority", Value: s.n.machine.Format(cpus), Refused: true, Then: "it owns none of them",
			Reason: fmt.Sprintf("the kubelet gave it CPUs %s that %s owns", s.n.machine.Format(taken.CPUs), intent.Printable(taken.Owner.Pod)),
		})
		return false
	}
	s.own(cpus, placement.ByKubelet, t.External.Why)
	s.c.Stamp.CPUs = topology.Set{}
	s.reportAway("authority", t.External.Offline, "it runs on the remaining CPUs of its grant")
	return true
}

// otherOwner returns another owner of CPUs that the kubelet gave to a container; nil if there is
// none. An owner that got them from the kubelet and has ended loses them to this grant.
func (n *view) otherOwner(key placement.Key, cpus topology.Set) *placement.Taken {
	for {
		var taken *placement.Taken
		if !errors.As(n.ledger.Check(key, cpus), &taken) {
			return nil
		}
		runs := func(c *Container) bool { return c.Key == taken.Owner.Key && c.Alive() }
		if taken.Owner.From != placement.ByKubelet || slices.ContainsFunc(n.changedContainers(true), runs) {
			return taken
		}
		n.ledger.dropKey(taken.Owner.Key)
	}
}

// kubeletOwned returns which of these CPUs the kubelet gave to containers of other pods, and
// one such pod. CPUs with an owner in the ledger do not count.
func (n *view) kubeletOwned(p *Pod, cpus topology.Set) (both topology.Set, owner string) {
	for _, c := range n.changedContainers(n.base.listed > 0) {
		if c.Pristine.CPU.CPUs == "" || !c.Alive() || c.Key.PodUID == p.Pod.UID || c.Assignment.Pool == placement.Own {
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

// regroup updates pools if the kubelet granted or took back CPUs in this event. The kubelet's
// grants count only as long as the kubelet reports them.
func (d *draft) regroup() {
	if d.n.policy.Place && d.pinsChanged() {
		d.placeAgainWhere(func(p *Pod, c *Container) bool {
			return c.Pristine.CPU.CPUs != "" && !slices.Contains(d.plan.Reassigned, c.ID) && d.n.within(p, c) != c.Assignment.Within
		})
	}
}

// regrant makes containers own the CPUs that the kubelet gave them while the ledger still had
// another owner. The runtime may report the end of that owner only after the kubelet's grant.
func (d *draft) regrant() {
	if d.n.policy.KubeletGives() && d.freed() {
		d.placeAgainWhere(func(p *Pod, c *Container) bool {
			if slices.Contains(d.plan.Changed, c.ID) {
				return false
			}
			cpus := d.n.pinned(p, c.Name, &c.Pristine)
			return !cpus.Empty() && d.n.otherOwner(c.Key, cpus) == nil
		})
	}
}

// placeAgainWhere places those containers of pools again that meet a condition.
func (d *draft) placeAgainWhere(due func(*Pod, *Container) bool) {
	for _, id := range slices.Concat(d.n.base.Containers(), d.n.order) {
		c := d.n.container(id)
		if c == nil || !c.Alive() || c.Assignment.Pool == placement.Own {
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
			d.plan.Reassigned = append(d.plan.Reassigned, id)
		}
	}
}

// freed reports whether other containers may use more CPUs after this event: a pod or container
// owns fewer CPUs than before, or a container with a kubelet grant has ended.
func (d *draft) freed() bool {
	return d.n.ledger.moved || slices.ContainsFunc(d.n.order, func(id string) bool {
		was, now := d.n.base.containers[id], d.n.containers[id]
		return was != nil && was.Alive() && was.Assignment.Pool == placement.Own && (now == nil || !now.Alive())
	})
}

// pinsChanged reports whether the kubelet granted or took back CPUs in this event that have no
// owner in the ledger.
func (d *draft) pinsChanged() bool {
	pins := func(pod func(id string) *Pod, c *Container) topology.Set {
		if c == nil || !c.Alive() || c.Assignment.Pool == placement.Own {
			return topology.Set{}
		}
		return d.n.pinned(pod(c.PodID), c.Name, &c.Pristine)
	}
	return slices.ContainsFunc(d.n.order, func(id string) bool {
		return pins(d.n.base.Pod, d.n.base.containers[id]) != pins(d.n.pod, d.n.containers[id])
	})
}
