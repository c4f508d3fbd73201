package engine

import (
	"maps"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// leastShares is what the kubelet makes of no request, sharesOfCPU of one CPU, and
// defaultPeriod is the kernel's period of quotas in µs.
const (
	leastShares   = 2
	sharesOfCPU   = 1024
	defaultPeriod = 100000
)

// dueOf is how many CPUs resources are good for.
func dueOf(r *lifecycle.Resources) int { return intent.Due(r).CPUs }

// request is what a container asks for, in milli-CPUs, as its shares tell: the
// kubelet makes them of the request. Nobody's CPUs depend on a pod's spec, which
// may come late.
func request(r *lifecycle.Resources) int64 {
	if r.CPU.Shares.V <= leastShares {
		return 0
	}
	return int64(min(r.CPU.Shares.V, 1<<20)) * 1000 / sharesOfCPU
}

// needs returns what the shared pools' containers ask for, with the draft's
// changes.
func (d *draft) needs() map[placement.Which]need {
	if d.policy.Pools.Sizing == nil {
		return nil
	}
	needs := map[placement.Which]need{}
	if !d.fresh {
		maps.Copy(needs, d.base.needs)
	}
	count := func(c *Container, sign int) {
		if c == nil || !c.Alive() || c.Seat.Pool != placement.Shared {
			return
		}
		n := needs[c.Seat.Which]
		n.members += sign
		n.milli += int64(sign) * request(&c.Pristine)
		if needs[c.Seat.Which] = n; n.members == 0 {
			delete(needs, c.Seat.Which)
		}
	}
	for id, c := range d.containers {
		if !d.fresh && d.base.needs != nil {
			count(d.base.containers[id], -1)
		}
		count(c, 1)
	}
	return needs
}

// layout returns what the pools have now. It is the state's own as long as
// nothing it depends on has changed.
func (d *draft) layout() *placement.Layout {
	demand := placement.Demand{Owned: d.ledger.Exclusive(), Lent: d.ledger.Lent()}
	if needs := d.needs(); needs != nil {
		demand.Needs = make(map[placement.Which]int64, len(needs))
		for w, n := range needs {
			demand.Needs[w] = n.milli
		}
	}
	for _, known := range []*placement.Layout{d.laid, d.base.layout} {
		if known != nil && known.Is(&d.policy.Pools, demand) {
			return known
		}
	}
	d.laid = d.policy.Pools.Lay(demand)
	return d.laid
}
