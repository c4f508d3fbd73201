package engine

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// undescribedProblem is the problem of a pod or container that the runtime cannot describe.
func undescribedProblem(why string) lifecycle.Problem {
	return lifecycle.Problem{
		Value: intent.Printable(why), Warning: true, Reason: "the runtime lists it but cannot report what was requested for it",
		Then: "it keeps its CPUs, the agent decides nothing else for it, and asks the runtime again",
	}
}

// adoptUndescribed restores a container from the CPUs that the kernel gives it, if it has no
// record and the runtime cannot describe it. The container keeps CPUs that its pod is known to
// own or was assigned, or that show only this container runs on if the agent chooses CPUs. Otherwise
// other containers could get these CPUs while it runs on them.
func (b *recovery) adoptUndescribed() *Record {
	has := b.n.machine.OnlineOf(b.facts.Runs[b.c.ID])
	b.c.Undescribed.bound = has
	if has.Empty() || !b.n.policy.Place {
		return &Record{RecordFields: lifecycle.RecordFields{Unplaced: !b.n.policy.Place}}
	}
	if b.undescribedOwns(has) && b.n.grantable(b.p, b.c.Key, has) == nil {
		b.c.Stamp.CPUs, b.c.Undescribed.bound = has, topology.Set{}
		return &Record{CPUs: b.n.machine.Format(has)}
	}
	b.adoptPoolNode(has)
	return &Record{RecordFields: lifecycle.RecordFields{PoolNode: b.c.PoolNode}}
}

// undescribedSince returns the CPUs of an owner that the runtime cannot describe and that may
// have been resized after its record was written. They are the CPUs that it runs on, if no other
// container runs on them.
func (b *recovery) undescribedSince(rec *Record) string {
	recorded, runs := b.n.machine.PlacesOf(rec.CPUs), b.n.machine.OnlineOf(b.facts.Runs[b.c.ID])
	if rec.Late || recorded.Empty() || runs.Empty() || runs == recorded.And(b.n.machine.Online()) || b.n.listed == nil || !b.onlyUserOf(runs) {
		return rec.CPUs
	}
	return b.n.machine.Format(runs.Union(recorded.Minus(b.n.machine.Online())))
}

// undescribedOwns reports whether a container that the runtime cannot describe should count as
// the owner of the CPUs that it runs on.
func (b *recovery) undescribedOwns(has topology.Set) bool {
	if known := b.n.machine.OnlineOf(b.facts.Grants[b.p.Pod.UID]); !known.Empty() {
		return known.Contains(has)
	}
	if b.p.Intent.CPUs.IsSet() {
		assigned, err := b.n.machine.ParseCPUs(topology.FormatList(b.p.Intent.CPUs.V))
		return err == nil && assigned == has
	}
	if b.n.listed == nil || b.n.terms(b.p).Pays == placement.Nothing || has == b.n.machine.Online() || has == b.p.Within {
		return false
	}
	spec, named := b.p.Spec.Container(b.c.Name)
	return (!named || spec.Requests[lifecycle.ResourceCPU]/milliOfCPU == int64(has.Len())) && b.onlyUserOf(has)
}

// describedAgain handles a container that the runtime can describe again. It decides the
// container as a Synchronize at the agent's start does.
func (d *draft) describedAgain(c *Container, reported *lifecycle.Container) {
	if _, owns := d.n.ledger.Of(c.Key); owns {
		d.n.ledger.write(func(l *placement.Ledger) { l.Drop(c.Key) })
		d.n.ledger.moved = true
	}
	d.n.put(c.ID, nil)
	d.create(reported, lifecycle.StateRunning)
}
