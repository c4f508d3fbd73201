package zones

import (
	"slices"
	"strings"
)

// Node has a node's resources, and what is free of them.
type Node struct {
	// Zones are the NUMA nodes in ascending order of id.
	Zones []Zone
	// CPUs are the online CPUs in ascending order of id.
	CPUs []CPU
	// Reserved are CPUs that no pod is given, as a kernel list.
	Reserved string
	// Owners are the pods that own CPUs.
	Owners []Owner
	// Pods are the names of the pods that have a sandbox.
	Pods []Pod
	// Granted are the pods that have devices, by resource and id of the device.
	Granted map[string]map[string]Pod
	// ByKubelet: the kubelet's CPU manager gives CPUs away, not the agent.
	ByKubelet bool
}

// Pod names a pod.
type Pod struct{ Namespace, Name, UID string }

// Zone is a NUMA node.
type Zone struct {
	ID     int
	Socket int    // of its first CPU; of the nearest node with CPUs where it has none
	CPUs   string // its CPUs, as a kernel list
	// Owned, Shared and Reclaimed are those of its CPUs that containers own and that the
	// default pools have, as kernel lists.
	Owned, Shared, Reclaimed string
	// Memory says what its memory is where that is not DRAM, such as "HBM"; else "".
	Memory string
	// Reserved are those of its CPUs that no pod is given, as a kernel list.
	Reserved string
	// Resources are in order of name.
	Resources []Resource
	// Allocations are what pods have of the zone, in order of UID. Their sum is what
	// Available lacks of Allocatable, and more where pods were promised more.
	Allocations []Allocation
	// Costs are the distances to all zones, itself too, in their order.
	Costs []Cost
}

// Names of resources, as Kubernetes has them.
const (
	CPUs   = "cpu" // counted in thousandths
	Memory = "memory"
	Huge   = "hugepages-" // and the size, such as 2Mi
)

// Resource is an amount of a zone: thousandths of a CPU, bytes, devices.
type Resource struct {
	Name string
	// Capacity is what is there, Allocatable what pods can have of it, Available what
	// is left of that.
	Capacity, Allocatable, Available int64
}

// Cost is the distance to a zone; 10 is local.
type Cost struct{ Zone, Value int }

// CPU is a CPU's place. Core is a number that no other core of the machine has.
type CPU struct{ ID, Core, Socket, Node int }

// Owner is a pod's part of the CPUs.
type Owner struct {
	Pod  Pod
	CPUs string
	// Assigned: Koordinator's scheduler chose the CPUs.
	Assigned bool
}

// Allocation is a pod's part of a zone: amounts by resource.
type Allocation struct {
	Pod      Pod
	Requests map[string]int64
}

// Take lowers what is available of a resource, for a pod; it does not go below 0.
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

// Of returns a resource of a zone; zero where it has none.
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
