package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// alignedDevices returns the devices whose NUMA nodes restrict the CPUs that a container will own. With scope pod these
// are the devices of all containers of the pod, because the CPUs of the first container determine the NUMA nodes of all
// others. Devices of the same resource count together, even if they belong to several containers.
func (s *placer) alignedDevices() []lifecycle.DeviceGrant {
	if !s.n.policy.Topology.PodScope || s.p.Granted == nil {
		return s.subject().Devices
	}
	all := lifecycle.DeviceGrant{IDs: map[string][]string{}, NUMA: map[string][]int{}}
	for _, name := range slices.Sorted(maps.Keys(s.p.Granted.Containers)) {
		g := s.p.Granted.Containers[name]
		all.CDI, all.Nodes = append(all.CDI, g.CDI...), append(all.Nodes, g.Nodes...)
		for resource, ids := range g.IDs { // later containers get the devices of init containers, so several containers may have the same device
			all.IDs[resource] = union(all.IDs[resource], ids)
			all.NUMA[resource] = union(all.NUMA[resource], g.NUMA[resource])
		}
	}
	return []lifecycle.DeviceGrant{all, s.c.RequestedDevices}
}

// union returns the elements of a, and the elements of b that are not in a.
func union[T comparable](a, b []T) []T {
	for _, e := range b {
		if !slices.Contains(a, e) {
			a = append(a, e)
		}
	}
	return a
}
