package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// requestsSinceRecord adds up what a pod's containers requested by their records, and what they
// request now, at a Synchronize.
func (b *recovery) requestsSinceRecord() (was, now lifecycle.Resources) {
	var before, after []*lifecycle.Resources
	for _, reported := range b.n.listed[b.p.Pod.ID] {
		if reported.State == lifecycle.StateStopped {
			continue
		}
		asked := reported.Resources
		first := &asked
		if rec, ok := b.facts.Records[reported.ID]; ok {
			asked = askedSince(&rec, &reported.Resources)
			switch first = &asked; {
			case !rec.Late:
				first = &rec.Pristine
			case rec.Stamped != nil && !b.podOwns(): // the requests of owners were checked when they were resized
				first = rec.Stamped
			}
		}
		before, after = append(before, first), append(after, &asked)
	}
	return sumOf(before), sumOf(after)
}

// podOwns reports whether containers of a pod own CPUs at a Synchronize, or owned some before
// they ended.
func (b *recovery) podOwns() bool {
	return b.facts.Grants[b.p.Pod.UID] != "" || slices.ContainsFunc(b.n.listed[b.p.Pod.ID], func(c *lifecycle.Container) bool {
		return b.facts.Records[c.ID].CPUs != ""
	})
}

// accountSince updates the pods' sums at a Synchronize: it recounts pods with a container that
// was resized after its record was written.
func (b *recovery) accountSince() {
	for id, p := range b.n.pods {
		n := *p
		n.sumOld, n.ended = true, b.endedParts(id)
		of := &recovery{n: b.n, facts: b.facts, p: p}
		if was, now := of.requestsSinceRecord(); lowersCPU(&was, &now) {
			n = *n.recounted(&was, &now, &now, b.n.endedSum(&n))
			n.sumOld = true
		}
		b.n.pods[id] = &n
	}
}

// endedParts returns the requests of a pod's containers that have ended at a Synchronize and
// still count for the pod, each by its last attempt.
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

// endedSum adds up the requests of a pod's ended containers that were not created again.
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

// dropUnpaid removes from a container the CPUs of its record that its request no longer pays
// for. It does so if the container was resized after the record was written and no newer record
// has the resize.
func (b *recovery) dropUnpaid(reported *lifecycle.Container, rec *Record) {
	if rec.Late || rec.CPUs == "" || !b.n.fresh {
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
	switch a, ok := b.n.asks(b.p, b.name(), &b.c.Pristine); {
	case b.p.Intent.CPUs.IsSet():
		if b.n.checkPaid(b.p, &now, &b.c.Pristine, owned.Len()) != nil {
			left = topology.Set{}
		}
	case b.p.Intent.NUMA.V.Exclusive && ok && a.n > 0:
	default:
		n := b.p.paidCPUs(&b.c.Pristine).CPUs
		if ok && a.pod {
			n, _ = b.p.paidNow(&now)
		}
		if n < owned.Len() && b.n.terms(b.p).Chooses {
			have := owned.And(b.n.reach(b.p))
			left = (&placer{n: b.n, p: b.p, c: b.c}).shrinkTo(have, owned.Minus(have), n)
			left = left.Union(b.c.Stamp.CPUs)
		}
	}
	if left == owned {
		return
	}
	rec.CPUs, b.c.Stamp.CPUs = b.n.machine.Format(left), left
	switch quota := reported.Resources.CPU.Quota.V; { // if the record's quota was lifted, the record is older
	case b.p.Intent.QoS == intent.Guaranteed && b.c.Pristine.CPU.Quota.V > 0:
		b.c.Pristine.CPU.Quota = lifecycle.Some(sharesMilli(&b.c.Pristine) * int64(b.c.Pristine.CPU.Period.Or(defaultPeriod)) / milliOfCPU)
	case quota > 0:
		b.c.Pristine.CPU.Quota = lifecycle.Some(quota)
	}
}

// resizedSince returns the CPUs that a container owns. They come from its record or, if a resize
// is newer than all records, from the CPUs that it runs on. The kernel got the new list first
// and the runtime's copy a moment later, so one list contains the other. One of the lists must
// match the container's current request, with or without its offline CPUs.
//
// If its last resize was refused, it owns a different number of CPUs. Only owners run without
// the quota that they requested. So a copy without a quota lists the CPUs that its container
// owned, and the kernel's list lacks those that it gave up since.
func (b *recovery) resizedSince(reported *lifecycle.Container, rec *Record) string {
	was, is := &rec.Pristine.CPU, &reported.Resources.CPU
	t := ownershipSources{machine: b.n.machine, online: b.n.reach(b.p), recorded: b.n.machine.PlacesOf(rec.CPUs), copied: b.n.machine.PlacesOf(is.CPUs)}
	list, read := b.facts.Kernel[reported.ID]
	t.runs = b.n.machine.OnlineOf(list)
	if is.Quota.V > 0 && was.Quota.V > 0 && b.losesQuota(t.recorded) {
		if t.copied = (topology.Set{}); read && list == "" { // the container runs on the CPUs of its pool
			t.runs = t.online
		}
	}
	if rec.Late || t.recorded.Empty() || b.p.Intent.CPUs.IsSet() || t.same() && t.online.Contains(t.recorded) {
		return rec.CPUs
	}
	t.quotaRemoved = is.Quota.V < 0 && was.Quota.V > 0 && !t.copied.Empty()
	asks := b.p.withOriginalQuota(&reported.Resources)
	t.candidates = b.possibleCPUCounts(&asks)
	t.requestedCount = pickCPUCount(t.candidates, is.Shares.V != was.Shares.V, t.recorded.Len())
	t.held, t.wholeNodes = b.n.machine.PlacesOf(b.facts.Grants[b.p.Pod.UID]), b.p.Intent.NUMA.V.Exclusive
	return t.owned(rec.CPUs, is.CPUs)
}

// ownershipSources are the sources that show which CPUs a container owns now.
type ownershipSources struct {
	machine *topology.Machine
	// recorded are the CPUs in the container's record, copied the CPUs in the runtime's copy,
	// and runs the CPUs that the kernel gives it. online are the CPUs it could use, and held the
	// CPUs that its pod is known to own.
	recorded, copied, runs, online, held topology.Set
	// lifted: the copy lacks the requested quota, as an owner's copy does.
	quotaRemoved bool
	// whole: it owns whole NUMA nodes.
	wholeNodes bool
	// candidates are the numbers of CPUs that the container may have requested; due is the
	// number that counts.
	candidates     []int
	requestedCount int
}

// same reports whether copy and kernel have only CPUs of the record.
func (t *ownershipSources) same() bool {
	was, is := t.recorded.And(t.online), t.copied.And(t.online)
	return (is.Empty() || is == was) && (t.runs.Empty() || t.runs == was) && t.recorded.Contains(t.copied)
}

// owned returns the CPUs that a container owns: the CPUs of its record, the CPUs of the
// runtime's copy, or a set that follows from both.
func (t *ownershipSources) owned(record, copied string) string {
	was, is, same := t.recorded.And(t.online), t.copied.And(t.online), t.same()
	if !t.quotaRemoved && (was.Empty() || t.copied.Empty() && !t.recorded.Contains(t.runs)) {
		return t.inPool(record)
	}
	if !t.copied.Empty() && !t.copied.Contains(t.runs) && (is.Empty() || !t.runs.Contains(is)) {
		t.runs = topology.Set{}
	}
	whole := t.requestedCount == 0 || t.requestedCount >= t.recorded.Len() || t.wholeNodes
	if same && whole || t.held.Contains(t.recorded) && was.Contains(t.runs.Union(is)) {
		// It runs on a part of its known CPUs: no agent ran when the others came online again.
		return record
	}
	switch running, copies := t.fits(t.runs), t.fits(is); {
	case !running.Empty():
		return t.machine.Format(running)
	case !copies.Empty():
		return t.machine.Format(copies)
	case t.quotaRemoved && was.Empty() && t.requestedCount == t.recorded.Len() && t.recorded.Contains(t.copied):
		// All CPUs of the container are offline, and it requests as many as its record has. Some
		// were offline when it was created, so the copy leaves them out.
		return record
	case t.quotaRemoved && !t.runs.Empty() && t.copied.Contains(t.runs):
		return t.machine.Format(t.runs.Union(t.copied.Minus(t.online)))
	case t.quotaRemoved, len(t.candidates) > 0 && !is.Empty() && is.Len() < slices.Max(t.candidates) && (was.Contains(is) || is.Contains(was)):
		// The container owns fewer CPUs than it requests, because a later increase was refused.
		return copied
	}
	return record
}

// inPool returns the CPUs that a container owns if it may run in a pool because they are all
// offline. After a shrink these are as many offline CPUs as it requests; otherwise they are the
// CPUs of its record. An owner of whole NUMA nodes keeps all of them when it shrinks.
func (t *ownershipSources) inPool(record string) string {
	if away := t.recorded.Minus(t.online); !t.wholeNodes && t.requestedCount > 0 && t.requestedCount < t.recorded.Len() && t.requestedCount <= away.Len() {
		return t.machine.Format(lowestCPUs(away, t.requestedCount))
	}
	return record
}

// fits adds offline CPUs to a set until it has the requested number; it returns an empty set if
// no number fits.
func (t *ownershipSources) fits(has topology.Set) topology.Set {
	away := t.recorded.Union(t.copied).Minus(t.online)
	switch both := has.Union(away); {
	case has.Empty():
	case slices.Contains(t.candidates, has.Len()):
		return has
	case slices.Contains(t.candidates, both.Len()):
		return both
	case t.requestedCount > has.Len() && t.requestedCount < both.Len() && t.recorded.Contains(has): // a shrink gives up offline CPUs first
		return has.Union(lowestCPUs(away, t.requestedCount-has.Len()))
	}
	return topology.Set{}
}

// pickCPUCount picks the number of CPUs of a container from the candidates of
// possibleCPUCounts; 0 if there is none. For a container that was not resized it is the number
// at its creation, if that is a candidate, otherwise the first one. For a resized container it
// is the last one.
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

// possibleCPUCounts returns the numbers of CPUs that a container may have requested, from the
// runtime's report; none if the report gives no number. The pod's sum may be older than a resize
// of the containers, so the sum of the containers' requests is another candidate.
func (b *recovery) possibleCPUCounts(requested *lifecycle.Resources) []int {
	a, ok := b.n.asks(b.p, b.name(), requested)
	switch {
	case !ok:
		return nil
	case !a.pod:
		return []int{a.n}
	}
	sum := sumOf(b.n.listedParts(b.p.Pod.ID, ""))
	return []int{a.n, b.p.paidCPUs(&sum).CPUs}
}

// requota replaces the quota in an owner's changed request by the quota of its record, because
// the agent wrote the quota in the runtime's copy and usually lifted it. In a Guaranteed pod the
// limit equals the request; in other pods it is never below the request.
func requota(now, recorded *lifecycle.Resources, qos intent.QoS) {
	if now.CPU.Shares.V == recorded.CPU.Shares.V || now.CPU.Quota.V <= 0 || sharesMilli(now) == 0 {
		return
	}
	least := sharesMilli(now) * int64(now.CPU.Period.Or(defaultPeriod)) / milliOfCPU
	if qos == intent.Guaranteed || now.CPU.Quota.V < least {
		now.CPU.Quota = lifecycle.Some(least)
	}
}
