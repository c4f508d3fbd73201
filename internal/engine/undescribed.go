package engine

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// undescribedProblem returns the problem for a pod or container that the runtime cannot describe. why is the
// runtime's error.
func undescribedProblem(why string) lifecycle.Problem {
	return lifecycle.Problem{
		Value: intent.Printable(why), Warning: true, Reason: "the runtime lists this pod or container but cannot report what was requested for it",
		Then: "its CPUs do not change; the agent decides nothing else for it and asks the runtime again",
	}
}

// adoptUndescribed restores a container from the CPUs that the kernel gives it, if it has no record and the
// runtime cannot describe it. The container owns these CPUs if undescribedOwnsCPUs reports so. Otherwise other
// containers could get the CPUs while this container runs on them.
func (b *recovery) adoptUndescribed() *Record {
	has := b.n.machine.OnlineOf(b.facts.RunningCPUs[b.c.ID])
	b.c.Undescribed.kernelCPUs = has
	if has.Empty() || !b.n.policy.Place {
		return &Record{RecordFields: lifecycle.RecordFields{NeverPlaced: !b.n.policy.Place}}
	}
	if b.undescribedOwnsCPUs(has) && b.n.checkGrantable(b.p, b.c.Key, has) == nil {
		b.c.Stamp.CPUs, b.c.Undescribed.kernelCPUs = has, topology.Set{}
		return &Record{CPUs: b.n.machine.Format(has)}
	}
	b.adoptPoolNode(has)
	return &Record{RecordFields: lifecycle.RecordFields{PoolNode: b.c.PoolNode}}
}

// undescribedCPUs returns the CPUs of an owner that the runtime cannot describe, as a kernel list. The owner
// may have been resized after its record was written. So the result has the CPUs on which it runs, if no
// other container runs on them, and otherwise the recorded CPUs.
func (b *recovery) undescribedCPUs(rec *Record) string {
	recorded, runs := b.n.machine.PlacesOf(rec.CPUs), b.n.machine.OnlineOf(b.facts.RunningCPUs[b.c.ID])
	if rec.FromCheckpoint || recorded.Empty() || runs.Empty() || runs == recorded.And(b.n.machine.Online()) || b.n.listedContainers == nil || !b.onlyUserOf(runs) {
		return rec.CPUs
	}
	return b.n.machine.Format(runs.Union(recorded.Minus(b.n.machine.Online())))
}

// undescribedOwnsCPUs reports whether a container that the runtime cannot describe should own the CPUs on which
// it runs (has). If the pod is known to own CPUs, these must contain has. If CPUs were assigned to the pod, they
// must equal has. Otherwise the container should own them if the agent chooses CPUs for the pod, no other container
// runs on has, has is not all CPUs of the node or of the pod's cgroup, and the pod's spec, if known, requests as many
// CPUs.
func (b *recovery) undescribedOwnsCPUs(has topology.Set) bool {
	if known := b.n.machine.OnlineOf(b.facts.OwnedCPUs[b.p.Pod.UID]); !known.Empty() {
		return known.Contains(has)
	}
	if b.p.Intent.CPUs.IsSet() {
		assigned, err := b.n.machine.ParseCPUs(topology.FormatList(b.p.Intent.CPUs.V))
		return err == nil && assigned == has
	}
	if b.n.listedContainers == nil || b.n.terms(b.p).CountBasis == placement.CountNone || has == b.n.machine.Online() || has == b.p.AllowedCPUs {
		return false
	}
	spec, named := b.p.Spec.Container(b.c.Name)
	return (!named || spec.Requests[lifecycle.ResourceCPU]/milliOfCPU == int64(has.Len())) && b.onlyUserOf(has)
}

// decideDescribedContainer decides a container that the runtime can describe again, as a Synchronize decides it.
func (d *draft) decideDescribedContainer(c *Container, reported *lifecycle.Container) {
	if _, owns := d.n.ledger.GrantOf(c.Key); owns {
		d.n.ledger.write(func(l *placement.Ledger) { l.Drop(c.Key) })
		d.n.ledger.grantsChanged = true
	}
	d.n.put(c.ID, nil)
	d.createContainer(reported, lifecycle.StateRunning)
}
