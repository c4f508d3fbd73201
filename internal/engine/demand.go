package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// sharesOfCPU is the number of CPU shares that the kubelet sets for a request of one CPU. defaultPeriod is
// the kernel's default CFS period in µs.
const (
	milliOfCPU    = 1000
	sharesOfCPU   = 1024
	defaultPeriod = 100000
)

// paidCPUs returns how many whole CPUs a pod or container may own because of its CPU requests and limits. The
// requests and limits pay for these CPUs: names with "paid" and "unpaid" mean that.
func (p *Pod) paidCPUs(r *lifecycle.Resources) intent.PaidCPUs {
	return intent.CountPaidCPUs(r, p.Intent.QoS)
}

// payingResources returns the requests and limits by which the authorization rules check how many CPUs a container
// may own.
func (p *Pod) payingResources(sum, requested *lifecycle.Resources) intent.PayingResources {
	return intent.PayingResources{Pod: sum, Container: requested, QoS: p.Intent.QoS}
}

// lastLayout returns the layout that was computed last, in this draft or in the state.
func (n *view) lastLayout() *placement.Layout { return cmp.Or(n.layoutCache, n.base.layout) }

// currentNeeds returns the CPU requests of containers, summed up by pool.
func (n *view) currentNeeds() placement.Needs {
	if n.needsCounted || n.ignoresBase {
		return n.poolNeeds
	}
	return n.base.layout.Demand.Needs
}

// countNeed updates poolNeeds before put replaces, adds or (if c is nil) removes a container.
func (n *view) countNeed(id string, c *Container) {
	was, laid := n.countedVersion(id)
	if !laid.UsesRequests() && !n.lastLayout().UsesRequests() {
		return
	}
	if was != nil && c != nil && laid == n.lastLayout() && was.Alive() == c.Alive() && was.Assignment.Pool == c.Assignment.Pool &&
		was.Assignment.PoolID == c.Assignment.PoolID && was.Assignment.Owned == c.Assignment.Owned && sharesMilli(&was.Pristine) == sharesMilli(&c.Pristine) &&
		slices.Equal(was.Assignment.Devices, c.Assignment.Devices) {
		return
	}
	n.poolNeeds = addNeed(addNeed(n.currentNeeds(), laid, was, -1), n.lastLayout(), c, 1)
	n.needsCounted = true
}

// countedVersion returns the version of a container that the needs include now, and the layout that determines
// whether it counts.
func (n *view) countedVersion(id string) (*Container, *placement.Layout) {
	if c, decided := n.containers[id]; decided {
		return c, n.lastLayout()
	}
	if n.ignoresBase {
		return n.undecidedMembers[id], n.lastLayout()
	}
	return n.base.containers[id], n.base.layout
}

// addNeed adds a container's request to the need of its pool, or subtracts it if sign is -1. It does nothing
// if the layout does not depend on the request.
func addNeed(to placement.Needs, l *placement.Layout, c *Container, sign int) placement.Needs {
	if c == nil || !c.Alive() {
		return to
	}
	pool, milli := c.Assignment.Pool, sharesMilli(&c.Pristine)
	if c.Assignment.OwnsAndShares() {
		pool, milli = placement.TreePool, max(milli-int64(c.Assignment.Owned.Len())*milliOfCPU, 0)
	}
	if !l.UsesRequestsOf(pool) {
		return to
	}
	return to.WithRequests(c.Assignment.PoolID, int64(sign)*milli, sign, c.Assignment.Devices...)
}

// layout returns the layout of the pools. It returns an earlier layout if the demand has not changed. more is
// a container that the view does not have yet; nil for none.
func (n *view) layout(more *Container) *placement.Layout {
	if n.policy == &n.base.Policy && len(n.containers) == 0 && more == nil && !n.ledger.grantsChanged {
		return n.base.layout
	}
	// A CPU that is reserved for its owner may be online: cgroup v1 removes a CPU that goes offline from all
	// cgroups and never adds it again. A reserved CPU does not count for the size of pools, because the
	// containers of pools could not use it.
	demand := placement.Demand{OwnedCPUs: n.ledger.OwnedOrReservedCPUs().And(n.policy.Pools.Online), LentCPUs: n.ledger.LentCPUs()}
	if n.lastLayout().UsesRequests() {
		if demand.Needs = n.currentNeeds(); more != nil {
			was, laid := n.countedVersion(more.ID)
			demand.Needs = addNeed(addNeed(demand.Needs, laid, was, -1), n.lastLayout(), more, 1)
		}
	}
	for _, known := range []*placement.Layout{n.layoutCache, n.base.layout} {
		if known != nil && known.Matches(&n.policy.Pools, demand) && (known == n.layoutCache || n.policy == &n.base.Policy) {
			return known
		}
	}
	demand.Previous = n.baseLayout
	switch {
	case n.stepLayout != nil && n.stepLayout.Demand.OwnedCPUs == demand.OwnedCPUs:
		demand.Previous = n.stepLayout
	case demand.Previous == nil:
		demand.Previous = n.base.layout
	}
	n.layoutCache = n.policy.Placement.Layout(&n.policy.Pools, demand)
	if n.ignoresBase && more == nil {
		n.stepLayout = n.layoutCache
	}
	return n.layoutCache
}
