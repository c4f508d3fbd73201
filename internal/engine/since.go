package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// recordedAndCurrentRequests returns two sums of the requests of a pod's live containers at a Synchronize: was by the
// containers' records, and now by the runtime's report.
func (b *recovery) recordedAndCurrentRequests() (was, now lifecycle.Resources) {
	var before, after []*lifecycle.Resources
	for _, reported := range b.n.listedContainers[b.p.Pod.ID] {
		if reported.State == lifecycle.StateStopped {
			continue
		}
		asked := reported.Resources
		first := &asked
		if rec, ok := b.facts.Records[reported.ID]; ok {
			asked = requestFromRecord(&rec, &reported.Resources)
			switch first = &asked; {
			case !rec.FromCheckpoint:
				first = &rec.Pristine
			case rec.StampedPristine != nil && !b.podOwnsCPUs(): // the requests of owners were checked when they were resized
				first = rec.StampedPristine
			}
		}
		before, after = append(before, first), append(after, &asked)
	}
	return sumOf(before), sumOf(after)
}

// podOwnsCPUs reports whether containers of a pod own CPUs at a Synchronize, or owned CPUs before they ended.
func (b *recovery) podOwnsCPUs() bool {
	return b.facts.OwnedCPUs[b.p.Pod.UID] != "" || slices.ContainsFunc(b.n.listedContainers[b.p.Pod.ID], func(c *lifecycle.Container) bool {
		return b.facts.Records[c.ID].CPUs != ""
	})
}

// recountResizedPods marks the sums of all pods' resources as outdated, at a Synchronize. It recounts the sum of a pod
// if containers of the pod request less than when their records were written.
func (b *recovery) recountResizedPods() {
	for id, p := range b.n.pods {
		n := *p
		n.sumOutdated, n.endedRequests = true, b.endedRequestsOf(id)
		podRecovery := &recovery{n: b.n, facts: b.facts, p: p}
		if was, now := podRecovery.recordedAndCurrentRequests(); lowersCPU(&was, &now) {
			n = *n.withRecountedSum(&was, &now, &now, b.n.endedSum(&n))
			n.sumOutdated = true
		}
		b.n.pods[id] = &n
	}
}

// endedRequestsOf returns, by container name, the requests of a pod's containers whose last attempt has ended at a
// Synchronize. These requests still count for the pod's sum.
func (b *recovery) endedRequestsOf(podID string) map[string]*lifecycle.Resources {
	last := map[string]*lifecycle.Container{}
	for _, c := range b.n.listedContainers[podID] {
		if o := last[c.Name]; o == nil || o.State == lifecycle.StateStopped && (c.State != lifecycle.StateStopped || c.CreatedAt > o.CreatedAt) {
			last[c.Name] = c
		}
	}
	ended := map[string]*lifecycle.Resources{}
	for name, c := range last {
		if c.State == lifecycle.StateStopped {
			ended[name] = &c.Resources
		}
	}
	return ended
}

// endedSum returns the sum of the requests of a pod's ended containers that were not created again.
func (n *view) endedSum(p *Pod) *lifecycle.Resources {
	if len(p.endedRequests) == 0 {
		return &lifecycle.Resources{}
	}
	ended := maps.Clone(p.endedRequests)
	for _, c := range n.containersOf(p.Pod.ID) {
		if c.Alive() {
			delete(ended, c.Name)
		}
	}
	sum := sumOf(slices.Collect(maps.Values(ended)))
	return &sum
}

// dropUnpaidCPUs removes CPUs from a container's record if the container's request no longer pays for these CPUs. It
// removes CPUs only if the request became smaller after the record was written.
func (b *recovery) dropUnpaidCPUs(reported *lifecycle.Container, rec *Record) {
	if rec.FromCheckpoint || rec.CPUs == "" || !b.n.ignoresBase {
		return
	}
	was, now := b.recordedAndCurrentRequests()
	if !b.p.paidCPUs(b.p.Pod.Resources).Known() {
		was, now = rec.Pristine, b.c.Pristine
	}
	if !lowersCPU(&was, &now) {
		return
	}
	owned := b.n.machine.PlacesOf(rec.CPUs)
	left := owned
	switch a, ok := b.n.requestedCPUs(b.p, b.containerName(), &b.c.Pristine); {
	case b.p.Intent.CPUs.IsSet():
		if b.n.checkPaid(b.p, &now, &b.c.Pristine, owned.Len()) != nil {
			left = topology.Set{}
		}
	case b.p.Intent.NUMA.V.Exclusive && ok && a.count > 0:
	default:
		n := b.p.paidCPUs(&b.c.Pristine).CPUs
		if ok && a.ownedTogether {
			n, _ = b.p.paidAtResize(&now)
		}
		if n < owned.Len() && b.n.terms(b.p).ChoosesCPUsOrMemory {
			have := owned.And(b.n.usableCPUs(b.p))
			left = (&placer{n: b.n, p: b.p, c: b.c}).shrinkTo(have, owned.Minus(have), n)
			left = left.Union(b.c.Stamp.CPUs)
		}
	}
	if left == owned {
		return
	}
	rec.CPUs, b.c.Stamp.CPUs = b.n.machine.Format(left), left
	switch quota := reported.Resources.CPU.Quota.V; { // the record's quota is older than the resize
	case b.p.Intent.QoS == intent.Guaranteed && b.c.Pristine.CPU.Quota.V > 0:
		b.c.Pristine.CPU.Quota = lifecycle.Some(sharesMilli(&b.c.Pristine) * int64(b.c.Pristine.CPU.Period.Or(defaultPeriod)) / milliOfCPU)
	case quota > 0:
		b.c.Pristine.CPU.Quota = lifecycle.Some(quota)
	}
}

// cpusAfterResize returns the CPUs that a recovered container owns. They come from its record. If a resize is
// newer than the record, they come from the CPUs on which it runs, or from the runtime's copy. The kernel got
// the new list first and the copy a moment later, so one list contains the other. One of the lists must match
// the container's current request, with or without its offline CPUs.
//
// If the last resize was refused, the container owns another number of CPUs than it requests. Only owners run
// without the quota that they requested. So a copy without a quota has the CPUs that the container owned, and
// the kernel's list lacks the CPUs that it gave up since.
func (b *recovery) cpusAfterResize(reported *lifecycle.Container, rec *Record) string {
	was, is := &rec.Pristine.CPU, &reported.Resources.CPU
	t := ownershipSources{machine: b.n.machine, usableCPUs: b.n.usableCPUs(b.p), recordCPUs: b.n.machine.PlacesOf(rec.CPUs), copyCPUs: b.n.machine.PlacesOf(is.CPUs)}
	list, read := b.facts.KernelCPUs[reported.ID]
	t.kernelCPUs = b.n.machine.OnlineOf(list)
	if is.Quota.V > 0 && was.Quota.V > 0 && b.losesQuota(t.recordCPUs) {
		if t.copyCPUs = (topology.Set{}); read && list == "" { // the container runs on the CPUs of its pool
			t.kernelCPUs = t.usableCPUs
		}
	}
	if rec.FromCheckpoint || t.recordCPUs.Empty() || b.p.Intent.CPUs.IsSet() || t.matchesRecord() && t.usableCPUs.Contains(t.recordCPUs) {
		return rec.CPUs
	}
	t.quotaRemoved = is.Quota.V < 0 && was.Quota.V > 0 && !t.copyCPUs.Empty()
	asks := b.p.withOriginalQuota(&reported.Resources)
	if b.n.termsOf(b.p, b.containerName(), &asks, b.c.Claims).SharesFraction && (t.copyCPUs.Contains(t.recordCPUs.And(t.usableCPUs)) || t.kernelCPUs.Contains(t.recordCPUs.And(t.usableCPUs))) {
		return rec.CPUs // the lists also have CPUs that the container shares
	}
	t.candidateCounts = b.possibleCPUCounts(&asks)
	t.requestedCount = pickCPUCount(t.candidateCounts, is.Shares.V != was.Shares.V, t.recordCPUs.Len())
	t.podCPUs, t.wholeNodes = b.n.machine.PlacesOf(b.facts.OwnedCPUs[b.p.Pod.UID]), b.p.Intent.NUMA.V.Exclusive
	return t.ownedCPUs(rec.CPUs, is.CPUs)
}

// ownershipSources are the sources from which a recovery computes which CPUs a container owns.
type ownershipSources struct {
	machine *topology.Machine
	// recordCPUs are the CPUs in the container's record, copyCPUs the CPUs in the runtime's copy, and kernelCPUs the
	// CPUs that the kernel gives to the container. usableCPUs are the CPUs that its pod can use now. podCPUs are the
	// CPUs that its pod is known to own.
	recordCPUs, copyCPUs, kernelCPUs, usableCPUs, podCPUs topology.Set
	// quotaRemoved means that the runtime's copy lacks the requested quota, as it does for owners.
	quotaRemoved bool
	// wholeNodes means that the pod requests whole NUMA nodes.
	wholeNodes bool
	// candidateCounts are the numbers of CPUs that the container may have requested. requestedCount is the most likely
	// of these numbers.
	candidateCounts []int
	requestedCount  int
}

// matchesRecord reports whether the runtime's copy and the kernel have the same CPUs as the record. A source without
// CPUs does not count.
func (t *ownershipSources) matchesRecord() bool {
	was, is := t.recordCPUs.And(t.usableCPUs), t.copyCPUs.And(t.usableCPUs)
	return (is.Empty() || is == was) && (t.kernelCPUs.Empty() || t.kernelCPUs == was) && t.recordCPUs.Contains(t.copyCPUs)
}

// ownedCPUs returns the CPUs that a container owns, as a kernel list: the CPUs of its record, of the
// runtime's copy, of the kernel, or a set that follows from these.
func (t *ownershipSources) ownedCPUs(record, copied string) string {
	was, is, same := t.recordCPUs.And(t.usableCPUs), t.copyCPUs.And(t.usableCPUs), t.matchesRecord()
	if !t.quotaRemoved && (was.Empty() || t.copyCPUs.Empty() && !t.recordCPUs.Contains(t.kernelCPUs)) {
		return t.ownedInPool(record)
	}
	if !t.copyCPUs.Empty() && !t.copyCPUs.Contains(t.kernelCPUs) && (is.Empty() || !t.kernelCPUs.Contains(is)) {
		t.kernelCPUs = topology.Set{}
	}
	whole := t.requestedCount == 0 || t.requestedCount >= t.recordCPUs.Len() || t.wholeNodes
	if same && whole || t.podCPUs.Contains(t.recordCPUs) && was.Contains(t.kernelCPUs.Union(is)) {
		// The container runs on a part of its CPUs, because no agent ran when its other CPUs came online again.
		return record
	}
	switch running, copies := t.fillToCount(t.kernelCPUs), t.fillToCount(is); {
	case !running.Empty():
		return t.machine.Format(running)
	case !copies.Empty():
		return t.machine.Format(copies)
	case t.quotaRemoved && was.Empty() && t.requestedCount == t.recordCPUs.Len() && t.recordCPUs.Contains(t.copyCPUs):
		// All CPUs of the container are offline, and it requests as many CPUs as its record has. The copy lacks the
		// CPUs that were offline when the container was created.
		return record
	case t.quotaRemoved && !t.kernelCPUs.Empty() && t.copyCPUs.Contains(t.kernelCPUs):
		return t.machine.Format(t.kernelCPUs.Union(t.copyCPUs.Minus(t.usableCPUs)))
	case t.quotaRemoved, len(t.candidateCounts) > 0 && !is.Empty() && is.Len() < slices.Max(t.candidateCounts) && (was.Contains(is) || is.Contains(was)):
		// The container owns fewer CPUs than it requests, because a later increase was refused.
		return copied
	}
	return record
}

// ownedInPool returns the CPUs of an owner that may run in a pool because all its CPUs are offline. If it now
// requests fewer CPUs, the result has as many offline CPUs as it requests. Otherwise the result has the CPUs
// of its record. An owner of whole NUMA nodes keeps all of its CPUs when it requests fewer.
func (t *ownershipSources) ownedInPool(record string) string {
	if offline := t.recordCPUs.Minus(t.usableCPUs); !t.wholeNodes && t.requestedCount > 0 && t.requestedCount < t.recordCPUs.Len() && t.requestedCount <= offline.Len() {
		return t.machine.Format(lowestCPUs(offline, t.requestedCount))
	}
	return record
}

// fillToCount adds offline CPUs of the container to a set, so that the set has a number of CPUs that the
// container may have requested. If that is impossible, it returns an empty set.
func (t *ownershipSources) fillToCount(has topology.Set) topology.Set {
	offline := t.recordCPUs.Union(t.copyCPUs).Minus(t.usableCPUs)
	switch both := has.Union(offline); {
	case has.Empty():
	case slices.Contains(t.candidateCounts, has.Len()):
		return has
	case slices.Contains(t.candidateCounts, both.Len()):
		return both
	case t.requestedCount > has.Len() && t.requestedCount < both.Len() && t.recordCPUs.Contains(has): // an owner gives up offline CPUs first
		return has.Union(lowestCPUs(offline, t.requestedCount-has.Len()))
	}
	return topology.Set{}
}

// pickCPUCount returns the most likely of the candidates of possibleCPUCounts; 0 if there is none. For a
// container that was not resized it is the number of recorded CPUs, if that is a candidate, and otherwise the
// first candidate. For a resized container it is the last candidate.
func pickCPUCount(asked []int, resized bool, recorded int) int {
	if !resized && slices.Contains(asked, recorded) {
		return recorded
	}
	n := 0
	for _, a := range asked {
		if a > 0 && (n == 0 || resized) {
			n = a
		}
	}
	return n
}

// possibleCPUCounts returns the numbers of CPUs that a container may have requested, by the runtime's report;
// none if the report gives no number. The pod's sum may be older than a resize of the containers. So the sum
// of the containers' requests is a second candidate.
func (b *recovery) possibleCPUCounts(requested *lifecycle.Resources) []int {
	a, ok := b.n.requestedCPUs(b.p, b.containerName(), requested)
	switch {
	case !ok:
		return nil
	case !a.ownedTogether:
		return []int{a.count}
	}
	sum := sumOf(b.n.listedRequests(b.p.Pod.ID, ""))
	return []int{a.count, b.p.paidCPUs(&sum).CPUs}
}

// restoreQuota corrects the quota of an owner whose request changed after its record was written, because the quota
// comes from the record. In a Guaranteed pod the CPU limit equals the CPU request. In other pods the limit is never
// below the request.
func restoreQuota(now, recorded *lifecycle.Resources, qos intent.QoS) {
	if now.CPU.Shares.V == recorded.CPU.Shares.V || now.CPU.Quota.V <= 0 || sharesMilli(now) == 0 {
		return
	}
	least := sharesMilli(now) * int64(now.CPU.Period.Or(defaultPeriod)) / milliOfCPU
	if qos == intent.Guaranteed || now.CPU.Quota.V < least {
		now.CPU.Quota = lifecycle.Some(least)
	}
}
