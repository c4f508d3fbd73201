package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// recovery has the inputs for reconstructing decisions about containers that already run. c is the container, and p is
// its pod. If a method concerns a whole pod, c is nil. If a method concerns all pods, p is nil, too. n is the state
// with the changes of the event so far. facts are the facts that were gathered for the event.
type recovery struct {
	n     *view
	facts *Facts
	p     *Pod
	c     *Container
}

// containerName returns the container's name; "" if c is nil.
func (b *recovery) containerName() string {
	if b.c == nil {
		return ""
	}
	return b.c.Name
}

// findRecord returns the container's record, corrected by what the runtime and the kernel report now. If a running
// container has no record, findRecord possibly returns a substitute. It returns nil if the container is new, or if the
// engine can decide about the container as if it were new.
func (b *recovery) findRecord(reported *lifecycle.Container) *Record {
	if q, ok := b.facts.UntrustedRecords[reported.ID]; ok {
		b.c.decision.priorProblems = []lifecycle.Problem{q}
	}
	rec, recorded := b.facts.Records[reported.ID]
	if reported.Undescribed != "" {
		b.c.Undescribed = Undescribed{Why: reported.Undescribed, NoRequest: !recorded || b.p.Pod.CgroupParent == ""}
		b.c.decision.priorProblems = append(slices.Clip(b.c.decision.priorProblems), undescribedProblem(reported.Undescribed))
	}
	_, found := b.facts.KernelCPUs[reported.ID]
	former, formerly := b.facts.FormerAgent[reported.ID]
	switch {
	case recorded:
		b.restoreRecorded(reported, &rec)
		return &rec
	case b.c.Undescribed.Why != "":
		return b.adoptUndescribed()
	case formerly:
		return b.restoreFromFormerAgent(former)
	case found:
		return b.adopt()
	}
	return nil
}

// restoreRecorded copies the values in rec, the container's record, to the container. It also sets rec.CPUs to the CPUs
// that the container owns now.
func (b *recovery) restoreRecorded(reported *lifecycle.Container, rec *Record) {
	c, stamped := b.c, rec.CPUs
	if c.Undescribed.Why == "" {
		rec.CPUs = b.withoutYoungerOwners(reported, b.cpusAfterResize(reported, rec))
	} else {
		rec.CPUs = b.undescribedCPUs(rec)
	}
	c.decision.cpusetLimited = rec.Pristine.CPU.CPUs != c.Pristine.CPU.CPUs
	c.Stamp.CPUs = b.n.machine.KnownCPUsOf(rec.CPUs) // includes offline CPUs, which may come online again
	c.Pristine = requestFromRecord(rec, &reported.Resources)
	if had, now := rec.Pristine.CPU.Quota, c.Pristine.CPU.Quota; rec.CPUs != "" && !rec.FromCheckpoint && (slices.Contains(rec.Managed, lifecycle.CPUQuota) || had.V > 0 && now.V < 0) {
		c.Pristine.CPU.Quota = had // the agent removed the quota because the container owns CPUs, so the runtime reports no quota
		restoreQuota(&c.Pristine, &rec.Pristine, b.p.Intent.QoS)
	}
	b.dropUnpaidCPUs(reported, rec)
	c.Stamp.Stale = rec.CPUs != stamped
	asked := c.Pristine
	c.RecordFields, c.Stamp.decidedBefore = rec.RecordFields, true // so that noteManaged can mark the record as stale
	c.Pristine, c.NeverPlaced = asked, false
	endFinishedColdStart(c, b.facts.KernelMems[c.ID])
	c.decision.proposed = valuesInCopy(rec.Managed, &reported.Resources, &rec.Pristine)
}

// withoutYoungerOwners returns the CPUs in recorded, the kernel list of CPUs in a container's record, but without CPUs
// that a younger container of another pod now owns. A younger container owns a CPU if it runs on the CPU and has the
// CPU in its record: then the older container must have lost the CPU before. CPUs on which the older container itself
// runs stay in the result.
func (b *recovery) withoutYoungerOwners(reported *lifecycle.Container, recorded string) string {
	if recorded == "" {
		return recorded
	}
	claimed := b.n.machine.KnownCPUsOf(recorded)
	left := claimed
	for pod, all := range b.n.listedContainers {
		for _, c := range all {
			owned := b.facts.Records[c.ID].CPUs
			if owned == "" || pod == reported.PodID || c.State == lifecycle.StateStopped || c.CreatedAt <= reported.CreatedAt {
				continue
			}
			if runs := b.n.machine.OnlineOf(b.facts.KernelCPUs[c.ID]); b.n.machine.KnownCPUsOf(owned).Contains(runs) {
				left = left.Minus(runs)
			}
		}
	}
	if left = left.Union(claimed.And(b.n.machine.OnlineOf(b.facts.KernelCPUs[reported.ID]))); left == claimed {
		return recorded
	}
	return b.n.machine.Format(left)
}

// adopt makes a record for a container without a trusted record, from the CPUs on which the kernel lets the container
// run now. If these CPUs look like CPUs that an agent gave only to this container, the container owns them. If the
// container owns no CPUs but its cpuset is limited, adopt returns a record without CPUs. Because of this record, the
// engine does not treat the container as new and gives it no CPUs of its own. Otherwise adopt returns nil.
//
// A record may be untrusted because the signing key was lost. Such a record still shows that an agent wrote the list of
// CPUs that the runtime reports for the container, so adopt ignores this list.
func (b *recovery) adopt() *Record {
	has, whole := b.n.machine.OnlineOf(b.facts.KernelCPUs[b.c.ID]), b.n.machine.Online()
	_, ours := b.facts.UntrustedRecords[b.c.ID]
	if ours {
		b.c.Pristine.CPU.CPUs = ""
	}
	if b.n.terms(b.p).ChoosesCPUsOrMemory {
		// The container keeps its memory nodes, because its pages are on these nodes. It does not matter which
		// program set the nodes.
		b.c.Mems = b.c.Pristine.CPU.Mems
	}
	if ours && has.Empty() { // the kernel allows the container all CPUs, so the container owns none
		has = whole
	}
	whole = b.p.allowedOf(whole)
	limited := has != whole
	if b.c.Pristine.CPU.CPUs != "" {
		whole = b.p.allowedOf(b.n.machine.OnlineOf(b.c.Pristine.CPU.CPUs))
	}
	b.c.decision.cpusetLimited = !has.Empty() && has != whole || ours
	asked := b.p.withOriginalQuota(&b.c.Pristine)
	_, chosen := b.n.requestedCPUs(b.p, b.containerName(), &asked)
	b.adoptPoolNode(has)
	if has.Empty() || !b.p.Intent.CPUs.IsSet() && !chosen || !b.n.policy.PlacementOn {
		return nil
	}
	if b.ownsRunningCPUs(has) && b.n.checkGrantable(b.p, b.c.Key, has) == nil {
		b.c.Stamp.CPUs, b.c.Pristine = has, asked
		return &Record{RecordFields: lifecycle.RecordFields{Pristine: b.c.Pristine}, CPUs: b.n.machine.Format(has)}
	}
	// Here the container does not own the CPUs on which it runs. If the agent chooses CPUs for the container (chosen),
	// only an agent writes its cpuset. If that cpuset does not have all CPUs (limited), an earlier agent put the
	// container into a pool and gave it no CPUs of its own.
	if !b.c.decision.cpusetLimited && (!chosen || !limited) {
		return nil
	}
	return &Record{RecordFields: lifecycle.RecordFields{Pristine: b.c.Pristine, PoolNode: b.c.PoolNode}}
}

// adoptPoolNode sets b.c.PoolNode to the NUMA node to which the pool of a running container is bound. This is the node
// that has all CPUs on which the container runs (the set has).
func (b *recovery) adoptPoolNode(has topology.Set) {
	if !has.Empty() && b.p.Intent.NUMA.IsSet() {
		b.c.PoolNode = (&placer{n: b.n, p: b.p, c: b.c}).choosePool(true, has).PoolNode
	}
}

// withOriginalQuota returns a container's resources with the CPU quota that the container requested. The agent removes
// the quota of a container that owns CPUs. In a Guaranteed pod, withOriginalQuota computes the removed quota from the
// CPU shares. In other pods the removed quota cannot be restored, so the resources stay as they are.
func (p *Pod) withOriginalQuota(r *lifecycle.Resources) lifecycle.Resources {
	out := *r
	if r.CPU.Quota.V < 0 && p.Intent.QoS == intent.Guaranteed {
		period := int64(r.CPU.Period.Or(defaultPeriod))
		out.CPU.Quota = lifecycle.Some(int64(r.CPU.Shares.V) * period / sharesOfCPU)
	}
	return out
}

// ownsRunningCPUs reports whether a container without a trusted record owns the CPUs on which it runs (the set has). If
// a scheduler assigned CPUs to the pod, the container owns its CPUs if they are equal to the assigned CPUs. Otherwise
// three conditions must be met: the agent chooses CPUs for the container, the container runs on as many CPUs as it
// requests, and no container of another pod runs on these CPUs. A CPU quota that the runtime reports can show that the
// container owns no CPUs, because an agent removes the quota of a container that owns CPUs.
func (b *recovery) ownsRunningCPUs(has topology.Set) bool {
	if b.p.Intent.CPUs.IsSet() {
		assigned, err := b.n.machine.ParseCPUs(topology.FormatList(b.p.Intent.CPUs.V))
		return err == nil && assigned == has
	}
	asked := b.p.withOriginalQuota(&b.c.Pristine)
	if _, ok := b.n.requestedCPUs(b.p, b.containerName(), &asked); !ok || has.Empty() {
		return false
	}
	quota, losesQuota := b.c.Pristine.CPU.Quota.V, b.losesQuota(has)
	if _, ours := b.facts.UntrustedRecords[b.c.ID]; ours && losesQuota {
		return quota < 0 // an agent wrote the values that the runtime reports
	}
	if quota > 0 && losesQuota && b.n.machine.OnlineOf(b.c.Pristine.CPU.CPUs) == has {
		return false // an agent wrote the list of CPUs that the runtime reports, but did not remove the quota
	}
	as := slices.Contains(b.possibleCPUCounts(&asked), has.Len())
	if !as { // an owner of whole NUMA nodes may have more CPUs than it requests
		as = b.areWholeNodes(has) && (quota < 0 || !losesQuota)
	}
	return as && b.noOtherPodRunsOn(has)
}

// losesQuota reports whether the agent's hooks would remove the container's CPU quota if the container owned the given
// CPUs.
func (b *recovery) losesQuota(cpus topology.Set) bool {
	owner := *b.c
	owner.Assignment.CPUGroup = placement.CPUGroup{Pool: placement.Exclusive, Owned: cpus}
	values, _ := b.n.propose(b.p, &owner)
	return slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == lifecycle.CPUQuota && v.Int < 0 })
}

// noOtherPodRunsOn reports whether no container of another pod runs on the CPUs in the set has. Containers of the class
// Reclaimed do not count if the pod lends its CPUs to them (Lent).
func (b *recovery) noOtherPodRunsOn(has topology.Set) bool {
	lent := b.n.terms(b.p).Lent
	for pod, all := range b.n.listedContainers {
		other := b.n.pod(pod)
		if other == nil || other.Pod.UID == b.p.Pod.UID || lent && other.Intent.Class.V == intent.Reclaimed {
			continue
		}
		for _, c := range all {
			if c.State != lifecycle.StateStopped && !b.n.machine.OnlineOf(cmp.Or(b.facts.KernelCPUs[c.ID], b.facts.RunningCPUs[c.ID])).And(has).Empty() {
				return false
			}
		}
	}
	return true
}

// reportedOwnsCPUs reports whether a container without a record owns the CPUs on which it runs. The container c is from
// the runtime's list. The result is false if the container has a record, or if it is not known on which CPUs the kernel
// lets the container run.
func (b *recovery) reportedOwnsCPUs(c *lifecycle.Container) bool {
	list, known := b.facts.KernelCPUs[c.ID]
	if c.Undescribed != "" {
		list, known = b.facts.RunningCPUs[c.ID]
	}
	p := b.n.pod(c.PodID)
	if _, recorded := b.facts.Records[c.ID]; !known || recorded || p == nil {
		return false
	}
	at := &Container{ID: c.ID, Name: c.Name, PodID: c.PodID, Key: placement.Key{PodUID: p.Pod.UID, Container: c.Name}, Life: c.State, RecordFields: lifecycle.RecordFields{Pristine: pristineResources(&c.Resources)}}
	b = &recovery{n: b.n, facts: b.facts, p: p, c: at}
	if c.Undescribed != "" {
		return b.undescribedOwnsCPUs(b.n.machine.OnlineOf(list))
	}
	return b.ownsRunningCPUs(b.n.machine.OnlineOf(list))
}
