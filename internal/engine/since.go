package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// since adds up what a pod's containers asked for by their records, and what they ask
// for by now, of a Synchronize.
func (d *draft) since(p *Pod, records map[string]Record) (was, now lifecycle.Resources) {
	var before, after []*lifecycle.Resources
	for _, told := range d.listed[p.Pod.ID] {
		if told.State == lifecycle.StateStopped {
			continue
		}
		asked := told.Resources
		first := &asked
		if rec, ok := records[told.ID]; ok {
			asked = askedSince(&rec, &told.Resources)
			if first = &asked; !rec.Late {
				first = &rec.Pristine
			}
		}
		before, after = append(before, first), append(after, &asked)
	}
	return sumOf(before), sumOf(after)
}

// accountSince notes what is known of pods' sums at a Synchronize, and recounts those
// of which a container was resized since its record was stamped.
func (d *draft) accountSince(f Facts) {
	for id, p := range d.pods {
		n := *p
		n.sumOld, n.ended = true, d.endedParts(id)
		if was, now := d.since(p, f.Records); lower(&was, &now) {
			n = *n.recounted(&was, &now, &now, d.endedSum(&n))
			n.sumOld = true
		}
		d.pods[id] = &n
	}
}

// endedParts are what the containers of a pod asked for that do not live at a
// Synchronize, of which a pod is charged for all the same: each by its last attempt.
func (d *draft) endedParts(podID string) map[string]*lifecycle.Resources {
	last := map[string]*lifecycle.Container{}
	for _, c := range d.listed[podID] {
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

// endedSum adds up what the ended containers of a pod asked for that were not created
// anew since.
func (d *draft) endedSum(p *Pod) *lifecycle.Resources {
	if len(p.ended) == 0 {
		return &lifecycle.Resources{}
	}
	ended := maps.Clone(p.ended)
	for _, c := range d.containersOf(p.Pod.ID) {
		if c.Alive() {
			delete(ended, c.Name)
		}
	}
	sum := sumOf(slices.Collect(maps.Values(ended)))
	return &sum
}

// paidSince takes from what a container owns by its record what it does not pay for
// any more, where it was resized since the record was stamped and nothing later tells
// of it: whether the agent saw that, or was away.
func (d *draft) paidSince(p *Pod, c *Container, told *lifecycle.Container, rec *Record, f Facts) {
	if rec.Late || rec.CPUs == "" || !d.fresh {
		return
	}
	was, now := d.since(p, f.Records)
	if !p.due(p.Pod.Resources).Told() {
		was, now = rec.Pristine, c.Pristine
	}
	if !lower(&was, &now) {
		return
	}
	owned := d.machine.PlacesOf(rec.CPUs)
	left := owned
	switch a, ok := d.asks(p, &c.Pristine); {
	case p.Intent.CPUs.Said():
		if d.stillPaid(p, &now, &c.Pristine, owned.Len()) != nil {
			left = topology.Set{}
		}
	case p.Intent.NUMA.V.Exclusive && ok && a.n > 0:
	default:
		n := p.due(&c.Pristine).CPUs
		if ok && a.pod {
			n, _ = d.paidNow(p, &now)
		}
		if n < owned.Len() && d.policy.Choosing != nil {
			have := owned.And(d.reach(p))
			left = d.shrinkTo(p, c, have, owned.Minus(have), n)
			left = left.Union(c.Born)
		}
	}
	if left == owned {
		return
	}
	rec.CPUs, c.Born = d.machine.Format(left), left
	switch quota := told.Resources.CPU.Quota.V; { // where the record's was lifted, it is of before
	case p.Intent.QoS == intent.Guaranteed && c.Pristine.CPU.Quota.V > 0:
		c.Pristine.CPU.Quota = lifecycle.Some(sharesMilli(&c.Pristine) * int64(c.Pristine.CPU.Period.Or(defaultPeriod)) / milliOfCPU)
	case quota > 0:
		c.Pristine.CPU.Quota = lifecycle.Some(quota)
	}
}

// resizedSince returns the CPUs that a container owns by its record, or, where it
// was resized since that was stamped and nothing later tells of it, by what it runs
// on: the kernel had it first, the runtime's copy has it a moment later, and one is
// part of the other. Either has to follow from what the container asks for by now,
// with what is offline or without.
//
// Where its last resize was refused it has another number. Only owners are without
// the quota they asked for: where the copy is, it has what its container owns, and
// the kernel what of it was not given up since.
func (d *draft) resizedSince(p *Pod, c *Container, told *lifecycle.Container, rec *Record, f Facts) string { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	online, born := d.reach(p), d.machine.PlacesOf(rec.CPUs)
	copied, runs := d.machine.PlacesOf(told.Resources.CPU.CPUs), d.machine.OnlineOf(f.Kernel[told.ID])
	if told.Resources.CPU.Quota.V > 0 && rec.Pristine.CPU.Quota.V > 0 && d.lifts(p, c, born) {
		copied = topology.Set{} // it has what its pool had
		if list, read := f.Kernel[told.ID]; read && list == "" {
			runs = online
		}
	}
	was, is := born.And(online), copied.And(online)
	same := (is.Empty() || is == was) && (runs.Empty() || runs == was) && born.Contains(copied)
	if rec.Late || born.Empty() || p.Intent.CPUs.Said() || same && born == was {
		return rec.CPUs
	}
	lifted := told.Resources.CPU.Quota.V < 0 && rec.Pristine.CPU.Quota.V > 0 && !copied.Empty()
	asks := d.unlifted(p, &told.Resources)
	away, asked := born.Union(copied).Minus(online), d.asksByNow(p, told.PodID, &asks)
	n := dueBy(asked, told.Resources.CPU.Shares.V != rec.Pristine.CPU.Shares.V, born.Len())
	if !lifted && (was.Empty() || copied.Empty() && !born.Contains(runs)) {
		// It may run in a pool for as long as all that it owns is offline.
		if away = born.Minus(online); n > 0 && n < born.Len() && n <= away.Len() {
			return d.machine.Format(first(away, n))
		}
		return rec.CPUs
	}
	if !copied.Empty() && !copied.Contains(runs) && (is.Empty() || !runs.Contains(is)) {
		runs = topology.Set{}
	}
	whole := n == 0 || n >= born.Len() || p.Intent.NUMA.V.Exclusive
	if held := d.machine.PlacesOf(f.Grants[p.Pod.UID]); same && whole || held.Contains(born) && was.Contains(runs.Union(is)) {
		// Where it runs on a part of what is known to be its own, nobody was there when the others came online again.
		return rec.CPUs
	}
	for _, has := range []topology.Set{runs, is} {
		switch both := has.Union(away); {
		case has.Empty():
		case slices.Contains(asked, has.Len()):
			return d.machine.Format(has)
		case slices.Contains(asked, both.Len()):
			return d.machine.Format(both)
		case n > has.Len() && n < both.Len() && born.Contains(has): // a shrink gives up those that are offline first
			return d.machine.Format(has.Union(first(away, n-has.Len())))
		}
	}
	switch {
	case lifted && !runs.Empty() && copied.Contains(runs):
		return d.machine.Format(runs.Union(copied.Minus(online)))
	case lifted, len(asked) > 0 && !is.Empty() && is.Len() < slices.Max(asked) && (was.Contains(is) || is.Contains(was)):
		// Fewer than it asks for: a later growth was refused.
		return told.Resources.CPU.CPUs
	}
	return rec.CPUs
}

// dueBy is how many CPUs a container is due of what asksByNow returned, 0 where no
// number follows: one that was not resized as many as it was created with, where that
// is one of them; of one that was its pod's number may be of before.
func dueBy(asked []int, resized bool, born int) int {
	if !resized && slices.Contains(asked, born) {
		return born
	}
	n := 0
	for _, a := range asked {
		if a > 0 && (n == 0 || resized) {
			n = a
		}
	}
	return n
}

// asksByNow returns how many CPUs a container asks for by what the runtime tells,
// none where no number follows. Where its pod's sum decides, that may be of before
// a resize of its containers: theirs is another.
func (d *draft) asksByNow(p *Pod, sandbox string, told *lifecycle.Resources) []int {
	a, ok := d.asks(p, told)
	switch {
	case !ok:
		return nil
	case !a.pod:
		return []int{a.n}
	}
	all := make([]*lifecycle.Resources, 0, len(d.listed[sandbox]))
	for _, c := range d.listed[sandbox] {
		if c.State != lifecycle.StateStopped {
			all = append(all, &c.Resources)
		}
	}
	sum := sumOf(all)
	return []int{a.n, p.due(&sum).CPUs}
}

// requota follows an owner's request that changed with the quota that its record has:
// the runtime's copy of it is ours, lifted as a rule. A limit is that of the request in a Guaranteed pod, and
// never below it.
func requota(now, recorded *lifecycle.Resources, qos intent.QoS) {
	if now.CPU.Shares.V == recorded.CPU.Shares.V || now.CPU.Quota.V <= 0 || sharesMilli(now) == 0 {
		return
	}
	least := sharesMilli(now) * int64(now.CPU.Period.Or(defaultPeriod)) / milliOfCPU
	if qos == intent.Guaranteed || now.CPU.Quota.V < least {
		now.CPU.Quota = lifecycle.Some(least)
	}
}
