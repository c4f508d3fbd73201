package lifecycle

import "math"

// Sum returns the amount of a resource for the whole pod, as Kubernetes counts requests and
// limits (1.36, component-helpers' PodRequests and PodLimits). It adds the amounts of app
// containers and sidecars. If an init container together with the sidecars before it needs more,
// that larger sum counts. of returns the amount of one container; a negative amount counts as 0,
// and a sum that overflows is math.MaxInt64.
//
// every reports whether each container has an amount; otherwise the kubelet sets no limit on
// the pod's cgroup. An init container or sidecar may use the amount of the sidecars before it.
func (p *PodSpec) Sum(of func(*ContainerSpec) int64) (most int64, every bool) {
	var apps, sidecars int64
	every = true
	for i := range p.Containers {
		c := &p.Containers[i]
		has := of(c)
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
		every = every && has > 0
	}
	return max(most, AddAmounts(apps, sidecars)), every
}

// Request is a pod's request for a resource, in this order: the pod-level request, the sum of
// the containers' requests, the pod-level limit, which the API server uses as the request. The
// pod's overhead is added. 0 is no request.
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

// Limit is the limit that the kubelet sets on a pod's cgroup: the pod-level limit, or else the
// sum of the containers' limits if each has one. The pod's overhead is added. 0 is no limit,
// also if the sum overflows.
func (p *PodSpec) Limit(name string) int64 {
	sum := p.Limits[name]
	if sum <= 0 {
		var every bool
		if sum, every = p.Sum(func(c *ContainerSpec) int64 { return c.Limits[name] }); !every || sum <= 0 {
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
