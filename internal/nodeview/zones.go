package nodeview

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/report/zones"
	"github.com/trimtab/trimtab/internal/topology"
)

// Zones returns, for each NUMA node, its resources and how much of them is free.
func Zones(source Source) zones.Node {
	n, _ := read(source, (*View).zones)
	return n
}

// zones does the work of Zones.
func (v *View) zones() zones.Node {
	m, s := v.State.Machine, v.State
	n := zones.Node{ReservedCPUs: m.Format(s.Policy.Pools.Reserved), Owners: v.zoneOwners(), Granted: map[string]map[string]zones.Pod{}}
	for i := range m.Online().All() {
		c := m.CPUs[i]
		n.CPUs = append(n.CPUs, zones.CPU{ID: c.ID, Core: m.GroupOf(topology.CoreLevel, i), Socket: c.Package, Node: c.Node})
	}
	for i := range m.Nodes {
		n.Zones = append(n.Zones, v.zone(i))
	}
	for _, id := range s.Pods() {
		p := s.Pod(id)
		if p.Stopped {
			continue
		}
		n.Pods = append(n.Pods, podOf(p))
		addGranted(n.Granted, p)
	}
	v.subtractBound(n.Zones)
	return n
}

// addGranted adds the devices that the kubelet assigned to a pod, by resource name and device id.
func addGranted(granted map[string]map[string]zones.Pod, p *engine.Pod) {
	if p.Granted == nil {
		return
	}
	for _, g := range p.Granted.Containers {
		for resource, ids := range g.IDs {
			if granted[resource] == nil {
				granted[resource] = map[string]zones.Pod{}
			}
			for _, id := range ids {
				granted[resource][id] = podOf(p)
			}
		}
	}
}

// zoneOwners returns the pods that own CPUs, each with all its CPUs.
func (v *View) zoneOwners() (out []zones.Owner) {
	held := map[string]topology.Set{}
	assigned := map[string]bool{}
	for _, g := range slices.Concat(v.State.Grants(), v.State.ReservedGrants()) {
		held[g.Key.PodUID] = held[g.Key.PodUID].Union(g.CPUs)
		assigned[g.Key.PodUID] = g.From == intent.KoordResourceStatus
	}
	for _, p := range v.State.Owners() {
		uid := p.Pod.UID
		out = append(out, zones.Owner{Pod: podOf(p), CPUs: v.State.Machine.Format(held[uid]), ByScheduler: assigned[uid]})
	}
	slices.SortFunc(out, func(a, b zones.Owner) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	return out
}

// podOf returns the names and the UID of a pod.
func podOf(p *engine.Pod) zones.Pod {
	return zones.Pod{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID}
}

// zone returns a NUMA node with its CPUs and memory. CPUs that containers own are not available. All memory is
// available, because subtractBound subtracts used memory later.
func (v *View) zone(i int) zones.Zone {
	m, s := v.State.Machine, v.State
	node := m.Nodes[i]
	var held topology.Set
	owners := s.CPUsByPod()
	for _, cpus := range owners {
		held = held.Union(cpus)
	}
	allocatable := node.CPUs.Minus(s.Policy.Pools.Reserved)
	z := zones.Zone{
		ID: node.ID, Socket: socketOf(m, i), CPUs: m.Format(node.CPUs), OwnedCPUs: m.Format(node.CPUs.And(held)),
		SharedCPUs: m.Format(node.CPUs.And(s.PoolCPUs(placement.Shared))), ReclaimedCPUs: m.Format(node.CPUs.And(s.PoolCPUs(placement.Reclaimed))),
		ReservedCPUs: m.Format(node.CPUs.And(s.Policy.Pools.Reserved)),
	}
	if node.Kind != topology.DRAM {
		z.Memory = node.Kind.String()
	}
	const milli = 1000
	z.Add(zones.Resource{
		Name: zones.CPUs, Capacity: milli * int64(node.CPUs.Len()), Allocatable: milli * int64(allocatable.Len()),
		Available: milli * int64(allocatable.Len()),
	})
	for uid, cpus := range owners {
		z.Allocate(v.podWithUID(uid), zones.CPUs, milli*int64(allocatable.And(cpus).Len()))
	}
	addMemory(&z, node)
	for j := range m.Nodes {
		z.Costs = append(z.Costs, zones.Cost{Zone: m.Nodes[j].ID, Value: m.Distance(i, j)})
	}
	return z
}

// addMemory adds the memory and huge pages of a NUMA node to a zone. All allocatable memory is available.
func addMemory(z *zones.Zone, node topology.Node) {
	memory := zones.Resource{Name: zones.Memory, Capacity: int64(node.Memory), Allocatable: int64(node.Memory)}
	for size, count := range node.HugePages {
		all := int64(size * count)
		memory.Allocatable = max(0, memory.Allocatable-all)
		z.Add(zones.Resource{Name: zones.HugePages(size), Capacity: all, Allocatable: all, Available: all})
	}
	memory.Available = memory.Allocatable
	z.Add(memory)
}

// podWithUID returns the pod with a UID. For a pod that the state no longer has, it returns only the UID.
func (v *View) podWithUID(uid string) zones.Pod {
	for _, p := range v.State.PodsWhere(func(p *engine.Pod) bool { return p.Pod.UID == uid }) {
		return podOf(p)
	}
	return zones.Pod{UID: uid}
}

// socketOf returns the socket of the NUMA node with index i. For a node without CPUs, it returns the socket of the
// nearest node with CPUs.
func socketOf(m *topology.Machine, i int) int {
	near := -1
	for j, n := range m.Nodes {
		if !n.CPUs.Empty() && (near < 0 || m.Distance(i, j) < m.Distance(i, near)) {
			near = j
		}
	}
	return m.CPUs[m.Nodes[near].CPUs.First()].Package
}

// subtractBound subtracts the requests of containers that are bound to NUMA nodes from the available resources of these
// nodes: memory and huge pages of all bound containers, and CPUs of those that own no CPUs. It subtracts nothing for
// unbound containers, because they can use any node. The scheduler counts the requests of unbound containers for the
// whole machine.
func (v *View) subtractBound(all []zones.Zone) {
	for _, id := range v.State.Containers() {
		c := v.State.Container(id)
		p := v.State.Pod(c.PodID)
		if !c.Alive() || p == nil {
			continue
		}
		if on := boundNodes(v.State.Machine, c); len(on) > 0 {
			part := requestedMilli(p, c) / int64(len(on))
			for i := range all {
				if slices.Contains(on, all[i].ID) {
					all[i].Allocate(podOf(p), zones.CPUs, part)
				}
			}
		}
		v.subtractMemory(all, p, c)
	}
}

// boundNodes returns the ids of the NUMA nodes to which a container in a shared pool is bound; nil if it is not bound
// to NUMA nodes, or not in a shared pool.
func boundNodes(m *topology.Machine, c *engine.Container) (on []int) {
	switch named := c.Assignment.PoolID.NodeIDs(); {
	case c.Assignment.Pool != placement.Shared:
		return nil
	case len(named) > 0:
		return named
	case c.PoolNode.Set:
		return []int{c.PoolNode.V}
	}
	for _, n := range m.Nodes { // nodes that a scheduler chose
		if !n.CPUs.And(c.Assignment.Near).Empty() {
			on = append(on, n.ID)
		}
	}
	return on
}

// requestedMilli returns a container's CPU request in milli-CPUs.
func requestedMilli(p *engine.Pod, c *engine.Container) int64 {
	if spec, known := p.Spec.Container(c.Name); known {
		return spec.Requests[lifecycle.ResourceCPU]
	}
	const sharesOfCPU, none = 1024, 2 // the kubelet's shares for one CPU, and for no request
	if s := int64(c.Pristine.CPU.Shares.V); s > none {
		return (s*1000 + sharesOfCPU - 1) / sharesOfCPU
	}
	return 0
}

// subtractMemory subtracts the memory and huge pages that a container requests from the zones of its memory nodes, the
// nearest first. It does nothing for a container whose memory is not bound.
func (v *View) subtractMemory(all []zones.Zone, p *engine.Pod, c *engine.Container) {
	v.eachMemory(all, p, c, func(node int, name string, amount int64) { all[node].Allocate(podOf(p), name, amount) })
}

// eachMemory distributes the requests of a container for memory and huge pages over the zones of its memory nodes, the
// nearest first. For each resource, it calls visit with each zone that gets a part of the request, and with the amount
// of this part; node is the index of the zone. It does nothing for a container whose memory is not bound.
func (v *View) eachMemory(all []zones.Zone, p *engine.Pod, c *engine.Container, visit func(node int, name string, amount int64)) {
	list := cmp.Or(c.Mems, c.Pristine.CPU.Mems)
	if list == "" {
		return
	}
	ids, err := topology.ParseList(list)
	if err != nil || len(ids) == 0 || len(ids) == len(all) && c.Assignment.Pool != placement.Exclusive {
		return
	}
	spec, known := p.Spec.Container(c.Name)
	amounts := spec.Requests
	if !known && p.Intent.QoS == intent.Guaranteed { // a Guaranteed container's limit is its request
		amounts = lifecycle.Amounts{lifecycle.ResourceMemory: c.Pristine.Memory.Limit.V}
	}
	var near topology.Set
	if c.Assignment.Pool == placement.Exclusive {
		near = c.Assignment.Owned
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		amount := amounts[name]
		if amount <= 0 || name != zones.Memory && !strings.HasPrefix(name, zones.HugePagesPrefix) {
			continue
		}
		free := make([]uint64, len(all))
		for i := range all {
			free[i] = uint64(all[i].Resource(name).Available)
		}
		before := slices.Clone(free)
		choose.SubtractMemory(v.State.Machine, free, near, ids, uint64(amount))
		for i := range all {
			if amount := int64(before[i] - free[i]); amount > 0 {
				visit(i, name, amount)
			}
		}
	}
}
