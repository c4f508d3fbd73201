package engine

import (
	"maps"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// sharesOfCPU is what the kubelet makes of a request of one CPU, and defaultPeriod is
// the kernel's period of quotas in µs.
const (
	milliOfCPU    = 1000
	sharesOfCPU   = 1024
	defaultPeriod = 100000
)

// due measures the CPUs that resources of a pod, or of one of its containers, pay for.
func (p *Pod) due(r *lifecycle.Resources) intent.Share { return intent.Due(r, p.Intent.QoS) }

// means are what the CPUs of a container are measured by.
func (p *Pod) means(sum, told *lifecycle.Resources) intent.Means {
	return intent.Means{Pod: sum, Container: told, QoS: p.Intent.QoS}
}

// request is what a container asks for, in milli-CPUs, as its shares tell: the
// kubelet makes them of the request. Nobody's CPUs depend on a pod's spec, which
// may come late.
func request(r *lifecycle.Resources) int64 {
	return intent.SharesMilli(r.CPU.Shares.V)
}

// needs returns what the shared pools' containers ask for, with the draft's
// changes.
func (d *draft) needs() map[placement.Which]need {
	if !d.lastLayout().Sized() {
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
		if known != nil && known.Is(&d.policy.Pools, demand) && (known == d.laid || d.policy == &d.base.Policy) {
			return known
		}
	}
	d.laid = d.policy.Placement.Layout(&d.policy.Pools, demand)
	return d.laid
}

// lastLayout is the one that was made last, by the policy in force.
func (d *draft) lastLayout() *placement.Layout {
	if d.laid != nil {
		return d.laid
	}
	return d.base.layout
}
