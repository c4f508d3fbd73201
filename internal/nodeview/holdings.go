package nodeview

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/zones"
	"github.com/trimtab/trimtab/internal/topology"
)

// Holdings has the CPUs, memory and devices that the containers of a node have, and those that they could have.
type Holdings struct {
	// Synced means that the agent has decided a runtime's list of containers. If it is false, the other fields are
	// incomplete.
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
	// containers, such as ended init containers, may own CPUs until the pod ends.
	Listed bool
	// CPUs are the ids of the CPUs that the container owns, ascending.
	CPUs []int
	// CPUNodes has the id of the NUMA node of each of these CPUs, ascending.
	CPUNodes []int
	// Memory has the container's requests for memory if its memory is bound to NUMA nodes. The nearest of these nodes
	// provides memory first.
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
	// Memory is allocated in the order of container ids, so the result agrees with the reports to schedulers (zones).
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

// freeMemory returns the memory of each NUMA node before any container has memory, and the amounts that containers can
// have.
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

// memoryZone returns the memory of a NUMA node before any container has memory.
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

// cpuAndNodeIDs lists the kernel's ids of CPUs, and the ids of their NUMA nodes; nil for none.
func cpuAndNodeIDs(m *topology.Machine, cpus topology.Set) (ids, nodes []int) {
	ids = sortedCPUIDs(m, cpus)
	for i := range m.Nodes {
		for range cpus.And(m.Nodes[i].CPUs).Len() {
			nodes = append(nodes, m.Nodes[i].ID)
		}
	}
	return ids, nodes
}
