package engine

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// This file is about CPUs that their owner cannot have now: they are offline, or gone
// from its pod's cgroup. The ledger keeps them for it.

// reach are the CPUs that containers of a pod can have at this moment: those that are
// online and in its cgroup. Version 1 takes a CPU that goes offline out of cgroups for
// good.
func (d *draft) reach(p *Pod) topology.Set {
	if p.Within.Empty() {
		return d.machine.Online()
	}
	return d.machine.Online().And(p.Within)
}

// heldBy are the CPUs of a pod: those its containers own, and those kept for them.
func (d *draft) heldBy(p *Pod) topology.Set {
	return d.ledger.OfPod(p.Pod.UID).Union(d.ledger.KeptOfPod(p.Pod.UID))
}

// missing are the CPUs of an owner that are out of its reach. One that is created
// anew has those of its pod, or of the one before it.
func (d *draft) missing(p *Pod, c *Container) topology.Set {
	own := c.Born.Union(d.ledger.Kept(c.Key))
	if c.Born.Empty() && (p.Intent.CPUs.Said() || d.ownsAsOne(p)) {
		own = own.Union(d.ledger.KeptOfPod(p.Pod.UID))
	}
	return own.Minus(d.reach(p))
}

// waitsAnew has a container that is created anew wait for its pod's CPUs, where none of
// them is in its reach: it has them when they are back.
func (d *draft) waitsAnew(p *Pod, c *Container) bool {
	away := d.missing(p, c)
	if _, owns := d.ledger.Of(c.Key); owns || !c.Born.Empty() || away.Empty() || !d.ledger.OfPod(p.Pod.UID).Empty() {
		return false
	}
	c.Born = away
	d.waitFor(p, c, cmp.Or(p.Intent.CPUs.Key, p.Intent.Class.Key, intent.KoordResourceStatus))
	return true
}

// seatAgain resizes an owner that runs in a pool as none of its CPUs is in its reach:
// it may give some up. It owns what its pod was given meanwhile.
func (d *draft) seatAgain(p *Pod, c *Container) bool {
	if p.Intent.CPUs.Said() || c.Born.Empty() || d.ledger.Kept(c.Key).Empty() {
		return false
	}
	g, _ := d.ledger.Of(c.Key)
	if d.resizing != nil {
		g.CPUs = d.resized(p, c, g.CPUs)
	}
	if g.CPUs.Empty() {
		return false
	}
	d.own(p, c, g.CPUs, g.From, "those of its pod")
	return true
}

// waitFor keeps the CPUs of an owner for it of which none is in its reach, unless
// somebody else has come to own one, and reports that.
func (d *draft) waitFor(p *Pod, c *Container, from string) {
	if d.ledger.Check(c.Key, c.Born) != nil {
		c.Born, c.Disowned = topology.Set{}, true
		return
	}
	d.keep(p, c.Key, c.Born, from)
	d.sayAway(c, from, c.Born, "it runs in a shared pool")
}

// sayAway reports CPUs of an owner that it cannot have now.
func (d *draft) sayAway(c *Container, key string, cpus topology.Set, then string) {
	for _, q := range []struct {
		cpus       topology.Set
		why, until string
	}{
		{cpus.Minus(d.machine.Online()), "these CPUs, which it owns, are offline", "has them again when they are back"},
		{
			cpus.And(d.machine.Online()), "these CPUs, which it owns, are not in the cgroup of its pod: cgroup version 1 takes a CPU that goes offline out of all cgroups for good",
			"has them again once somebody has written them into cpuset.cpus of the cgroups above its container and the agent is started anew",
		},
	} {
		if !q.cpus.Empty() {
			c.Trouble = append(c.Trouble, lifecycle.Problem{
				Key: key, Value: intent.Printable(d.machine.Format(q.cpus)), Warning: true, Reason: q.why, Then: then + " and " + q.until,
			})
		}
	}
}

// stays reports whether an owner can go on with what of its CPUs is in its reach.
func (d *draft) stays(p *Pod, old *Container) bool {
	left := d.ownedBy(old).And(d.reach(p))
	return !left.Empty() && d.grantable(p, old.Key, left) == nil
}

// first returns the lowest n of some CPUs.
func first(cpus topology.Set, n int) topology.Set {
	var out topology.Set
	for i := range cpus.All() {
		if out.Len() < n {
			out.Add(i)
		}
	}
	return out
}

// withOffline adds to what a container has the CPUs of its own that it cannot have
// now, as they are offline.
func (d *draft) withOffline(c *Container, have topology.Set) topology.Set {
	return have.Union(d.ledger.Kept(c.Key))
}

// keepAll has a key own those of its CPUs that are in its pod's reach, and keeps the others for it.
func (d *draft) keepAll(pod *Pod, key placement.Key, all topology.Set, from string) {
	cpus := all.And(d.reach(pod))
	if d.ledger.Check(key, all) != nil || !cpus.And(d.policy.Pools.Reserved).Empty() {
		return
	}
	if !cpus.Empty() {
		d.grant(d.grantOf(pod, key, cpus, from))
	}
	d.keep(pod, key, all.Minus(cpus), from)
}

// keep has CPUs of an owner that it cannot have now granted to nobody else.
func (d *draft) keep(p *Pod, key placement.Key, cpus topology.Set, from string) {
	if d.ledger.Kept(key) != cpus {
		d.write().Keep(d.grantOf(p, key, cpus, from))
		d.moved = true
	}
}
