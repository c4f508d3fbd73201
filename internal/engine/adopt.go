package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// recovery reconstructs the decision about a container that already runs. c is nil if a call concerns a whole
// pod or all pods.
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

// findRecord returns the container's record with all later changes applied, or a substitute if the container
// has no record. It returns nil for a new container.
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

// restoreRecorded restores a container from its record.
func (b *recovery) restoreRecorded(reported *lifecycle.Container, rec *Record) {
	c, stamped := b.c, rec.CPUs
	if c.Undescribed.Why == "" {
		rec.CPUs = b.withoutYoungerOwners(reported, b.cpusAfterResize(reported, rec))
	} else {
		rec.CPUs = b.undescribedCPUs(rec)
	}
	c.decision.cpusetLimited = rec.Pristine.CPU.CPUs != c.Pristine.CPU.CPUs
	c.Stamp.CPUs = b.n.machine.PlacesOf(rec.CPUs) // includes offline CPUs, which may come online again
	c.Pristine = requestFromRecord(rec, &reported.Resources)
	if had, now := rec.Pristine.CPU.Quota, c.Pristine.CPU.Quota; rec.CPUs != "" && !rec.FromCheckpoint && (slices.Contains(rec.Managed, lifecycle.CPUQuota) || had.V > 0 && now.V < 0) {
		c.Pristine.CPU.Quota = had // the agent removed the quota because the container owns CPUs, so the runtime's copy has no quota
		restoreQuota(&c.Pristine, &rec.Pristine, b.p.Intent.QoS)
	}
	b.dropUnpaidCPUs(reported, rec)
	c.Stamp.Stale = rec.CPUs != stamped
	asked := c.Pristine
	c.RecordFields, c.Stamp.decidedBefore = rec.RecordFields, true // if hooks decide more fields than the record has, noteManaged marks the record as stale
	c.Pristine, c.NeverPlaced = asked, false
	endFinishedColdStart(c, b.facts.KernelMems[c.ID])
	c.decision.proposed = valuesInCopy(rec.Managed, &reported.Resources, &rec.Pristine)
}

// withoutYoungerOwners removes CPUs from claim, the CPUs that a container's record claims. It removes the CPUs on
// which a younger container of another pod runs, if the younger container's record has these CPUs. The younger
// container could get them only after the older container had lost them. CPUs on which the older container itself
// runs stay.
func (b *recovery) withoutYoungerOwners(reported *lifecycle.Container, claim string) string {
	if claim == "" {
		return claim
	}
	claimed := b.n.machine.PlacesOf(claim)
	left := claimed
	for pod, all := range b.n.listedContainers {
		for _, c := range all {
			owned := b.facts.Records[c.ID].CPUs
			if owned == "" || pod == reported.PodID || c.State == lifecycle.StateStopped || c.CreatedAt <= reported.CreatedAt {
				continue
			}
			if runs := b.n.machine.OnlineOf(b.facts.KernelCPUs[c.ID]); b.n.machine.PlacesOf(owned).Contains(runs) {
				left = left.Minus(runs)
			}
		}
	}
	if left = left.Union(claimed.And(b.n.machine.OnlineOf(b.facts.KernelCPUs[reported.ID]))); left == claimed {
		return claim
	}
	return b.n.machine.Format(left)
}

// adopt restores a container without a trusted record from the CPUs that the kernel gives it now. The container
// owns these CPUs if ownsRunningCPUs reports so. If it runs on fewer CPUs than others for another reason, it owns
// no CPUs.
//
// If the container has a record that is not trusted, for example because the key was lost, an agent wrote the CPUs
// in the runtime's copy of the container's request.
func (b *recovery) adopt() *Record {
	has, whole := b.n.machine.OnlineOf(b.facts.KernelCPUs[b.c.ID]), b.n.machine.Online()
	_, ours := b.facts.UntrustedRecords[b.c.ID]
	if ours {
		b.c.Pristine.CPU.CPUs = ""
	}
	if b.n.terms(b.p).ChoosesCPUsOrMemory {
		// The container keeps its memory nodes, whichever program set them, because its pages are on these
		// nodes, and a release moves no pages.
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
	if has.Empty() || !b.p.Intent.CPUs.IsSet() && !chosen || !b.n.policy.Place {
		return nil
	}
	if b.ownsRunningCPUs(has) && b.n.checkGrantable(b.p, b.c.Key, has) == nil {
		b.c.Stamp.CPUs, b.c.Pristine = has, asked
		return &Record{RecordFields: lifecycle.RecordFields{Pristine: b.c.Pristine}, CPUs: b.n.machine.Format(has)}
	}
	// If the agent chooses CPUs, only the agent writes a list of CPUs into the runtime's copy. So the agent
	// refused CPUs to a container in a pool, even if the copy has a list of CPUs now.
	if !b.c.decision.cpusetLimited && (!chosen || !limited) {
		return nil
	}
	return &Record{RecordFields: lifecycle.RecordFields{Pristine: b.c.Pristine, PoolNode: b.c.PoolNode}}
}

// adoptPoolNode finds the NUMA node of a container's pool: the node that has all CPUs of its
// cpuset.
func (b *recovery) adoptPoolNode(has topology.Set) {
	if !has.Empty() && b.p.Intent.NUMA.IsSet() {
		b.c.PoolNode = (&placer{n: b.n, p: b.p, c: b.c}).choosePool(true, has).PoolNode
	}
}

// withOriginalQuota returns a container's resources with their original quota, if the agent removed it because the
// container owns CPUs. It computes the quota of a container in a Guaranteed pod from the CPU shares. It cannot
// restore the quota of other containers.
func (p *Pod) withOriginalQuota(r *lifecycle.Resources) lifecycle.Resources {
	out := *r
	if r.CPU.Quota.V < 0 && p.Intent.QoS == intent.Guaranteed {
		period := int64(r.CPU.Period.Or(defaultPeriod))
		out.CPU.Quota = lifecycle.Some(int64(r.CPU.Shares.V) * period / sharesOfCPU)
	}
	return out
}

// ownsRunningCPUs reports whether a container without a record owns the CPUs that it runs on. It owns them if a
// scheduler assigned these CPUs to its pod, or if the agent would have chosen as many CPUs and no other container runs
// on them. If the agent removes the quota of owners and an agent wrote the values in the runtime's copy, the container
// owns CPUs only if the copy has no quota.
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
		return quota < 0
	}
	if quota > 0 && losesQuota && b.n.machine.OnlineOf(b.c.Pristine.CPU.CPUs) == has {
		return false // the copy has the values that the agent decided, and the agent removed no quota
	}
	as := slices.Contains(b.possibleCPUCounts(&asked), has.Len())
	if !as { // an owner of whole NUMA nodes may have more CPUs than it requests
		as = b.areWholeNodes(has) && (quota < 0 || !losesQuota)
	}
	return as && b.onlyUserOf(has)
}

// losesQuota reports whether a container would lose its quota if it owned CPUs.
func (b *recovery) losesQuota(cpus topology.Set) bool {
	owner := *b.c
	owner.Assignment.CPUGroup = placement.CPUGroup{Pool: placement.Exclusive, Owned: cpus}
	values, _ := b.n.propose(b.p, &owner)
	return slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == lifecycle.CPUQuota && v.Int < 0 })
}

// onlyUserOf reports whether no other pod's container runs on these CPUs. If the pod lends its CPUs,
// reclaimed containers do not count.
func (b *recovery) onlyUserOf(has topology.Set) bool {
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

// reportedOwnsCPUs is like ownsRunningCPUs, for a container as the runtime reports it.
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
