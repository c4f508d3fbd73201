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
		Then: "the CPUs of this pod or container do not change; the agent decides nothing else for it and asks the runtime again",
	}
}

// adoptUndescribed restores a container that has no record and that the runtime cannot describe. It uses the CPUs that
// the kernel gives to the container. If only this pod seems to use these CPUs (undescribedOwnsCPUs), the container owns
// them. So no other container gets these CPUs while this container runs on them.
func (b *recovery) adoptUndescribed() *Record {
	has := b.n.machine.OnlineOf(b.facts.RunningCPUs[b.c.ID])
	b.c.Undescribed.kernelCPUs = has
	if has.Empty() || !b.n.policy.PlacementOn {
		return &Record{RecordFields: lifecycle.RecordFields{NeverPlaced: !b.n.policy.PlacementOn}}
	}
	if b.undescribedOwnsCPUs(has) && b.n.checkGrantable(b.p, b.c.Key, has) == nil {
		b.c.Stamp.CPUs, b.c.Undescribed.kernelCPUs = has, topology.Set{}
		return &Record{CPUs: b.n.machine.Format(has)}
	}
	b.adoptPoolNode(has)
	return &Record{RecordFields: lifecycle.RecordFields{PoolNode: b.c.PoolNode}}
}

// undescribedCPUs returns, as a kernel list, the CPUs that a container owns. The container has a record, but the
// runtime cannot describe the container. Possibly the container was resized after the record was written. So the result
// has the CPUs on which the container runs, if no container of another pod runs on these CPUs. Otherwise the result has
// the recorded CPUs.
func (b *recovery) undescribedCPUs(rec *Record) string {
	recorded, runs := b.n.machine.KnownCPUsOf(rec.CPUs), b.n.machine.OnlineOf(b.facts.RunningCPUs[b.c.ID])
	if rec.FromCheckpoint || recorded.Empty() || runs.Empty() || runs == recorded.And(b.n.machine.Online()) || b.n.listedContainers == nil || !b.noOtherPodRunsOn(runs) {
		return rec.CPUs
	}
	return b.n.machine.Format(runs.Union(recorded.Minus(b.n.machine.Online())))
}

// undescribedOwnsCPUs reports whether a container that the runtime cannot describe should own the CPUs on which it runs
// (the set has). If the pod is known to own CPUs, the answer is true if the pod's CPUs contain all CPUs in has.
// Otherwise, if a scheduler assigned CPUs to the pod, the answer is true if the assigned CPUs are equal to has.
// Otherwise, all of the following must be true: the agent chooses CPUs for the pod; no container of another pod runs on
// the CPUs in has; has is neither all CPUs of the node nor all CPUs of the pod's cgroup; and if the pod's spec is
// known, the container requests as many CPUs as has contains.
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
	return (!named || spec.Requests[lifecycle.ResourceCPU]/milliOfCPU == int64(has.Len())) && b.noOtherPodRunsOn(has)
}

// decideDescribedContainer decides a container that the runtime could not describe before and can describe now. It
// drops the earlier decision. Then it decides the container as in a Synchronize: from the container's record, or from
// the CPUs on which the container runs.
func (d *draft) decideDescribedContainer(c *Container, reported *lifecycle.Container) {
	if _, owns := d.n.ledger.GrantOf(c.Key); owns {
		d.n.ledger.write(func(l *placement.Ledger) { l.Drop(c.Key) })
		d.n.ledger.grantsChanged = true
	}
	d.n.put(c.ID, nil)
	d.createContainer(reported, lifecycle.StateRunning)
}
