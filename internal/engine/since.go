package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// requestsSinceRecord returns, at a Synchronize, the sum of the requests of a pod's containers in their
// records, and the sum of their requests now.
func (b *recovery) requestsSinceRecord() (was, now lifecycle.Resources) {
	var before, after []*lifecycle.Resources
	for _, reported := range b.n.listed[b.p.Pod.ID] {
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
			case rec.StampedPristine != nil && !b.podOwns(): // the requests of owners were checked when they were resized
				first = rec.StampedPristine
			}
		}
		before, after = append(before, first), append(after, &asked)
	}
	return sumOf(before), sumOf(after)
}

// podOwns reports whether containers of a pod own CPUs at a Synchronize, or owned CPUs before they ended.
func (b *recovery) podOwns() bool {
	return b.facts.Grants[b.p.Pod.UID] != "" || slices.ContainsFunc(b.n.listed[b.p.Pod.ID], func(c *lifecycle.Container) bool {
		return b.facts.Records[c.ID].CPUs != ""
	})
}

// accountSince updates the sums of pods' resources at a Synchronize. It recounts the sum of a pod if a
// container was resized after its record was written.
func (b *recovery) accountSince() {
	for id, p := range b.n.pods {
		n := *p
		n.sumOutdated, n.ended = true, b.endedParts(id)
		podRecovery := &recovery{n: b.n, facts: b.facts, p: p}
		if was, now := podRecovery.requestsSinceRecord(); lowersCPU(&was, &now) {
			n = *n.withRecountedSum(&was, &now, &now, b.n.endedSum(&n))
			n.sumOutdated = true
		}
		b.n.pods[id] = &n
	}
}

// endedParts returns, by name, the requests of a pod's containers whose last attempt has ended at a
// Synchronize. They still count for the pod's sum.
func (b *recovery) endedParts(podID string) map[string]*lifecycle.Resources {
	last := map[string]*lifecycle.Container{}
	for _, c := range b.n.listed[podID] {
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
	if len(p.ended) == 0 {
		return &lifecycle.Resources{}
	}
	ended := maps.Clone(p.ended)
	for _, c := range n.containersOf(p.Pod.ID) {
		if c.Alive() {
			delete(ended, c.Name)
		}
	}
	sum := sumOf(slices.Collect(maps.Values(ended)))
	return &sum
}

// dropUnpaid removes CPUs from a container's record that its request no longer pays for. It does so only if
// the container was resized after the record was written.
func (b *recovery) dropUnpaid(reported *lifecycle.Container, rec *Record) {
	if rec.FromCheckpoint || rec.CPUs == "" || !b.n.ignoresBase {
		return
	}
	was, now := b.requestsSinceRecord()
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
	case b.p.Intent.NUMA.V.Exclusive && ok && a.n > 0:
	default:
		n := b.p.paidCPUs(&b.c.Pristine).CPUs
		if ok && a.pod {
			n, _ = b.p.paidAtResize(&now)
		}
		if n < owned.Len() && b.n.terms(b.p).Chooses {
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

// resizedSince returns the CPUs that a recovered container owns. They come from its record. If a resize is
// newer than the record, they come from the CPUs on which it runs, or from the runtime's copy. The kernel got
// the new list first and the copy a moment later, so one list contains the other. One of the lists must match
// the container's current request, with or without its offline CPUs.
//
// If the last resize was refused, the container owns another number of CPUs than it requests. Only owners run
// without the quota that they requested. So a copy without a quota has the CPUs that the container owned, and
// the kernel's list lacks the CPUs that it gave up since.
func (b *recovery) resizedSince(reported *lifecycle.Container, rec *Record) string {
	was, is := &rec.Pristine.CPU, &reported.Resources.CPU
	t := ownershipSources{machine: b.n.machine, online: b.n.usableCPUs(b.p), recorded: b.n.machine.PlacesOf(rec.CPUs), copied: b.n.machine.PlacesOf(is.CPUs)}
	list, read := b.facts.Kernel[reported.ID]
	t.kernel = b.n.machine.OnlineOf(list)
	if is.Quota.V > 0 && was.Quota.V > 0 && b.losesQuota(t.recorded) {
		if t.copied = (topology.Set{}); read && list == "" { // the container runs on the CPUs of its pool
			t.kernel = t.online
		}
	}
	if rec.FromCheckpoint || t.recorded.Empty() || b.p.Intent.CPUs.IsSet() || t.matchesRecord() && t.online.Contains(t.recorded) {
		return rec.CPUs
	}
	t.quotaRemoved = is.Quota.V < 0 && was.Quota.V > 0 && !t.copied.Empty()
	asks := b.p.withOriginalQuota(&reported.Resources)
	if b.n.termsOf(b.p, b.containerName(), &asks, b.c.Claims).SharesFraction && (t.copied.Contains(t.recorded.And(t.online)) || t.kernel.Contains(t.recorded.And(t.online))) {
		return rec.CPUs // the lists also have CPUs that the container shares
	}
	t.candidates = b.possibleCPUCounts(&asks)
	t.requestedCount = pickCPUCount(t.candidates, is.Shares.V != was.Shares.V, t.recorded.Len())
	t.held, t.wholeNodes = b.n.machine.PlacesOf(b.facts.Grants[b.p.Pod.UID]), b.p.Intent.NUMA.V.Exclusive
	return t.ownedCPUs(rec.CPUs, is.CPUs)
}

// ownershipSources are the sources from which a recovery finds which CPUs a container owns.
type ownershipSources struct {
	machine *topology.Machine
	// recorded are the CPUs in the container's record, copied the CPUs in the runtime's copy, and kernel the
	// CPUs that the kernel gives it. online are the CPUs that it could use now. held are the CPUs that its
	// pod is known to own.
	recorded, copied, kernel, online, held topology.Set
	// quotaRemoved means that the runtime's copy lacks the requested quota, as it does for owners.
	quotaRemoved bool
	// wholeNodes means that the pod requests whole NUMA nodes.
	wholeNodes bool
	// candidates are the numbers of CPUs that the container may have requested. requestedCount is the most
	// likely one.
	candidates     []int
	requestedCount int
}

// matchesRecord reports whether the runtime's copy and the kernel have the CPUs of the record, as far as they
// have CPUs.
func (t *ownershipSources) matchesRecord() bool {
	was, is := t.recorded.And(t.online), t.copied.And(t.online)
	return (is.Empty() || is == was) && (t.kernel.Empty() || t.kernel == was) && t.recorded.Contains(t.copied)
}

// ownedCPUs returns the CPUs that a container owns, as a kernel list: the CPUs of its record, of the
// runtime's copy, of the kernel, or a set that follows from these.
func (t *ownershipSources) ownedCPUs(record, copied string) string {
	was, is, same := t.recorded.And(t.online), t.copied.And(t.online), t.matchesRecord()
	if !t.quotaRemoved && (was.Empty() || t.copied.Empty() && !t.recorded.Contains(t.kernel)) {
		return t.ownedInPool(record)
	}
	if !t.copied.Empty() && !t.copied.Contains(t.kernel) && (is.Empty() || !t.kernel.Contains(is)) {
		t.kernel = topology.Set{}
	}
	whole := t.requestedCount == 0 || t.requestedCount >= t.recorded.Len() || t.wholeNodes
	if same && whole || t.held.Contains(t.recorded) && was.Contains(t.kernel.Union(is)) {
		// The container runs on a part of its CPUs, because no agent ran when the others came online again.
		return record
	}
	switch running, copies := t.fillToCount(t.kernel), t.fillToCount(is); {
	case !running.Empty():
		return t.machine.Format(running)
	case !copies.Empty():
		return t.machine.Format(copies)
	case t.quotaRemoved && was.Empty() && t.requestedCount == t.recorded.Len() && t.recorded.Contains(t.copied):
		// All CPUs of the container are offline, and it requests as many as its record has. The copy lacks
		// those that were offline when the container was created.
		return record
	case t.quotaRemoved && !t.kernel.Empty() && t.copied.Contains(t.kernel):
		return t.machine.Format(t.kernel.Union(t.copied.Minus(t.online)))
	case t.quotaRemoved, len(t.candidates) > 0 && !is.Empty() && is.Len() < slices.Max(t.candidates) && (was.Contains(is) || is.Contains(was)):
		// The container owns fewer CPUs than it requests, because a later increase was refused.
		return copied
	}
	return record
}

// ownedInPool returns the CPUs of an owner that may run in a pool because all its CPUs are offline. If it now
// requests fewer CPUs, the result has as many offline CPUs as it requests. Otherwise the result has the CPUs
// of its record. An owner of whole NUMA nodes keeps all of its CPUs when it requests fewer.
func (t *ownershipSources) ownedInPool(record string) string {
	if offline := t.recorded.Minus(t.online); !t.wholeNodes && t.requestedCount > 0 && t.requestedCount < t.recorded.Len() && t.requestedCount <= offline.Len() {
		return t.machine.Format(lowestCPUs(offline, t.requestedCount))
	}
	return record
}

// fillToCount adds offline CPUs of the container to a set, so that the set has a number of CPUs that the
// container may have requested. If that is impossible, it returns an empty set.
func (t *ownershipSources) fillToCount(has topology.Set) topology.Set {
	offline := t.recorded.Union(t.copied).Minus(t.online)
	switch both := has.Union(offline); {
	case has.Empty():
	case slices.Contains(t.candidates, has.Len()):
		return has
	case slices.Contains(t.candidates, both.Len()):
		return both
	case t.requestedCount > has.Len() && t.requestedCount < both.Len() && t.recorded.Contains(has): // an owner gives up offline CPUs first
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
	case !a.pod:
		return []int{a.n}
	}
	sum := sumOf(b.n.listedRequests(b.p.Pod.ID, ""))
	return []int{a.n, b.p.paidCPUs(&sum).CPUs}
}

// restoreQuota corrects the quota in an owner's changed request, because the quota of its record is older
// than the change. In a Guaranteed pod the limit equals the request. In other pods it is never below the
// request.
func restoreQuota(now, recorded *lifecycle.Resources, qos intent.QoS) {
	if now.CPU.Shares.V == recorded.CPU.Shares.V || now.CPU.Quota.V <= 0 || sharesMilli(now) == 0 {
		return
	}
	least := sharesMilli(now) * int64(now.CPU.Period.Or(defaultPeriod)) / milliOfCPU
	if qos == intent.Guaranteed || now.CPU.Quota.V < least {
		now.CPU.Quota = lifecycle.Some(least)
	}
}
