package lifecycle

import "math"

// Sum returns the amount of a resource for the whole pod, as Kubernetes counts requests and
// limits (1.36, component-helpers' PodRequests and PodLimits). amountOf returns the amount of one
// container. The sum has the amounts of all app containers and sidecars. While an init container
// runs, the pod needs the amounts of this container and of the sidecars before it. Sum returns the
// largest of these sums. A negative amount counts as 0, and a sum that overflows is math.MaxInt64.
//
// allSet is true if each container has an amount. If a container has no limit, the kubelet sets no limit on the pod's
// cgroup. An init container or sidecar without an amount counts as set if an earlier sidecar has an amount.
func (p *PodSpec) Sum(amountOf func(*ContainerSpec) int64) (most int64, allSet bool) {
	var apps, sidecars int64
	allSet = true
	for i := range p.Containers {
		c := &p.Containers[i]
		has := amountOf(c)
		switch c.Kind {
		case Ephemeral: // has no resources
			continue
		case Sidecar:
			sidecars = AddAmounts(sidecars, has)
			has = sidecars
			most = max(most, has)
		case Init:
			has = AddAmounts(sidecars, has)
			most = max(most, has)
		default:
			apps = AddAmounts(apps, has)
		}
		allSet = allSet && has > 0
	}
	return max(most, AddAmounts(apps, sidecars)), allSet
}

// Request returns a pod's request for a resource, with the pod's overhead. It uses the first of these
// that is set: the pod-level request, the sum of the containers' requests, and the pod-level limit, which
// the API server also uses as the request. 0 means no request.
func (p *PodSpec) Request(name string) int64 {
	sum := p.Requests[name]
	if sum <= 0 {
		sum, _ = p.Sum(func(c *ContainerSpec) int64 { return c.Requests[name] })
	}
	if sum <= 0 {
		sum = p.Limits[name]
	}
	return AddAmounts(sum, p.Overhead[name])
}

// Limit returns the limit that the kubelet sets on a pod's cgroup, with the pod's overhead. It is the
// pod-level limit. Without a pod-level limit, it is the sum of the containers' limits if each container has
// one. 0 means no limit, also for a sum that overflows.
func (p *PodSpec) Limit(name string) int64 {
	sum := p.Limits[name]
	if sum <= 0 {
		var allSet bool
		if sum, allSet = p.Sum(func(c *ContainerSpec) int64 { return c.Limits[name] }); !allSet || sum <= 0 {
			return 0
		}
	}
	if sum = AddAmounts(sum, p.Overhead[name]); sum == math.MaxInt64 {
		return 0
	}
	return sum
}

// AddAmounts adds two amounts. A negative amount counts as 0, and a sum that overflows is
// math.MaxInt64.
func AddAmounts(a, b int64) int64 {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
