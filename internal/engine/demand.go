package engine

import (
	"cmp"
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
func (p *Pod) means(sum, requested *lifecycle.Resources) intent.Means {
	return intent.Means{Pod: sum, Container: requested, QoS: p.Intent.QoS}
}

// needs returns what the shared pools' containers ask for, with one more that is not
// among them yet; nil for none.
func (n *view) needs(more *Container) map[placement.Which]need {
	if laid := cmp.Or(n.laid, n.base.layout); !laid.Sized() { // the last one that was made, by the policy in force
		return nil
	}
	needs := map[placement.Which]need{}
	if !n.fresh {
		maps.Copy(needs, n.base.needs)
	}
	count := func(c *Container, sign int) {
		if c == nil || !c.Alive() || c.Seat.Pool != placement.Shared {
			return
		}
		sum := needs[c.Seat.Which]
		sum.members += sign
		sum.milli += int64(sign) * sharesMilli(&c.Pristine)
		if needs[c.Seat.Which] = sum; sum.members == 0 {
			delete(needs, c.Seat.Which)
		}
	}
	for id, c := range n.containers {
		if !n.fresh && n.base.needs != nil {
			count(n.base.containers[id], -1)
		}
		count(c, 1)
	}
	count(more, 1)
	return needs
}

// layout returns what the pools have now. It is the state's own as long as
// nothing it depends on has changed. One container more counts; nil for none.
func (n *view) layout(more *Container) *placement.Layout {
	if n.policy == &n.base.Policy && len(n.containers) == 0 && more == nil && !n.ledger.moved {
		return n.base.layout
	}
	// A CPU that is kept for its owner may be online: version 1 takes one that was offline out of all cgroups for good.
	// No pool is sized with it then, as nobody there could have it.
	demand := placement.Demand{Owned: n.ledger.Held().And(n.policy.Pools.Online), Lent: n.ledger.Lent()}
	if needs := n.needs(more); needs != nil {
		demand.Needs = make(map[placement.Which]int64, len(needs))
		for w, sum := range needs {
			demand.Needs[w] = sum.milli
		}
	}
	for _, known := range []*placement.Layout{n.laid, n.base.layout} {
		if known != nil && known.Is(&n.policy.Pools, demand) && (known == n.laid || n.policy == &n.base.Policy) {
			return known
		}
	}
	n.laid = n.policy.Placement.Layout(&n.policy.Pools, demand)
	return n.laid
}
