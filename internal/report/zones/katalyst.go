package zones

import (
	"slices"
	"strconv"
	"strings"
)

// CNR returns the status of a CustomNodeResource (node.katalyst.kubewharf.io/v1alpha1): the NUMA nodes as children of
// their sockets, with the allocations of pods. The status has no free amounts, because Katalyst's scheduler itself
// subtracts the allocations from the allocatable amounts.
func (n Node) CNR(m TopologyManager) map[string]any {
	var sockets []any
	for _, id := range n.sockets() {
		var below []any
		for _, z := range n.Zones {
			if z.Socket == id {
				below = append(below, z.cnr())
			}
		}
		sockets = append(sockets, map[string]any{"type": "Socket", "name": strconv.Itoa(id), "resources": map[string]any{}, "children": below})
	}
	status := map[string]any{"topologyPolicy": m.policyName(), "resources": n.resources()}
	if len(sockets) > 0 {
		status["topologyZone"] = sockets
	}
	return map[string]any{"status": status}
}

// sockets returns the sockets of the zones, in ascending order.
func (n Node) sockets() (out []int) {
	for _, z := range n.Zones {
		out = append(out, z.Socket)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// resources returns the sums of CPUs, memory and huge pages over all zones. It leaves out devices, because a device
// with several zones counts in each of its zones.
func (n Node) resources() map[string]any {
	var sum Zone
	for _, z := range n.Zones {
		for _, r := range z.Resources {
			if r.Name == CPUs || r.Name == Memory || strings.HasPrefix(r.Name, HugePagesPrefix) {
				sum.Add(r)
			}
		}
	}
	return sum.amounts()
}

// amounts returns the capacity of a zone, and the allocatable part of the capacity, which pods can get.
func (z Zone) amounts() map[string]any {
	capacity, allocatable := map[string]any{}, map[string]any{}
	for _, r := range z.Resources {
		capacity[r.Name], allocatable[r.Name] = quantity(r.Name, r.Capacity), quantity(r.Name, r.Allocatable)
	}
	return map[string]any{"capacity": capacity, "allocatable": allocatable}
}

// cnr returns a zone as a NUMA node in the status of a CustomNodeResource.
func (z Zone) cnr() map[string]any {
	var distances []string
	for _, c := range z.Costs {
		distances = append(distances, strconv.Itoa(c.Value))
	}
	attributes := []any{attribute("numa_distance", strings.Join(distances, ","))}
	if z.ReservedCPUs != "" {
		attributes = append(attributes, attribute("reserved_cpu_list", z.ReservedCPUs))
	}
	out := map[string]any{"type": "Numa", "name": strconv.Itoa(z.ID), "resources": z.amounts(), "attributes": attributes}
	var taken []any
	for _, a := range z.Allocations {
		requests := map[string]any{}
		for name, amount := range a.Requests {
			requests[name] = quantity(name, amount)
		}
		taken = append(taken, map[string]any{"consumer": a.Pod.Namespace + "/" + a.Pod.Name + "/" + a.Pod.UID, "requests": requests})
	}
	if len(taken) > 0 {
		out["allocations"] = taken
	}
	return out
}
