package zones

import (
	"slices"
	"strings"
)

// Node has a node's resources, and the free part of them.
type Node struct {
	// Zones are the NUMA nodes in ascending order of id.
	Zones []Zone
	// CPUs are the online CPUs in ascending order of id.
	CPUs []CPU
	// Reserved are CPUs that no pod gets, as a kernel list.
	Reserved string
	// Owners are the pods that own CPUs.
	Owners []Owner
	// Pods are the names of the pods that have a sandbox.
	Pods []Pod
	// Granted are the pods that have devices, by resource and id of the device.
	Granted map[string]map[string]Pod
	// ByKubelet means that the kubelet's CPU manager assigns CPUs, and not the agent.
	ByKubelet bool
}

// Pod names a pod.
type Pod struct{ Namespace, Name, UID string }

// Zone is a NUMA node.
type Zone struct {
	ID     int
	Socket int    // socket of its first CPU; if it has no CPUs, that of the nearest node with CPUs
	CPUs   string // its CPUs, as a kernel list
	// Owned, Shared and Reclaimed are its CPUs that containers own, and its CPUs in the default pools, as kernel
	// lists.
	Owned, Shared, Reclaimed string
	// Memory is the kind of its memory if that is not DRAM, such as "HBM"; otherwise "".
	Memory string
	// Reserved are its CPUs that no pod gets, as a kernel list.
	Reserved string
	// Resources are sorted by name.
	Resources []Resource
	// Allocations are the amounts of the zone that pods have, sorted by UID. Their sum is Allocatable minus
	// Available, or more if pods were promised more than there is.
	Allocations []Allocation
	// Costs are the distances to all zones, including itself, in their order.
	Costs []Cost
}

// Names of resources, as Kubernetes has them.
const (
	CPUs   = "cpu" // counted in thousandths
	Memory = "memory"
	Huge   = "hugepages-" // followed by the size, such as 2Mi
)

// Resource is an amount of a zone: thousandths of a CPU, bytes, devices.
type Resource struct {
	Name string
	// Capacity is the whole amount, Allocatable the part that pods can get, and Available the part of that which is
	// still free.
	Capacity, Allocatable, Available int64
}

// Cost is the distance to a zone; 10 is local.
type Cost struct{ Zone, Value int }

// CPU is the place of a CPU. Core is a number that is unique in the machine.
type CPU struct{ ID, Core, Socket, Node int }

// Owner is a pod that owns CPUs.
type Owner struct {
	Pod  Pod
	CPUs string
	// Assigned means that Koordinator's scheduler chose the CPUs.
	Assigned bool
}

// Allocation has the amounts of a zone that a pod has, by resource.
type Allocation struct {
	Pod      Pod
	Requests map[string]int64
}

// Take subtracts an amount of a resource from the available amount, for a pod. The result is not below 0.
func (z *Zone) Take(pod Pod, name string, amount int64) {
	if amount <= 0 {
		return
	}
	for i, r := range z.Resources {
		if r.Name == name {
			z.Resources[i].Available = max(0, r.Available-amount)
		}
	}
	z.allocate(pod, name, amount)
}

// allocate notes that a pod has an amount of the zone.
func (z *Zone) allocate(pod Pod, name string, amount int64) {
	i, there := slices.BinarySearchFunc(z.Allocations, pod, func(a Allocation, pod Pod) int { return strings.Compare(a.Pod.UID, pod.UID) })
	if !there {
		z.Allocations = slices.Insert(z.Allocations, i, Allocation{Pod: pod, Requests: map[string]int64{}})
	}
	z.Allocations[i].Requests[name] += amount
}

// Of returns a resource of a zone, or zero if the zone does not have it.
func (z *Zone) Of(name string) Resource {
	i := slices.IndexFunc(z.Resources, func(r Resource) bool { return r.Name == name })
	if i < 0 {
		return Resource{Name: name}
	}
	return z.Resources[i]
}

// Add adds to a resource of a zone.
func (z *Zone) Add(r Resource) {
	i, there := slices.BinarySearchFunc(z.Resources, r.Name, func(r Resource, name string) int { return strings.Compare(r.Name, name) })
	if !there {
		z.Resources = slices.Insert(z.Resources, i, r)
		return
	}
	had := &z.Resources[i]
	had.Capacity, had.Allocatable, had.Available = had.Capacity+r.Capacity, had.Allocatable+r.Allocatable, had.Available+r.Available
}
