package engine

import (
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
			n = *n.recounted(&now)
			n.sumOld = true
		}
		d.pods[id] = &n
	}
}

// endedParts adds up what the containers of a pod asked for that do not live at a
// Synchronize, of which a pod is charged for all the same: each by its last attempt.
func (d *draft) endedParts(podID string) lifecycle.Resources {
	last := map[string]*lifecycle.Container{}
	for _, c := range d.listed[podID] {
		if o := last[c.Name]; o == nil || o.State == lifecycle.StateStopped && (c.State != lifecycle.StateStopped || c.CreatedAt > o.CreatedAt) {
			last[c.Name] = c
		}
	}
	var ended []*lifecycle.Resources
	for _, c := range last {
		if c.State == lifecycle.StateStopped {
			ended = append(ended, &c.Resources)
		}
	}
	return sumOf(ended)
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
