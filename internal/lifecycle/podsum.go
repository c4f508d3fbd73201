package lifecycle

import "math"

// Sum returns the amount of a resource for the whole pod, as Kubernetes counts requests and
// limits (1.36, component-helpers' PodRequests and PodLimits). It adds the amounts of app
// containers and sidecars. If an init container together with the sidecars before it needs more,
// that larger sum counts. of returns the amount of one container; a negative amount counts as 0,
// and a sum that overflows is math.MaxInt64.
//
// every reports whether each container has an amount. If a container has no limit, the kubelet sets no
// limit on the pod's cgroup. For init containers and sidecars, the amounts of earlier sidecars count too.
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

// Request returns a pod's request for a resource, with the pod's overhead. The request is the pod-level
// request, or else the sum of the containers' requests, or else the pod-level limit, which the API
// server also uses as the request. 0 means no request.
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

// Limit returns the limit that the kubelet sets on a pod's cgroup, with the pod's overhead. The limit is
// the pod-level limit, or else the sum of the containers' limits if each container has one. 0 means no
// limit. A sum that overflows is no limit either.
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
