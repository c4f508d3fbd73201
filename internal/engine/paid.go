package engine

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// lowersCPU compares two versions of resources, was (old) and now (new). It reports whether the new CPU request or CPU
// limit is lower than the old one.
func lowersCPU(was, now *lifecycle.Resources) bool {
	before, after := intent.LimitMilli(&was.CPU), intent.LimitMilli(&now.CPU)
	return intent.MilliFromShares(now.CPU.Shares.V) < intent.MilliFromShares(was.CPU.Shares.V) || after > 0 && (before == 0 || after < before)
}

// accountResize updates the sum of a pod's resources after a container of the pod was resized. Runtimes report the sum
// when the pod is created. Few runtimes report a later sum, and none reports it together with the container's request.
// Without accountResize, the first sum would count for the pod's whole life.
//
// If the container's request decreased, accountResize subtracts the decrease from the sum. It adds an increase only if
// the sum is less than the requests of the live containers. Otherwise the kubelet's sum already contains the increase.
func (d *draft) accountResize(was, now *Container) {
	p := d.n.pod(now.PodID)
	live := d.n.podSum(p, now)
	next := p
	switch less := lowersCPU(&was.Pristine, &now.Pristine); {
	case !p.sumOutdated:
		next = p.withAccountedResize(&was.Pristine, &now.Pristine, &live)
	case less || lowersCPU(&now.Pristine, &was.Pristine):
		next = p.withRecountedSum(&was.Pristine, &now.Pristine, &live, d.n.endedSum(p))
	}
	if next != p {
		d.replacePod(next)
		d.decidePodAgain(next, next.Values)
	}
}

// withAccountedResize returns the pod with a new sum of its resources after a resize of a container. was and now are
// the container's requests before and after the resize. live is the sum of the requests of the pod's live containers.
func (p *Pod) withAccountedResize(was, now, live *lifecycle.Resources) *Pod {
	sum := p.Pod.Resources
	if !p.paidCPUs(sum).Known() {
		return p
	}
	next := *sum
	if milli := adjustedSum(sharesMilli(sum), sharesMilli(was), sharesMilli(now), sharesMilli(live)); sum.CPU.Shares.V != 0 && milli != sharesMilli(sum) {
		next.CPU.Shares = lifecycle.Some(intent.SharesFromMilli(milli))
	}
	limit, before, after := intent.LimitMilli(&sum.CPU), intent.LimitMilli(&was.CPU), intent.LimitMilli(&now.CPU)
	if milli := adjustedSum(limit, before, after, intent.LimitMilli(&live.CPU)); limit > 0 && before > 0 && after > 0 && milli != limit {
		next.CPU.Quota = lifecycle.Some(milli * int64(sum.CPU.Period.Or(defaultPeriod)) / milliOfCPU)
	}
	return p.withSum(next)
}

// withRecountedSum returns the pod with a new sum of its resources after a resize of a container. It is for a known sum
// that comes from a Synchronize and is possibly old. was and now are the container's requests before and after the
// resize. live and ended are the sums of the requests of the pod's live and ended containers. If the container requests
// more now, the new sum is the known sum plus the increase. But the new sum is at most live plus ended plus the pod's
// overhead. Without this limit, an old sum that is too large would look like pod-level resources.
func (p *Pod) withRecountedSum(was, now, live, ended *lifecycle.Resources) *Pod {
	if !p.paidCPUs(p.Pod.Resources).Known() {
		return p
	}
	parts := []*lifecycle.Resources{live, ended}
	if p.Pod.Overhead != nil {
		parts = append(parts, p.Pod.Overhead)
	}
	var request, limit int64
	for _, r := range parts {
		request, limit = request+sharesMilli(r), limit+intent.LimitMilli(&r.CPU)
	}
	next := *p.Pod.Resources
	if next.CPU.Shares.V != 0 {
		most := sharesMilli(&next) + max(0, sharesMilli(now)-sharesMilli(was))
		next.CPU.Shares = lifecycle.Some(intent.SharesFromMilli(min(request, most)))
	}
	if whole := intent.LimitMilli(&next.CPU); whole > 0 && intent.LimitMilli(&live.CPU) > 0 {
		whole += max(0, intent.LimitMilli(&now.CPU)-intent.LimitMilli(&was.CPU))
		next.CPU.Quota = lifecycle.Some(min(limit, whole) * int64(next.CPU.Period.Or(defaultPeriod)) / milliOfCPU)
	}
	return p.withSum(next)
}

// withSum returns a copy of the pod with a new sum of resources that is up to date. If nothing changes, it returns the
// pod itself.
func (p *Pod) withSum(sum lifecycle.Resources) *Pod {
	if sum.CPU == p.Pod.Resources.CPU && !p.sumOutdated {
		return p
	}
	n, pod := *p, *p.Pod
	pod.Resources, n.Pod, n.sumOutdated = &sum, &pod, false
	return &n
}

// sharesMilli returns a CPU request in milli-CPUs, computed from the CPU shares. The pod's spec also has the request,
// but the spec may become known late, so decisions about CPUs use the shares.
func sharesMilli(r *lifecycle.Resources) int64 { return intent.MilliFromShares(r.CPU.Shares.V) }

// adjustedSum returns a pod's sum of CPU requests or CPU limits after the value of one container changed from oldValue
// to newValue. A decrease lowers the sum. An increase raises the sum only if the sum is less than live, the values of
// all live containers together. Otherwise the sum already contains the increase. The result is at least live. All
// numbers are milli-CPUs.
func adjustedSum(sum, oldValue, newValue, live int64) int64 {
	if newValue < oldValue || sum < live {
		sum += newValue - oldValue
	}
	return max(sum, live)
}

// paidAtResize returns how many CPUs a pod may own after a resize, and the resources that pay for these CPUs. Usually,
// the known sum of the pod's resources pays. If live, the sum of the live containers' requests, pays for more CPUs, the
// known sum is too old, and live pays instead.
func (p *Pod) paidAtResize(live *lifecycle.Resources) (n int, sum *lifecycle.Resources) {
	whole, parts := p.paidCPUs(p.Pod.Resources), p.paidCPUs(live)
	if parts.CPUs > whole.CPUs {
		return parts.CPUs, live
	}
	return whole.CPUs, p.Pod.Resources
}

// revokeUnpaid ends grants of CPUs that a scheduler assigned to a pod, if the requests of the container no longer pay
// for the granted CPUs. The agent grants assigned CPUs completely or not at all, so such a container loses all its
// CPUs. It is then placed like a container whose assigned CPUs were refused at its creation. c is the resized
// container; nil if the pod was resized. revokeUnpaid reports whether a container lost CPUs.
func (d *draft) revokeUnpaid(podID string, c *Container) (revoked bool) {
	p := d.n.pod(podID)
	if !p.Intent.CPUs.IsSet() || !d.n.ledger.HasCPUs(p.Pod.UID) {
		return false
	}
	live := d.n.podSum(p, c)
	for _, g := range d.n.ledger.CombinedGrants(p.Pod.UID) {
		owner := firstOf(d.n.containersOf(podID), func(o *Container) bool { return o.Key == g.Key && o.Alive() })
		switch {
		case c != nil && c.Key == g.Key:
			owner = c
		case owner == nil && !p.paidCPUs(p.Pod.Resources).Known():
			continue // the container has no live attempt, and its next creation checks the request
		case owner == nil:
			owner = &Container{}
		}
		if d.n.checkPaid(p, &live, &owner.Pristine, g.CPUs.Len()) != nil {
			d.n.revoke(p, g.Key)
			revoked = true
		}
	}
	return revoked
}

// checkPaid returns an error if the current requests of a container and its pod do not pay for the given number of
// CPUs. live is the sum of the requests of the pod's live containers.
func (n *view) checkPaid(p *Pod, live, requested *lifecycle.Resources, cpus int) error {
	sum := p.Pod.Resources
	if p.paidCPUs(sum).Known() {
		_, sum = p.paidAtResize(live)
	}
	return n.policy.Rules.CheckCPUs(p.Pod.Namespace, cpus, p.payingResources(sum, requested))
}

// revoke ends the grant of a key because the request no longer pays for the granted CPUs. The caller then calls
// placeRevoked, which decides the live containers with this key again.
func (n *view) revoke(p *Pod, key placement.Key) {
	n.ledger.dropKey(key)
	for _, c := range n.containersOf(p.Pod.ID) {
		waits := c.Assignment.Pool != placement.Exclusive && !c.Stamp.CPUs.Empty() // the container can use none of its CPUs now
		if c.Key != key || !c.Alive() || c.Assignment.Pool != placement.Exclusive && !waits || placement.IsExternal(c.Assignment.From) {
			continue
		}
		now := *c
		now.Assignment.CPUGroup, now.Stamp.CPUs, now.RefusedCPUs, now.decision.cpusetLimited = placement.CPUGroup{}, topology.Set{}, 0, true
		n.put(now.ID, &now)
	}
}

// placeRevoked makes a new decision about each container of a pod that lost its CPUs in revoke, except the container
// decided, which the caller has decided. It then decides the values of the pod's own cgroup again.
func (d *draft) placeRevoked(podID string, decided *Container) {
	for _, c := range d.n.containersOf(podID) {
		if (decided == nil || c.ID != decided.ID) && c.Alive() && c.Assignment.CPUGroup == (placement.CPUGroup{}) && c.Stamp.CPUs.Empty() {
			n := *c
			d.decideContainer(&n, nil, nil)
		}
	}
	p := d.n.pod(podID)
	d.decidePodAgain(p, p.Values)
}

// reportLostAllCPUs adds a problem: the container no longer owns CPUs because it requests less than one CPU. had is the
// number of CPUs that the container owned.
func (s *placer) reportLostAllCPUs(key string, had int) {
	sum := s.p.Pod.Resources
	if !s.n.choosesCPUsForWholePod(s.p) {
		sum = nil
	}
	s.reportCPUsNotGranted(key, "0", fmt.Errorf("the container owned %d CPUs and was resized: %w", had, noCPUsReason(s.p, sum, &s.c.Pristine)))
}

// noCPUsReason returns the reason why a container gets no CPUs of its own. sum are the resources of the pod; nil if
// they do not count. requested are the resources of the container.
func noCPUsReason(p *Pod, sum, requested *lifecycle.Resources) error {
	for _, r := range []*lifecycle.Resources{sum, requested} {
		if paid := p.paidCPUs(r); paid.Known() && paid.CPUs == 0 { // the pod's sum can be enough although the container's request is not
			return fmt.Errorf("a CPU %s of %s is less than one whole CPU", paid.DeterminedBy, intent.FormatMilli(paid.Milli))
		}
	}
	if p.paidCPUs(sum).Known() {
		return errors.New("the number of CPUs is not known, because the container has no CPU request")
	}
	return errors.New("the number of CPUs is not known, because neither the pod nor the container has a CPU request")
}

// previousLargerAttempt decides whether the creation of the container c counts as a resize, and returns the container
// before the resize; nil if it is no resize. If the previous attempt of c requested more CPU than c, the result is the
// previous attempt. Otherwise, if only the request of c itself determines how many CPUs c owns, the result is c. The
// result is always nil if neither c nor its pod owned CPUs before that the agent or a scheduler chose.
func (d *draft) previousLargerAttempt(p *Pod, c *Container) *Container {
	if g, owns := d.n.ownedBefore(p, c.Key); d.n.ignoresBase || !owns || placement.IsExternal(g.From) || d.n.container(c.ID) != nil {
		return nil
	}
	var was *Container
	for _, o := range d.n.containersOf(p.Pod.ID) {
		if o.Key == c.Key && o.ID != c.ID && !placement.IsExternal(o.Assignment.From) {
			was = o // containersOf returns the newest container last
		}
	}
	switch {
	case was != nil && lowersCPU(&was.Pristine, &c.Pristine):
		return was
	case !p.paidCPUs(p.Pod.Resources).Known():
		return c // the container's own request alone determines how many CPUs it owns
	}
	return nil
}
