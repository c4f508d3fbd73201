package engine

import (
	"cmp"
	"maps"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// sharesOfCPU are the CPU shares that the kubelet sets for a request of one CPU. defaultPeriod
// is the kernel's default CFS period in µs.
const (
	milliOfCPU    = 1000
	sharesOfCPU   = 1024
	defaultPeriod = 100000
)

// paidCPUs returns the number of whole CPUs that the requests and limits of a pod or container
// cover ("pay for").
func (p *Pod) paidCPUs(r *lifecycle.Resources) intent.PaidCPUs {
	return intent.CountPaidCPUs(r, p.Intent.QoS)
}

// payingResources returns the resources of a container that paidCPUs counts.
func (p *Pod) payingResources(sum, requested *lifecycle.Resources) intent.PayingResources {
	return intent.PayingResources{Pod: sum, Container: requested, QoS: p.Intent.QoS}
}

// needs returns the sum of CPU requests of each shared pool's containers. more is a container
// that is not in the state yet; nil for none.
func (n *view) needs(more *Container) map[placement.Which]need {
	laid := cmp.Or(n.layoutCache, n.base.layout) // the last result, if it was computed under the current policy
	if !laid.CountsRequests() {
		return nil
	}
	sums := poolNeeds{}
	base := n.base.needs != nil && !n.fresh
	if base {
		maps.Copy(sums, n.base.needs)
	}
	replace := func(id string, c *Container) {
		if base { // the state's layout decides whether it counts in the state's needs
			sums.add(n.base.layout, n.base.containers[id], -1)
		}
		sums.add(laid, c, 1)
	}
	for id, c := range n.containers {
		if more == nil || id != more.ID {
			replace(id, c)
		}
	}
	for id, c := range n.expected { // until they are decided
		if _, decided := n.containers[id]; !decided && (more == nil || id != more.ID) {
			replace(id, c)
		}
	}
	if more != nil {
		replace(more.ID, more)
	}
	return sums
}

// poolNeeds are the needs of pools.
type poolNeeds map[placement.Which]need

// add adds a container's request to its pool's need, or subtracts it, if the layout depends on
// its request.
func (s poolNeeds) add(l *placement.Layout, c *Container, sign int) {
	if c == nil || !c.Alive() || !l.Counts(c.Assignment.Pool) {
		return
	}
	sum := s[c.Assignment.Which]
	sum.members += sign
	sum.milli += int64(sign) * sharesMilli(&c.Pristine)
	if s[c.Assignment.Which] = sum; sum.members == 0 {
		delete(s, c.Assignment.Which)
	}
}

// layout returns the CPUs of the pools. It returns the state's own layout if its inputs have
// not changed. more is one container that is not in the state yet; nil for none.
func (n *view) layout(more *Container) *placement.Layout {
	if n.policy == &n.base.Policy && len(n.containers) == 0 && more == nil && !n.ledger.moved {
		return n.base.layout
	}
	// A reserved CPU may be online: cgroup v1 removes a CPU that goes offline from all cgroups
	// and never adds it again. Such a CPU does not count for the size of pools, because their
	// containers could not use it.
	demand := placement.Demand{Owned: n.ledger.Held().And(n.policy.Pools.Online), Lent: n.ledger.Lent()}
	if needs := n.needs(more); needs != nil {
		demand.Needs = make(map[placement.Which]int64, len(needs))
		for w, sum := range needs {
			demand.Needs[w] = sum.milli
		}
		occupants{n}.addTo(&demand, needs)
	}
	for _, known := range []*placement.Layout{n.layoutCache, n.base.layout} {
		if known != nil && known.Matches(&n.policy.Pools, demand) && (known == n.layoutCache || n.policy == &n.base.Policy) {
			return known
		}
	}
	n.layoutCache = n.policy.Placement.Layout(&n.policy.Pools, demand)
	return n.layoutCache
}
