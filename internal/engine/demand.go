package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// milliOfCPU is the number of milli-CPUs of one CPU. sharesOfCPU is the number of CPU shares that the kubelet sets for
// a request of one CPU. defaultPeriod is the kernel's default CFS period in µs.
const (
	milliOfCPU    = 1000
	sharesOfCPU   = 1024
	defaultPeriod = 100000
)

// paidCPUs returns how many whole CPUs a pod or container may own because of the CPU requests and limits in r. In this
// package, requests and limits "pay for" the CPUs that a pod or container may own because of them. Names with "paid"
// and "unpaid" refer to this.
func (p *Pod) paidCPUs(r *lifecycle.Resources) intent.PaidCPUs {
	return intent.CountPaidCPUs(r, p.Intent.QoS)
}

// payingResources returns the requests and limits from which the authorization rules compute how many CPUs a container
// may own. sum are the resources of the pod, and requested those of the container.
func (p *Pod) payingResources(sum, requested *lifecycle.Resources) intent.PayingResources {
	return intent.PayingResources{Pod: sum, Container: requested, QoS: p.Intent.QoS}
}

// lastLayout returns the layout of the pools that was computed last, in this draft or in the state.
func (n *view) lastLayout() *placement.Layout { return cmp.Or(n.layoutCache, n.base.layout) }

// currentNeeds returns the CPU requests of containers, summed up by pool.
func (n *view) currentNeeds() placement.Needs {
	if n.needsCounted || n.ignoresBase {
		return n.poolNeeds
	}
	return n.base.layout.Demand.Needs
}

// countNeed updates poolNeeds when a container of the view changes; c is the new container, or nil if the container is
// removed. The method view.put calls countNeed before it changes the view.
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

// countedVersion returns the version of a container whose request poolNeeds includes now; nil if it includes none. The
// request was added under the returned layout, and the layout determines for which pools requests count.
func (n *view) countedVersion(id string) (*Container, *placement.Layout) {
	if c, decided := n.containers[id]; decided {
		return c, n.lastLayout()
	}
	if n.ignoresBase {
		return n.undecidedMembers[id], n.lastLayout()
	}
	return n.base.containers[id], n.base.layout
}

// addNeed adds a container's request to the need of the container's pool. If sign is -1, it subtracts the request. If
// the layout l does not use the requests of containers in this pool, addNeed returns the needs unchanged.
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

// layout returns the layout of the pools. If the demand has not changed, it returns an earlier layout. The parameter
// more is a container that the view does not have yet, but whose request the layout counts; nil for none.
func (n *view) layout(more *Container) *placement.Layout {
	if n.policy == &n.base.Policy && len(n.containers) == 0 && more == nil && !n.ledger.grantsChanged {
		return n.base.layout
	}
	// A CPU that a container owned when the CPU went offline stays reserved for the container, even if the CPU is
	// online again. The container cannot use the CPU: cgroup v1 removes a CPU that goes offline from all cgroups, and
	// does not add it when it is online again. The containers of pools cannot use reserved CPUs either, so these CPUs
	// do not count for the size of pools.
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
