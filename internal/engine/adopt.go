package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// recovery finds out what was decided for a container that already runs.
type recovery struct {
	n     *view
	facts *Facts
	p     *Pod
	c     *Container
}

// find returns what the container's record says, updated by what happened since, or
// a substitute if it has none; nil for a new container.
func (b *recovery) find(reported *lifecycle.Container) *Record {
	if q, ok := b.facts.Distrusted[reported.ID]; ok {
		b.c.decided.distrust = []lifecycle.Problem{q}
	}
	rec, recorded := b.facts.Records[reported.ID]
	if reported.Unread != "" {
		b.c.Unread = Unread{Why: reported.Unread, Unasked: !recorded || b.p.Pod.CgroupParent == ""}
		b.c.decided.distrust = append(slices.Clip(b.c.decided.distrust), unread(reported.Unread))
	}
	_, found := b.facts.Kernel[reported.ID]
	switch {
	case recorded:
		b.recorded(reported, &rec)
		return &rec
	case b.c.Unread.Why != "":
		return b.adoptUnread()
	case found:
		return b.adopt()
	}
	return nil
}

// recorded restores a container from its record.
func (b *recovery) recorded(reported *lifecycle.Container, rec *Record) {
	c, stamped := b.c, rec.CPUs
	if c.Unread.Why == "" {
		rec.CPUs = b.untaken(reported, b.resizedSince(reported, rec))
	} else {
		rec.CPUs = b.unreadSince(rec)
	}
	c.decided.touched = rec.Pristine.CPU.CPUs != c.Pristine.CPU.CPUs
	c.Stamp.CPUs = b.n.machine.PlacesOf(rec.CPUs) // an offline CPU will come back
	c.Pristine = askedSince(rec, &reported.Resources)
	if had, now := rec.Pristine.CPU.Quota, c.Pristine.CPU.Quota; rec.CPUs != "" && !rec.Late && (slices.Contains(rec.Ours, lifecycle.CPUQuota) || had.V > 0 && now.V < 0) {
		c.Pristine.CPU.Quota = had // an owner's is lifted, also when its CPUs come back
		requota(&c.Pristine, &rec.Pristine, b.p.Intent.QoS)
	}
	b.paidSince(reported, rec)
	c.Stamp.Stale = rec.CPUs != stamped
	asked := c.Pristine
	c.Kept, c.Stamp.decidedBefore = rec.Kept, true // its record lacks the values that are ours from now on
	c.Pristine, c.Unplaced = asked, false
	c.decided.proposed = carried(rec.Ours, &reported.Resources, &rec.Pristine)
}

// untaken removes from the CPUs that a container claims those that a younger container
// of another pod owns by its record and runs on: the younger one could get them only
// after the older one gave them up. A CPU that the container itself runs on stays its own.
func (b *recovery) untaken(reported *lifecycle.Container, claim string) string {
	if claim == "" {
		return claim
	}
	claimed := b.n.machine.PlacesOf(claim)
	left := claimed
	for pod, all := range b.n.listed {
		for _, c := range all {
			owned := b.facts.Records[c.ID].CPUs
			if owned == "" || pod == reported.PodID || c.State == lifecycle.StateStopped || c.CreatedAt <= reported.CreatedAt {
				continue
			}
			if runs := b.n.machine.OnlineOf(b.facts.Kernel[c.ID]); b.n.machine.PlacesOf(owned).Contains(runs) {
				left = left.Minus(runs)
			}
		}
	}
	if left = left.Union(claimed.And(b.n.machine.OnlineOf(b.facts.Kernel[reported.ID]))); left == claimed {
		return claim
	}
	return b.n.machine.Format(left)
}

// adopt restores a container without a record: what the kernel gives it now is what
// was decided before. If it has the CPUs its pod was assigned, it owns them; if it
// was narrowed otherwise, it did not get them.
//
// If it carries a record that is not trusted, as after the loss of the key, an
// agent gave it the CPUs in the runtime's copy.
func (b *recovery) adopt() *Record {
	has, whole := b.n.machine.OnlineOf(b.facts.Kernel[b.c.ID]), b.n.machine.Online()
	_, ours := b.facts.Distrusted[b.c.ID]
	if ours {
		b.c.Pristine.CPU.CPUs = ""
	}
	if b.n.terms(b.p).Chooses {
		// It keeps its memory nodes, whether this agent or another program set them:
		// its memory is there, and a release moves no page.
		b.c.Mems = b.c.Pristine.CPU.Mems
	}
	if ours && has.Empty() { // it may use the whole machine: it owns no CPUs
		has = whole
	}
	whole = b.p.and(whole)
	narrowed := has != whole
	if b.c.Pristine.CPU.CPUs != "" {
		whole = b.p.and(b.n.machine.OnlineOf(b.c.Pristine.CPU.CPUs))
	}
	b.c.decided.touched = !has.Empty() && has != whole || ours
	asked := b.p.unlifted(&b.c.Pristine)
	_, chosen := b.n.asks(b.p, &asked)
	b.adoptHome(has)
	if has.Empty() || !b.p.Intent.CPUs.Said() && !chosen || !b.n.policy.Place {
		return nil
	}
	if b.runsOnOwn(has) && b.n.grantable(b.p, b.c.Key, has) == nil {
		b.c.Stamp.CPUs, b.c.Pristine = has, asked
		return &Record{Kept: lifecycle.Kept{Pristine: b.c.Pristine}, CPUs: b.n.machine.Format(has)}
	}
	// Where the agent chooses CPUs, only the agent puts a list into the runtime's
	// copy: a container in a pool was refused, whatever the copy says now.
	if !b.c.decided.touched && (!chosen || !narrowed) {
		return nil
	}
	return &Record{Kept: lifecycle.Kept{Pristine: b.c.Pristine, PoolNode: b.c.PoolNode}}
}

// adoptHome finds the NUMA node whose pool a container runs in: its cpuset has no
// CPU of another node.
func (b *recovery) adoptHome(has topology.Set) {
	if !has.Empty() && b.p.Intent.NUMA.Said() {
		b.c.PoolNode = (&seating{n: b.n, p: b.p, c: b.c}).shares(true, has).PoolNode
	}
}

// unlifted are a container's resources with the quota that was lifted because it
// owns CPUs, if another value shows that quota: in a Guaranteed pod the shares do.
func (p *Pod) unlifted(r *lifecycle.Resources) lifecycle.Resources {
	out := *r
	if r.CPU.Quota.V < 0 && p.Intent.QoS == intent.Guaranteed {
		period := int64(r.CPU.Period.Or(defaultPeriod))
		out.CPU.Quota = lifecycle.Some(int64(r.CPU.Shares.V) * period / sharesOfCPU)
	}
	return out
}

// runsOnOwn reports whether a container without a record owns CPUs: the kernel
// gives it the CPUs its pod was assigned, or as many as the agent would have chosen,
// and to no other container. Where owners' quotas are lifted and the runtime's copy has
// that, the copy decides alone.
func (b *recovery) runsOnOwn(has topology.Set) bool {
	if b.p.Intent.CPUs.Said() {
		assigned, err := b.n.machine.ParseCPUs(topology.FormatList(b.p.Intent.CPUs.V))
		return err == nil && assigned == has
	}
	asked := b.p.unlifted(&b.c.Pristine)
	if _, ok := b.n.asks(b.p, &asked); !ok || has.Empty() {
		return false
	}
	quota, lifts := b.c.Pristine.CPU.Quota.V, b.lifts(has)
	if _, ours := b.facts.Distrusted[b.c.ID]; ours && lifts {
		return quota < 0
	}
	if quota > 0 && lifts && b.n.machine.OnlineOf(b.c.Pristine.CPU.CPUs) == has {
		return false // the copy has what was decided, and no quota was lifted
	}
	as := slices.Contains(b.asksByNow(&asked), has.Len())
	if !as && b.p.Intent.NUMA.V.Exclusive { // more than it asks for: all CPUs of NUMA nodes
		all := b.n.machine.Spread(topology.NodeLevel, has).And(b.n.machine.Online()).Minus(b.n.policy.Pools.Reserved)
		as = has.Contains(all) && (quota < 0 || !lifts)
	}
	return as && b.aloneOn(has)
}

// lifts reports whether a container would lose its quota if it owned CPUs.
func (b *recovery) lifts(cpus topology.Set) bool {
	owner := *b.c
	owner.Seat.Seat = placement.Seat{Pool: placement.Own, Owned: cpus}
	values, _ := b.n.propose(b.p, &owner)
	return slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == lifecycle.CPUQuota && v.Int < 0 })
}

// aloneOn reports whether no other pod's container runs on some CPUs, except
// containers that they may have been lent to.
func (b *recovery) aloneOn(has topology.Set) bool {
	lent := b.n.terms(b.p).Lent
	for pod, all := range b.n.listed {
		other := b.n.pod(pod)
		if other == nil || other.Pod.UID == b.p.Pod.UID || lent && other.Intent.Class.V == intent.Reclaimed {
			continue
		}
		for _, c := range all {
			if c.State != lifecycle.StateStopped && !b.n.machine.OnlineOf(cmp.Or(b.facts.Kernel[c.ID], b.facts.Runs[c.ID])).And(has).Empty() {
				return false
			}
		}
	}
	return true
}

// reportedOnOwn is runsOnOwn for a container as the runtime reports it.
func (b *recovery) reportedOnOwn(c *lifecycle.Container) bool {
	list, known := b.facts.Kernel[c.ID]
	if c.Unread != "" {
		list, known = b.facts.Runs[c.ID]
	}
	p := b.n.pod(c.PodID)
	if _, recorded := b.facts.Records[c.ID]; !known || recorded || p == nil {
		return false
	}
	at := &Container{ID: c.ID, Name: c.Name, PodID: c.PodID, Key: placement.Key{PodUID: p.Pod.UID, Container: c.Name}, Life: c.State, Kept: lifecycle.Kept{Pristine: pristine(&c.Resources)}}
	b = &recovery{n: b.n, facts: b.facts, p: p, c: at}
	if c.Unread != "" {
		return b.unreadOwns(b.n.machine.OnlineOf(list))
	}
	return b.runsOnOwn(b.n.machine.OnlineOf(list))
}
