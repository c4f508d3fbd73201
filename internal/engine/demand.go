package engine

import (
	"cmp"

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

// laid returns the last layout under the current policy.
func (n *view) laid() *placement.Layout { return cmp.Or(n.layoutCache, n.base.layout) }

// needs returns the sums of the CPU requests of pools' containers.
func (n *view) needs() placement.Needs {
	if n.counted || n.fresh {
		return n.poolNeeds
	}
	return n.base.layout.Demand.Needs
}

// countNeed counts a container that the view replaces, gets or (if c is nil) loses. It must be
// called before the view has it.
func (n *view) countNeed(id string, c *Container) {
	was, laid := n.countedAs(id)
	if !laid.CountsRequests() && !n.laid().CountsRequests() {
		return
	}
	if was != nil && c != nil && laid == n.laid() && was.Alive() == c.Alive() && was.Assignment.Pool == c.Assignment.Pool &&
		was.Assignment.Which == c.Assignment.Which && sharesMilli(&was.Pristine) == sharesMilli(&c.Pristine) {
		return
	}
	n.poolNeeds = addNeed(addNeed(n.needs(), laid, was, -1), n.laid(), c, 1)
	n.counted = true
}

// countedAs returns a container as it counts until now, and the layout that says whether it does.
func (n *view) countedAs(id string) (*Container, *placement.Layout) {
	if c, decided := n.containers[id]; decided {
		return c, n.laid()
	}
	if n.fresh {
		return n.expected[id], n.laid()
	}
	return n.base.containers[id], n.base.layout
}

// addNeed adds a container's request to its pool's need, or subtracts it, if the layout depends on
// its request.
func addNeed(to placement.Needs, l *placement.Layout, c *Container, sign int) placement.Needs {
	if c == nil || !c.Alive() || !l.Counts(c.Assignment.Pool) {
		return to
	}
	return to.With(c.Assignment.Which, int64(sign)*sharesMilli(&c.Pristine), sign)
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
	if n.laid().CountsRequests() {
		if demand.Needs = n.needs(); more != nil {
			was, laid := n.countedAs(more.ID)
			demand.Needs = addNeed(addNeed(demand.Needs, laid, was, -1), n.laid(), more, 1)
		}
	}
	for _, known := range []*placement.Layout{n.layoutCache, n.base.layout} {
		if known != nil && known.Matches(&n.policy.Pools, demand) && (known == n.layoutCache || n.policy == &n.base.Policy) {
			return known
		}
	}
	demand.Before = n.before
	switch {
	case n.step != nil && n.step.Demand.Owned == demand.Owned:
		demand.Before = n.step
	case demand.Before == nil:
		demand.Before = n.base.layout
	}
	n.layoutCache = n.policy.Placement.Layout(&n.policy.Pools, demand)
	if n.fresh && more == nil {
		n.step = n.layoutCache
	}
	return n.layoutCache
}
