package nodeview

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/zones"
	"github.com/trimtab/trimtab/internal/topology"
)

// Holdings has the CPUs, memory and devices of a node: in Pods those that containers have, and in the other fields
// those that containers could have.
type Holdings struct {
	// Synced means that a runtime has sent its list of containers, and that the agent has decided about these
	// containers. If Synced is false, the other fields are incomplete.
	Synced bool
	Pods   []PodHoldings // in order of sandbox id
	// CPUs are the ids of the CPUs that containers can own.
	CPUs []int
	// Memory are the amounts of memory that containers can have, by type and NUMA node.
	Memory []MemoryHolding
	// Devices are the CDI devices that a container can have exclusively, in order of name.
	Devices []DeviceHolding
}

// PodHoldings has the CPUs, memory and devices of a pod's containers.
type PodHoldings struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	// Containers are in the order of the pod's spec if the spec is known.
	Containers []ContainerHoldings
}

// ContainerHoldings has the CPUs, memory and devices of a container.
type ContainerHoldings struct {
	Name string
	// Listed means that the container lives, or that the pod's spec has it as an app container or sidecar. Other
	// containers, such as ended init containers, can still own CPUs until the pod ends.
	Listed bool
	// CPUs are the ids of the CPUs that the container owns, ascending.
	CPUs []int
	// CPUNodes has one NUMA node id for each owned CPU: the id of the CPU's node. The ids are in ascending order, so
	// they are not in the order of CPUs.
	CPUNodes []int
	// If the container's memory is bound to NUMA nodes, Memory says how much of the requested memory each node
	// provides. The nearest node provides memory first.
	Memory []MemoryHolding
	// Devices are the CDI devices that only this container has.
	Devices []DeviceHolding
}

// DeviceHolding is a CDI device.
type DeviceHolding struct {
	Name  string // qualified
	Nodes []int  // the ids of the NUMA nodes near the device; nil if not known
}

// MemoryHolding is an amount of memory on a NUMA node.
type MemoryHolding struct {
	Type  string // "memory", or "hugepages-" and the size, as Kubernetes names them
	Node  int    // the kernel's id
	Bytes int64
}

// HoldingsOf reads the CPUs, memory and devices of the node's containers. devices are the node's CDI devices; nil if no
// container can have a device exclusively.
func HoldingsOf(source Source, devices []lifecycle.NodeDevice) Holdings {
	h, _ := read(source, func(v *View) Holdings { return v.holdings(devices) })
	return h
}

// holdings does the work of HoldingsOf.
func (v *View) holdings(devices []lifecycle.NodeDevice) Holdings {
	m, s := v.State.Machine, v.State
	h := Holdings{Synced: !v.Synced.IsZero(), CPUs: sortedCPUIDs(m, m.Online().Minus(s.Policy.Pools.Reserved))}
	var free []zones.Zone
	free, h.Memory = freeMemory(m)
	var near map[string][]int
	h.Devices, near = v.deviceHoldings(devices)
	owned := map[placement.Key]topology.Set{}
	byPod := map[string][]string{}
	for _, g := range s.Grants() {
		owned[g.Key] = g.CPUs
		if g.Key.Container != "" {
			byPod[g.Key.PodUID] = append(byPod[g.Key.PodUID], g.Key.Container)
		}
	}
	// Memory of NUMA nodes is counted for one container after another, in the order of container ids. Zones uses the
	// same order, so this result agrees with the reports to schedulers.
	memory := map[string][]MemoryHolding{}
	for _, id := range s.Containers() {
		if c := s.Container(id); c.Alive() && s.Pod(c.PodID) != nil {
			v.eachMemory(free, s.Pod(c.PodID), c, func(node int, name string, amount int64) {
				free[node].Allocate(zones.Pod{}, name, amount)
				memory[id] = append(memory[id], MemoryHolding{Type: name, Node: m.Nodes[node].ID, Bytes: amount})
			})
		}
	}
	for _, id := range s.Pods() {
		p := s.Pod(id)
		if p.Stopped {
			continue
		}
		pod := PodHoldings{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID, Labels: p.Pod.Labels, Annotations: p.Pod.Annotations}
		for _, c := range v.podContainers(p, byPod[p.Pod.UID]) {
			key := placement.Key{PodUID: p.Pod.UID, Container: c.Name}
			c.CPUs, c.CPUNodes = cpuAndNodeIDs(m, owned[key])
			for _, name := range s.Devices()[key] {
				c.Devices = append(c.Devices, DeviceHolding{name, near[name]})
			}
			c.Memory = memory[c.id]
			pod.Containers = append(pod.Containers, c.ContainerHoldings)
		}
		h.Pods = append(h.Pods, pod)
	}
	return h
}

// deviceHoldings lists the CDI devices that containers have or can have exclusively. near has the NUMA nodes near each
// CDI device of the node, by its name.
func (v *View) deviceHoldings(devices []lifecycle.NodeDevice) (all []DeviceHolding, near map[string][]int) {
	near = map[string][]int{}
	for i := range devices {
		near[devices[i].Name] = v.State.NodesOfDevice(&devices[i])
	}
	for _, d := range v.State.DeviceUses(devices) {
		if !d.NotInSpecs {
			all = append(all, DeviceHolding{d.Name, d.Nodes})
		}
	}
	return all, near
}

// freeMemory returns, for each NUMA node, a zone in which all memory that containers can have is free. all has the same
// amounts as a list.
func freeMemory(m *topology.Machine) (free []zones.Zone, all []MemoryHolding) {
	free = make([]zones.Zone, len(m.Nodes))
	for i := range m.Nodes {
		free[i] = memoryZone(m.Nodes[i])
		for _, r := range free[i].Resources {
			if r.Allocatable > 0 {
				all = append(all, MemoryHolding{Type: r.Name, Node: m.Nodes[i].ID, Bytes: r.Allocatable})
			}
		}
	}
	return free, all
}

// memoryZone returns the zone of a NUMA node in which all memory that containers can have is free.
func memoryZone(n topology.Node) zones.Zone {
	z := zones.Zone{ID: n.ID}
	addMemory(&z, n)
	return z
}

// containerWithID is a ContainerHoldings with the container's id.
type containerWithID struct {
	ContainerHoldings
	id string // "" if the container does not live
}

// podContainers lists the containers of a pod: those in its spec, live containers, and owners of CPUs. owners has the
// names of the containers that own CPUs.
func (v *View) podContainers(p *engine.Pod, owners []string) []containerWithID {
	var out []containerWithID
	at := map[string]int{}
	add := func(name string, listed bool) *containerWithID {
		i, known := at[name]
		if !known {
			i = len(out)
			at[name] = i
			out = append(out, containerWithID{ContainerHoldings: ContainerHoldings{Name: name}})
		}
		out[i].Listed = out[i].Listed || listed
		return &out[i]
	}
	if p.Spec != nil {
		for _, c := range p.Spec.Containers {
			add(c.Name, c.Kind == lifecycle.App || c.Kind == lifecycle.Sidecar)
		}
	}
	for _, id := range v.State.ContainersOf(p.Pod.ID) {
		if c := v.State.Container(id); c.Alive() {
			add(c.Name, true).id = id
		}
	}
	for _, name := range owners {
		add(name, false)
	}
	return out
}

// sortedCPUIDs lists the kernel's ids of CPUs, ascending; nil for none.
func sortedCPUIDs(m *topology.Machine, cpus topology.Set) []int {
	var out []int
	for i := range cpus.All() {
		out = append(out, m.CPUs[i].ID)
	}
	slices.Sort(out)
	return out
}

// cpuAndNodeIDs lists the kernel's ids of CPUs. nodes has one NUMA node id for each CPU, but not in the order of ids.
// Both results are nil if there are no CPUs.
func cpuAndNodeIDs(m *topology.Machine, cpus topology.Set) (ids, nodes []int) {
	ids = sortedCPUIDs(m, cpus)
	for i := range m.Nodes {
		for range cpus.And(m.Nodes[i].CPUs).Len() {
			nodes = append(nodes, m.Nodes[i].ID)
		}
	}
	return ids, nodes
}
