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

// grantedCPUs returns the exclusive CPUs that the kubelet's static CPU manager gave to a container. With the
// configuration authority: dra, it returns the CPUs that resource claims give to the container. The kubelet's CPUs come
// from the kubelet's PodResources API if the agent uses this API, otherwise from the runtime's request.
func (n *view) grantedCPUs(p *Pod, container string, requested *lifecycle.Resources, claims *lifecycle.ClaimGrant) topology.Set {
	if p == nil {
		return topology.Set{}
	}
	if t := n.termsOf(p, container, requested, claims); t.NoGrantReason != nil {
		return t.External.CPUs
	}
	return placement.KubeletCPUsByRequest(n.machine, p.Intent, requested)
}

// placeExternal makes a container own the CPUs that the kubelet or resource claims gave it, if the policy lets the
// kubelet or resource claims decide who owns CPUs. Containers in pools lose these CPUs. The container's record does not
// have these CPUs, because the kubelet or the claims report them again after a restart. placeExternal reports whether
// the container owns CPUs.
func (s *placer) placeExternal() bool {
	t := s.termsNow()
	if t.NoGrantReason == nil || !s.n.policy.PlacementOn {
		return false
	}
	cpus := t.External.CPUs
	s.c.OwnsClaimedCPUs = false
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, t.External.Problems...)
	if cpus.Empty() {
		s.endExternalGrant()
		return false
	}
	if taken := s.n.otherOwner(s.c.Key, t.External); taken != nil {
		s.endExternalGrant() // an earlier container of this name possibly had other CPUs
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: "authority", Value: s.n.machine.Format(cpus), Refused: true, Then: "the container owns none of these CPUs",
			Reason: fmt.Sprintf("%s CPUs %s, which %s owns", t.External.SentenceStart, s.n.machine.Format(taken.CPUs), intent.Printable(taken.Owner.Pod)),
		})
		return false
	}
	s.giveCPUs(cpus, t.External.From, t.External.Why)
	s.c.OwnsClaimedCPUs = t.External.From == placement.ByClaims
	s.c.Stamp.CPUs = topology.Set{}
	s.reportUnusable("authority", t.External.Offline, "the container runs on the remaining CPUs of its grant")
	return true
}

// endExternalGrant ends a grant of the kubelet or of resource claims in the ledger that is for the container's key.
func (s *placer) endExternalGrant() {
	if g, owns := s.n.ledger.GrantOf(s.c.Key); owns && placement.IsExternal(g.From) {
		s.n.ledger.dropKey(s.c.Key)
	}
}

// otherOwner checks whether a container with the given key can own the CPUs in g, which the kubelet or resource claims
// gave it. If another container owns some of these CPUs, otherOwner returns an OwnedError. But if the kubelet or
// resource claims also gave the other container its CPUs, and the other container is not alive, otherOwner ends the
// other container's grant and returns nil.
func (n *view) otherOwner(key placement.Key, g placement.ExternalGrant) *placement.OwnedError {
	for {
		var taken *placement.OwnedError
		err := n.ledger.Check(key, g.CPUs)
		if g.From == placement.ByClaims {
			err = n.ledger.CheckClaims(placement.Grant{Key: key, CPUs: g.CPUs, Claims: g.Claims})
		}
		if !errors.As(err, &taken) {
			return nil
		}
		runs := func(c *Container) bool { return c.Key == taken.Owner.Key && c.Alive() }
		// A pod's grant without a container name is for a container that had ended when the agent restarted, and that
		// the kubelet will create again.
		given := placement.IsExternal(taken.Owner.From) || g.From == placement.ByClaims && taken.Owner.Key.Container == ""
		if !given || slices.ContainsFunc(n.changedContainers(true), runs) {
			return taken
		}
		n.ledger.dropKey(taken.Owner.Key)
	}
}

// externallyOwned returns the part of cpus that the kubelet, or resource claims under authority: dra, gave to
// containers of pods other than p. owner is the first of these pods by name. CPUs with an owner in the ledger do not
// count.
func (n *view) externallyOwned(p *Pod, cpus topology.Set) (both topology.Set, owner string) {
	for _, c := range n.changedContainers(n.base.containersWithCPUList > 0) {
		if c.Pristine.CPU.CPUs == "" && c.Claims == nil || !c.Alive() || c.Key.PodUID == p.Pod.UID || c.Assignment.Pool == placement.Exclusive {
			continue
		}
		other := n.pod(c.PodID)
		has := n.grantedCPUs(other, c.Name, &c.Pristine, c.Claims).Minus(n.ledger.OwnedCPUs()).And(cpus)
		if !has.Empty() && (owner == "" || other.FullName() < owner) {
			owner = other.FullName()
		}
		both = both.Union(has)
	}
	return both, owner
}

// updatePools decides containers in pools again if they may use other CPUs now. It does nothing if, in this event, the
// kubelet or resource claims neither granted CPUs nor ended such a grant.
func (d *draft) updatePools() {
	if d.n.policy.PlacementOn && d.grantedCPUsChanged() {
		d.placeAgainWhere(func(p *Pod, c *Container) bool {
			return c.Pristine.CPU.CPUs != "" && !slices.Contains(d.plan.ReassignedContainers, c.ID) && d.n.allowedPoolCPUs(p, c) != c.Assignment.AllowedCPUs
		})
	}
}

// regrant makes containers own the CPUs that the kubelet or resource claims gave them, if another container owned these
// CPUs in the ledger until now. This happens because the runtime can report the end of the earlier owner after the new
// grant.
func (d *draft) regrant() {
	if d.n.policy.othersDecideCPUs() && d.freesCPUs() {
		d.placeAgainWhere(func(p *Pod, c *Container) bool {
			if slices.Contains(d.plan.Changed, c.ID) {
				return false
			}
			g := d.n.termsOf(p, c.Name, &c.Pristine, c.Claims).External
			return !g.CPUs.Empty() && d.n.otherOwner(c.Key, g) == nil
		})
	}
}

// placeAgainWhere decides some containers again: all live containers in pools for which the function meets returns
// true.
func (d *draft) placeAgainWhere(meets func(*Pod, *Container) bool) {
	for _, id := range slices.Concat(d.n.base.Containers(), d.n.changeOrder) {
		c := d.n.container(id)
		if c == nil || !c.Alive() || c.Assignment.Pool == placement.Exclusive {
			continue
		}
		if p := d.n.pod(c.PodID); p == nil || p.Stopped || !meets(p, c) {
			continue
		}
		now := *c
		d.decideContainer(&now, nil, nil)
		if about := d.plan.Container; about != nil && about.ID == id {
			d.plan.Container = &now
		} else {
			d.plan.ReassignedContainers = append(d.plan.ReassignedContainers, id)
		}
	}
}

// freesCPUs reports whether CPUs have possibly become free in this event, because the grants in the ledger changed or
// because a container that owned CPUs ended.
func (d *draft) freesCPUs() bool {
	return d.n.ledger.grantsChanged || slices.ContainsFunc(d.n.changeOrder, func(id string) bool {
		was, now := d.n.base.containers[id], d.n.containers[id]
		return was != nil && was.Alive() && was.Assignment.Pool == placement.Exclusive && (now == nil || !now.Alive())
	})
}

// grantedCPUsChanged reports whether, in this event, the kubelet or resource claims granted CPUs to a container
// that does not own them in the ledger, or whether such a grant ended.
func (d *draft) grantedCPUsChanged() bool {
	pins := func(pod func(id string) *Pod, c *Container) topology.Set {
		if c == nil || !c.Alive() || c.Assignment.Pool == placement.Exclusive {
			return topology.Set{}
		}
		return d.n.grantedCPUs(pod(c.PodID), c.Name, &c.Pristine, c.Claims)
	}
	return slices.ContainsFunc(d.n.changeOrder, func(id string) bool {
		return pins(d.n.base.Pod, d.n.base.containers[id]) != pins(d.n.pod, d.n.containers[id])
	})
}
