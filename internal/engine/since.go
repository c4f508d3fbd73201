package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// recordedAndCurrentRequests returns two sums of the requests of a pod's live containers at a Synchronize. was has the
// requests in the containers' records. now has the requests that follow from the records and the runtime's report.
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
			case rec.StampedPristine != nil && !b.podOwnsCPUs(): // if the pod owns CPUs, each resize was checked when it happened
				first = rec.StampedPristine
			}
		}
		before, after = append(before, first), append(after, &asked)
	}
	return sumOf(before), sumOf(after)
}

// podOwnsCPUs reports whether, at a Synchronize, containers of the pod own CPUs, or owned CPUs until they ended.
func (b *recovery) podOwnsCPUs() bool {
	return b.facts.OwnedCPUs[b.p.Pod.UID] != "" || slices.ContainsFunc(b.n.listedContainers[b.p.Pod.ID], func(c *lifecycle.Container) bool {
		return b.facts.Records[c.ID].CPUs != ""
	})
}

// recountResizedPods marks the sum of resources of each pod as possibly outdated, at a Synchronize. If the containers
// of a pod together request less than in their records, it also computes the pod's sum again.
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

// endedRequestsOf returns, by container name, the requests of a pod's ended containers at a Synchronize. A container
// has ended if its last attempt has ended. The requests of ended containers still count for the pod's sum.
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

// dropUnpaidCPUs removes CPUs from rec, a container's record, if the current requests no longer pay for these CPUs. It
// removes CPUs only if the requests became smaller after the record was written.
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
	owned := b.n.machine.KnownCPUsOf(rec.CPUs)
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
	switch quota := reported.Resources.CPU.Quota.V; { // the quota in the record is from before the resize
	case b.p.Intent.QoS == intent.Guaranteed && b.c.Pristine.CPU.Quota.V > 0:
		b.c.Pristine.CPU.Quota = lifecycle.Some(sharesMilli(&b.c.Pristine) * int64(b.c.Pristine.CPU.Period.Or(defaultPeriod)) / milliOfCPU)
	case quota > 0:
		b.c.Pristine.CPU.Quota = lifecycle.Some(quota)
	}
}

// cpusAfterResize returns the CPUs that a container with a record owns. Usually these are the CPUs in the record. But
// if the container was resized after the record was written, they are the CPUs in the kernel's cpuset, or in the
// runtime's copy (the cpuset that the runtime stores). At a resize, the agent changes the kernel's cpuset first and the
// runtime's copy a moment later. So one of the two lists contains the other list. And one of them has as many CPUs as
// the container requests now; CPUs that were offline are possibly missing in it.
//
// If the last resize was refused, the container owns another number of CPUs than it requests. Then the quota helps: if
// a container requested a quota and the runtime's copy has none, the container owned CPUs when the copy was written. In
// this case, the cpuset in the copy has the CPUs that the container owned then. The kernel's cpuset has those of these
// CPUs that the container has not lost since.
func (b *recovery) cpusAfterResize(reported *lifecycle.Container, rec *Record) string {
	was, is := &rec.Pristine.CPU, &reported.Resources.CPU
	t := ownershipSources{machine: b.n.machine, usableCPUs: b.n.usableCPUs(b.p), recordCPUs: b.n.machine.KnownCPUsOf(rec.CPUs), copyCPUs: b.n.machine.KnownCPUsOf(is.CPUs)}
	list, read := b.facts.KernelCPUs[reported.ID]
	t.kernelCPUs = b.n.machine.OnlineOf(list)
	if is.Quota.V > 0 && was.Quota.V > 0 && b.losesQuota(t.recordCPUs) {
		if t.copyCPUs = (topology.Set{}); read && list == "" { // the kernel allows the container all CPUs of its pool
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
	t.podCPUs, t.wholeNodes = b.n.machine.KnownCPUsOf(b.facts.OwnedCPUs[b.p.Pod.UID]), b.p.Intent.NUMA.V.Exclusive
	return t.ownedCPUs(rec.CPUs, is.CPUs)
}

// ownershipSources are the sources from which a recovery computes which CPUs a container owns.
type ownershipSources struct {
	machine *topology.Machine
	// recordCPUs are the CPUs in the container's record. copyCPUs are the CPUs in the cpuset that the runtime stores
	// (the runtime's copy). kernelCPUs are the CPUs that the kernel gives to the container. usableCPUs are the CPUs
	// that its pod can use now. podCPUs are the CPUs that its pod is known to own.
	recordCPUs, copyCPUs, kernelCPUs, usableCPUs, podCPUs topology.Set
	// quotaRemoved means that the runtime stores no quota although the container requested one, because the agent
	// removes the quota of a container that owns CPUs.
	quotaRemoved bool
	// wholeNodes means that the pod requests whole NUMA nodes.
	wholeNodes bool
	// candidateCounts are numbers of CPUs; the container possibly requested one of these numbers. requestedCount is the
	// most likely of these numbers.
	candidateCounts []int
	requestedCount  int
}

// matchesRecord reports whether three conditions are met: The usable CPUs of copyCPUs are those of recordCPUs, or
// copyCPUs has no usable CPUs. kernelCPUs are the usable CPUs of recordCPUs, or kernelCPUs is empty. recordCPUs
// contains all of copyCPUs.
func (t *ownershipSources) matchesRecord() bool {
	was, is := t.recordCPUs.And(t.usableCPUs), t.copyCPUs.And(t.usableCPUs)
	return (is.Empty() || is == was) && (t.kernelCPUs.Empty() || t.kernelCPUs == was) && t.recordCPUs.Contains(t.copyCPUs)
}

// ownedCPUs returns the CPUs that a container owns, as a kernel list: the CPUs of its record, of the runtime's copy or
// of the kernel, or a set that is computed from these. record and copied are the lists in the record and in the copy.
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
		// The container possibly runs on only some of its CPUs, because no agent ran when its other CPUs came online
		// again.
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
		// The container owns fewer CPUs than it requests, because the agent refused more CPUs at the last resize.
		return copied
	}
	return record
}

// ownedInPool handles a container that seems to run in a pool, because all CPUs that it owns were offline. It returns
// the CPUs that the container owns: the CPUs in its record. But if the container now requests fewer CPUs and at least
// that many of its CPUs are offline, the result has only the requested number of offline CPUs. If the pod requests
// whole NUMA nodes, the container keeps all CPUs.
func (t *ownershipSources) ownedInPool(record string) string {
	if offline := t.recordCPUs.Minus(t.usableCPUs); !t.wholeNodes && t.requestedCount > 0 && t.requestedCount < t.recordCPUs.Len() && t.requestedCount <= offline.Len() {
		return t.machine.Format(lowestCPUs(offline, t.requestedCount))
	}
	return record
}

// fillToCount returns a set whose number of CPUs is one of candidateCounts. The set has the CPUs in the parameter has
// and none, all or some of the container's offline CPUs. If there is no such set, fillToCount returns an empty set.
func (t *ownershipSources) fillToCount(has topology.Set) topology.Set {
	offline := t.recordCPUs.Union(t.copyCPUs).Minus(t.usableCPUs)
	switch both := has.Union(offline); {
	case has.Empty():
	case slices.Contains(t.candidateCounts, has.Len()):
		return has
	case slices.Contains(t.candidateCounts, both.Len()):
		return both
	case t.requestedCount > has.Len() && t.requestedCount < both.Len() && t.recordCPUs.Contains(has): // a container loses offline CPUs first
		return has.Union(lowestCPUs(offline, t.requestedCount-has.Len()))
	}
	return topology.Set{}
}

// pickCPUCount returns the most likely of several candidates for the number of requested CPUs; 0 if there is none. For
// a resized container it returns the last candidate that is not 0. For another container it returns recorded, the
// number of CPUs in the record, if that is a candidate, and otherwise the first candidate that is not 0.
func pickCPUCount(candidates []int, resized bool, recorded int) int {
	if !resized && slices.Contains(candidates, recorded) {
		return recorded
	}
	n := 0
	for _, a := range candidates {
		if a > 0 && (n == 0 || resized) {
			n = a
		}
	}
	return n
}

// possibleCPUCounts returns the numbers of CPUs that a container possibly requested, according to the runtime's report.
// If the container requests no CPUs of its own, there are none. If the number follows from the pod's sum of resources,
// there are two numbers, because the known sum is possibly older than a resize. The first number follows from the known
// sum, and the second from the requests of the pod's containers together.
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

// restoreQuota corrects the quota in now. This quota comes from the record of a container that owns CPUs, so it is too
// old if the CPU request changed after the record was written. In a Guaranteed pod, restoreQuota computes the quota
// from the CPU request, because the limit equals the request. In other pods, it raises the quota to the CPU request if
// the quota is lower, because a limit is never below the request.
func restoreQuota(now, recorded *lifecycle.Resources, qos intent.QoS) {
	if now.CPU.Shares.V == recorded.CPU.Shares.V || now.CPU.Quota.V <= 0 || sharesMilli(now) == 0 {
		return
	}
	least := sharesMilli(now) * int64(now.CPU.Period.Or(defaultPeriod)) / milliOfCPU
	if qos == intent.Guaranteed || now.CPU.Quota.V < least {
		now.CPU.Quota = lifecycle.Some(least)
	}
}
