package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// adopt makes do without a record: what the kernel gives a container now is
// what was decided before. One with the CPUs its pod was assigned owns them; one
// that was narrowed otherwise did not get them.
//
// Where it carries a record that is not trusted, as after the loss of the key, an
// agent gave it what the runtime's copy says of CPUs.
func (d *draft) adopt(p *Pod, c *Container, f Facts) *Record {
	has, whole := d.machine.OnlineOf(f.Kernel[c.ID]), d.machine.Online()
	_, ours := f.Distrusted[c.ID]
	if ours {
		c.Pristine.CPU.CPUs = ""
	}
	if d.terms(p).Chooses {
		// Whoever decided them, they stay its memory nodes, its limit counts on them,
		// and giving values back moves no page.
		c.Mems = c.Pristine.CPU.Mems
	}
	if ours && has.Empty() { // bounded no more than the machine: it was given no CPUs to own
		has = whole
	}
	bounded := !p.Within.Empty()
	if bounded {
		whole = whole.And(p.Within)
	}
	narrowed := has != whole
	if c.Pristine.CPU.CPUs != "" {
		if whole = d.machine.OnlineOf(c.Pristine.CPU.CPUs); bounded {
			whole = whole.And(p.Within)
		}
	}
	c.touched = !has.Empty() && has != whole || ours
	asked := d.unlifted(p, &c.Pristine)
	_, chosen := d.asks(p, &asked)
	d.adoptHome(p, c, has)
	if has.Empty() || !p.Intent.CPUs.Said() && !chosen || !d.policy.Place {
		return nil
	}
	if d.runsOnOwn(p, c, has, f) && d.grantable(p, c.Key, has) == nil {
		c.Born, c.Pristine = has, asked
		return &Record{Kept: lifecycle.Kept{Pristine: c.Pristine}, CPUs: d.machine.Format(has)}
	}
	// Where the agent chooses, nobody but it gives the runtime's copy a list: one in
	// a pool was refused, whatever the copy says by now.
	if !c.touched && (!chosen || !narrowed) {
		return nil
	}
	return &Record{Kept: lifecycle.Kept{Pristine: c.Pristine, Home: c.Home}}
}

// adoptHome finds the NUMA node whose pool a container runs in: none of the others'
// CPUs are in its cpuset.
func (d *draft) adoptHome(p *Pod, c *Container, has topology.Set) {
	if !has.Empty() && p.Intent.NUMA.Said() {
		c.Home = d.shares(p, c, true, has).Home
	}
}

// unlifted are a container's resources with the quota that was lifted because it
// owns CPUs, as far as another value tells it: in a Guaranteed pod the shares do.
func (d *draft) unlifted(p *Pod, r *lifecycle.Resources) lifecycle.Resources {
	out := *r
	if r.CPU.Quota.V < 0 && p.Intent.QoS == intent.Guaranteed {
		period := int64(r.CPU.Period.Or(defaultPeriod))
		out.CPU.Quota = lifecycle.Some(int64(r.CPU.Shares.V) * period / sharesOfCPU)
	}
	return out
}

// runsOnOwn reports whether the kernel gives a container without a record the CPUs
// its pod was assigned, or as many as the agent would have chosen and to nobody else:
// it owns them. Where owners' quotas are lifted, and an agent had the runtime's copy
// say so, that alone tells.
func (d *draft) runsOnOwn(p *Pod, c *Container, has topology.Set, f Facts) bool {
	if p.Intent.CPUs.Said() {
		assigned, err := d.machine.ParseCPUs(topology.FormatList(p.Intent.CPUs.V))
		return err == nil && assigned == has
	}
	asked := d.unlifted(p, &c.Pristine)
	if _, ok := d.asks(p, &asked); !ok || has.Empty() {
		return false
	}
	quota, lifts := c.Pristine.CPU.Quota.V, d.lifts(p, c, has)
	if _, ours := f.Distrusted[c.ID]; ours && lifts {
		return quota < 0
	}
	if quota > 0 && lifts && d.machine.OnlineOf(c.Pristine.CPU.CPUs) == has {
		return false // the copy has what was decided, and no quota was lifted
	}
	as := slices.Contains(d.asksByNow(p, p.Pod.ID, &asked), has.Len())
	if !as && p.Intent.NUMA.V.Exclusive { // more than it asks for: all there is of NUMA nodes
		all := d.machine.Spread(topology.NodeLevel, has).And(d.machine.Online()).Minus(d.policy.Pools.Reserved)
		as = has.Contains(all) && (quota < 0 || !lifts)
	}
	return as && d.aloneOn(p, has, f)
}

// lifts reports whether a container would be without a quota if it owned CPUs.
func (d *draft) lifts(p *Pod, c *Container, cpus topology.Set) bool {
	owner := *c
	owner.Seat = placement.Seat{Pool: placement.Own, Owned: cpus}
	values, _ := d.propose(p, &owner)
	return slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == lifecycle.CPUQuota && v.Int < 0 })
}

// aloneOn reports whether no other pod's container runs on some CPUs, but for those
// they may have been lent to.
func (d *draft) aloneOn(p *Pod, has topology.Set, f Facts) bool {
	lent := d.terms(p).Lent
	for pod, all := range d.listed {
		other := d.pod(pod)
		if other == nil || other.Pod.UID == p.Pod.UID || lent && other.Intent.Class.V == intent.Reclaimed {
			continue
		}
		for _, c := range all {
			if c.State != lifecycle.StateStopped && !d.machine.OnlineOf(cmp.Or(f.Kernel[c.ID], f.Runs[c.ID])).And(has).Empty() {
				return false
			}
		}
	}
	return true
}

// sitsOnOwn is runsOnOwn of a container as it is told.
func (d *draft) sitsOnOwn(c *lifecycle.Container, f Facts) bool {
	list, told := f.Kernel[c.ID]
	if c.Unread != "" {
		list, told = f.Runs[c.ID]
	}
	p := d.pod(c.PodID)
	if _, recorded := f.Records[c.ID]; !told || recorded || p == nil {
		return false
	}
	at := &Container{ID: c.ID, Name: c.Name, PodID: c.PodID, Key: placement.Key{PodUID: p.Pod.UID, Container: c.Name}, Life: c.State, Kept: lifecycle.Kept{Pristine: pristine(&c.Resources)}}
	if c.Unread != "" {
		return d.unreadOwns(p, at, d.machine.OnlineOf(list), f)
	}
	return d.runsOnOwn(p, at, d.machine.OnlineOf(list), f)
}
