package zones

import (
	"slices"
	"strings"
)

// Node has the resources of a node, and how much of each resource is free.
type Node struct {
	// Zones are the NUMA nodes in ascending order of id.
	Zones []Zone
	// CPUs are the online CPUs in ascending order of id.
	CPUs []CPU
	// ReservedCPUs are CPUs that no pod gets, as a kernel list.
	ReservedCPUs string
	// Owners are the pods that own CPUs.
	Owners []Owner
	// Pods are the names of the pods that have a sandbox.
	Pods []Pod
	// Granted has the pod to which a device was given, by the resource and the id of the device.
	Granted map[string]map[string]Pod
	// ByKubelet means that the kubelet's CPU manager assigns CPUs instead of the agent.
	ByKubelet bool
}

// Pod names a pod.
type Pod struct{ Namespace, Name, UID string }

// Zone is a NUMA node.
type Zone struct {
	ID     int
	Socket int    // the socket of the zone's first CPU; for a zone without CPUs, the socket of the nearest zone with CPUs
	CPUs   string // the zone's CPUs, as a kernel list
	// OwnedCPUs are the zone's CPUs that single containers own. SharedCPUs and ReclaimedCPUs are the zone's CPUs in the
	// shared pool and in the reclaimed pool. All three are kernel lists.
	OwnedCPUs, SharedCPUs, ReclaimedCPUs string
	// Memory is the kind of the zone's memory, such as "HBM"; "" for DRAM.
	Memory string
	// ReservedCPUs are the zone's CPUs that no pod gets, as a kernel list.
	ReservedCPUs string
	// Resources are sorted by name.
	Resources []Resource
	// Allocations are the amounts of the zone's resources that pods have, sorted by the UID of the pod. For each
	// resource, the sum of the allocations is Allocatable minus Available, or more if the zone is overcommitted.
	Allocations []Allocation
	// Costs are the distances to all zones, including this zone, in the order of the zones.
	Costs []Cost
}

// Kubernetes' names of resources.
const (
	CPUs            = "cpu" // amounts are in thousandths of a CPU
	Memory          = "memory"
	HugePagesPrefix = "hugepages-" // followed by the size, such as 2Mi
)

// Resource is a resource of a zone. The amounts are thousandths of a CPU, bytes, or numbers of devices.
type Resource struct {
	Name string
	// Capacity is the whole amount. Allocatable is the part of Capacity that pods can get. Available is the part of
	// Allocatable that is still free.
	Capacity, Allocatable, Available int64
}

// Cost is the distance to a zone. The distance of a zone to itself is 10.
type Cost struct{ Zone, Value int }

// CPU has the core, the socket and the NUMA node of a CPU. The number of the core is unique in the node.
type CPU struct {
	ID     int `json:"id"`
	Core   int `json:"core"`
	Socket int `json:"socket"`
	Node   int `json:"node"`
}

// Owner is a pod that owns CPUs.
type Owner struct {
	Pod  Pod
	CPUs string
	// ByScheduler means that Koordinator's scheduler chose the CPUs.
	ByScheduler bool
}

// Allocation has the amounts of a zone's resources that a pod has, by the name of the resource.
type Allocation struct {
	Pod      Pod
	Requests map[string]int64
}

// Allocate gives an amount of a resource to a pod. It subtracts the amount from Available, which does not become
// negative, and adds the amount to Allocations.
func (z *Zone) Allocate(pod Pod, name string, amount int64) {
	if amount <= 0 {
		return
	}
	for i, r := range z.Resources {
		if r.Name == name {
			z.Resources[i].Available = max(0, r.Available-amount)
		}
	}
	z.recordAllocation(pod, name, amount)
}

// recordAllocation adds an amount of a resource to the allocation of a pod.
func (z *Zone) recordAllocation(pod Pod, name string, amount int64) {
	i, there := slices.BinarySearchFunc(z.Allocations, pod, func(a Allocation, pod Pod) int { return strings.Compare(a.Pod.UID, pod.UID) })
	if !there {
		z.Allocations = slices.Insert(z.Allocations, i, Allocation{Pod: pod, Requests: map[string]int64{}})
	}
	z.Allocations[i].Requests[name] += amount
}

// Resource returns a resource of the zone. All amounts are 0 if the zone does not have the resource.
func (z *Zone) Resource(name string) Resource {
	i := slices.IndexFunc(z.Resources, func(r Resource) bool { return r.Name == name })
	if i < 0 {
		return Resource{Name: name}
	}
	return z.Resources[i]
}

// Add adds the amounts of r to the zone's resource of the same name.
func (z *Zone) Add(r Resource) {
	i, there := slices.BinarySearchFunc(z.Resources, r.Name, func(r Resource, name string) int { return strings.Compare(r.Name, name) })
	if !there {
		z.Resources = slices.Insert(z.Resources, i, r)
		return
	}
	had := &z.Resources[i]
	had.Capacity, had.Allocatable, had.Available = had.Capacity+r.Capacity, had.Allocatable+r.Allocatable, had.Available+r.Available
}
