package lifecycle

import "math"

// Sum is what a pod has of something that its containers have, as Kubernetes counts requests and limits (1.36,
// component-helpers' PodRequests and PodLimits): app containers and sidecars together or, where that is more, an init
// container beside the sidecars that start before it. of is what one container has; below 0 counts nothing, and a sum
// that does not fit is math.MaxInt64.
//
// every reports whether each container has some, without which the kubelet sets no limit on the pod's cgroup. An init
// container or a sidecar counts there together with the sidecars before it, too.
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

// Request is what a pod asks for of a resource: what it asks for as a whole, else what its containers ask for, else its
// own limit, which the API server takes for the request then; and its overhead in any case. 0 is nothing.
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

// Limit is what the kubelet limits a pod's cgroup to: its own limit as a whole, else the sum of its containers' where
// each has one; and its overhead beside. 0 is
// no limit, which is what a sum that does not fit is, too.
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

// AddAmounts adds two amounts; below 0 counts nothing, and what does not fit is math.MaxInt64.
func AddAmounts(a, b int64) int64 {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
