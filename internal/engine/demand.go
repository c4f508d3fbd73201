package engine

import (
	"cmp"
	"maps"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// sharesOfCPU are the CPU shares that the kubelet sets for a request of one CPU,
// and defaultPeriod is the kernel's default CFS period in µs.
const (
	milliOfCPU    = 1000
	sharesOfCPU   = 1024
	defaultPeriod = 100000
)

// due measures how many CPUs the resources of a pod, or of one of its containers,
// pay for.
func (p *Pod) due(r *lifecycle.Resources) intent.Share { return intent.Due(r, p.Intent.QoS) }

// means are the values that due measures a container by.
func (p *Pod) means(sum, requested *lifecycle.Resources) intent.Means {
	return intent.Means{Pod: sum, Container: requested, QoS: p.Intent.QoS}
}

// needs returns what the containers of the shared pools request, with one more that
// is not in the state yet; nil for none.
func (n *view) needs(more *Container) map[placement.Which]need {
	if laid := cmp.Or(n.laid, n.base.layout); !laid.Sized() { // the last result, under the policy in force
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

// layout returns the CPUs of the pools. It returns the state's own layout while
// nothing that it depends on has changed. extra is one more container to count; nil
// for none.
func (n *view) layout(more *Container) *placement.Layout {
	if n.policy == &n.base.Policy && len(n.containers) == 0 && more == nil && !n.ledger.moved {
		return n.base.layout
	}
	// A CPU that is reserved for its owner may be online: cgroup version 1 removes
	// a CPU that was offline from all cgroups permanently. No pool is sized with it
	// then, as no container there could use it.
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
