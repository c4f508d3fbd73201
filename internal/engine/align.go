package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// TopologyManager is the configuration of the topology manager. It says how strictly the CPUs, memory and devices of a
// container must be on the same NUMA nodes. It applies to containers that own CPUs chosen by the agent.
type TopologyManager struct {
	Policy numahints.Policy
	// PreferClosest prefers NUMA nodes that are near each other.
	PreferClosest    bool
	AlignedResources []string // the names of the resources that must be on the same NUMA nodes; only the policy numeric uses it
	// PodScope means that all containers of a pod must be on the same NUMA nodes (scope pod of the kubelet's topology
	// manager).
	PodScope bool
	// RefuseUnaligned means that the agent refuses a container that Policy does not admit. If RefuseUnaligned is not
	// set, the agent chooses the CPUs of such a container as with the policy best-effort, and reports a problem.
	RefuseUnaligned bool
}

// topologyKey is the configuration key in the problems of containers that the topology manager does not admit.
const topologyKey = "topologyManager.policy"

// applies reports whether the policy can have an effect on a machine.
func (t *TopologyManager) applies(m *topology.Machine) bool {
	return t.Policy != "" && t.Policy != numahints.None && len(m.Nodes) > 1 && len(m.Nodes) <= numahints.MaxNodes
}

// alignment is the topology manager's choice of NUMA nodes for a container that will own CPUs.
type alignment struct {
	// nodesLimited means that the container may get only the CPUs in cpus, and the memory of the nodes in nodes.
	nodesLimited bool
	cpus         topology.Set // the CPUs of the NUMA nodes in nodes
	nodes        []int        // the ids of the chosen NUMA nodes, ascending
	// preferred means that the hints of every resource prefer these nodes.
	preferred bool
	reason    string // why these nodes were chosen, as a clause for users; "" if the topology manager is off
	// refusal is the reason why the policy does not admit the container, as a sentence; "" if the policy admits the
	// container.
	refusal string
}

// align chooses NUMA nodes for a container that will own n CPUs of the set free. If the topology manager is off, or if
// the pod itself requests NUMA nodes, the result limits neither CPUs nor memory.
func (s *placer) align(n int, free topology.Set, memory placement.Memory) alignment {
	t, m := &s.n.policy.Topology, s.n.machine
	if !t.applies(m) || s.p.Intent.NUMA.IsSet() {
		return alignment{}
	}
	hints := s.hints(n, free, memory)
	var a alignment
	got, used, refusal := s.mergeHints(hints)
	a.refusal = refusal
	if got.Any {
		a.reason = fmt.Sprintf("topology manager (%s): any NUMA node", used)
		return a
	}
	nodes := got.Nodes
	if got.ResourceHints != nil && !got.ResourceHints[0].Any { // under the policy numeric, each resource has its own nodes
		nodes = got.ResourceHints[0].Nodes
	}
	for _, i := range nodes.Indices() {
		a.cpus = a.cpus.Union(m.Nodes[i].CPUs)
	}
	a.nodes = nodeIDs(m, nodes)
	a.nodesLimited, a.preferred = true, got.Preferred
	a.reason = fmt.Sprintf("topology manager (%s): NUMA nodes %s", used, topology.FormatList(a.nodes))
	if !got.Preferred {
		a.reason += ", not preferred"
	}
	if !got.Exact {
		a.reason += ", the best nodes found before the search limit"
	}
	return a
}

// hints returns the topology manager's hints for a container that will own n CPUs: first the hints for CPUs, then those
// for memory and devices. With scope pod, the hints are about the whole pod, as in the kubelet. If containers of the
// pod own CPUs already, two things then change. The owned CPUs count as free, and each hint for CPUs includes the NUMA
// nodes of the owned CPUs. And there is no hint for memory.
func (s *placer) hints(n int, free topology.Set, memory placement.Memory) []numahints.Resource {
	t, m := &s.n.policy.Topology, s.n.machine
	owned := s.n.ledger.CPUsOfPod(s.p.Pod.UID)
	bytes := memory.Bytes
	if t.PodScope {
		cpus, all := s.podDemand()
		n, bytes = max(n+owned.Len(), cpus), max(bytes, all)
		free = free.Union(owned)
	}
	cpus := &numahints.Counts{Need: uint64(n)} //nolint:gosec // a positive number
	mem := &numahints.Counts{Need: bytes}
	var has numahints.Mask // the NUMA nodes of the CPUs that the pod owns
	usable := s.n.policy.Pools.Online.Minus(s.n.policy.Pools.Reserved)
	for i := range m.Nodes {
		on := &m.Nodes[i]
		cpus.Free = append(cpus.Free, uint64(free.And(on.CPUs).Len()))           //nolint:gosec // a count
		cpus.Capacity = append(cpus.Capacity, uint64(usable.And(on.CPUs).Len())) //nolint:gosec // a count
		if !owned.And(on.CPUs).Empty() {
			has |= 1 << i
		}
		bytes := uint64(0)
		if on.Kind == topology.DRAM {
			bytes = on.Memory
		}
		mem.Capacity = append(mem.Capacity, bytes)
	}
	first := !t.PodScope || has == 0
	if !first {
		cpus.RequireNodes(has)
	}
	out := []numahints.Resource{{Name: lifecycle.ResourceCPU, Counts: cpus}}
	if mem.Free = memory.FreeByNode; first && needsMemoryHints(mem) {
		out = append(out, numahints.Resource{Name: lifecycle.ResourceMemory, Counts: mem})
	}
	out = append(out, s.hugePageHints()...)
	// A network card that a scheduler allocated is found by its PCI address.
	for _, g := range append(s.alignedDevices(), lifecycle.DeviceGrant{CDI: s.p.Intent.RDMA.V}) {
		out = append(out, deviceHints(m, g)...)
	}
	out = append(out, s.exclusiveHints()...)
	return append(out, pluginHints(m, s.c.decision.hints)...)
}

// needsMemoryHints reports whether hints for memory are needed. They are needed if the container or its pod has a
// memory limit. Without a memory limit, they are needed only if a NUMA node has almost no free memory, because only
// then can a hint exclude a node.
func needsMemoryHints(c *numahints.Counts) bool {
	return c.Free != nil && (c.Need > assumedMemoryBytes || slices.Min(c.Free) < c.Need)
}

// podDemand returns how many CPUs and how many bytes of memory the containers of a pod need at the same time, at most.
// The spec's memory limits give the bytes. CPUs count only for containers that request whole CPUs, with a limit equal
// to the request. Init containers run before the other containers. Sidecars run at the same time as all others.
func (s *placer) podDemand() (cpus int, bytes uint64) {
	if s.p.Spec == nil {
		return 0, 0
	}
	const milli = 1000
	var together, before [2]int64 // CPUs and bytes
	for _, c := range s.p.Spec.Containers {
		demand := [2]int64{0, c.Limits[lifecycle.ResourceMemory]}
		if all := c.Requests[lifecycle.ResourceCPU]; all%milli == 0 && all == c.Limits[lifecycle.ResourceCPU] {
			demand[0] = all / milli
		}
		for i := range demand {
			switch c.Kind {
			case lifecycle.App, lifecycle.Sidecar:
				together[i] += demand[i]
			case lifecycle.Init:
				before[i] = max(before[i], demand[i])
			case lifecycle.Ephemeral:
			}
		}
	}
	return int(max(together[0], before[0])), uint64(max(together[1], before[1])) //nolint:gosec // amounts are positive
}

// deviceHints returns the hints for granted devices whose NUMA nodes are known. If one resource has several devices,
// its hint requires as many NUMA nodes as there are devices. If the devices are on fewer nodes, the hint requires all
// of the devices' nodes.
func deviceHints(m *topology.Machine, g lifecycle.DeviceGrant) (out []numahints.Resource) {
	add := func(name string, need int, at numahints.Mask) {
		if at == 0 {
			return
		}
		c := &numahints.Counts{Need: uint64(max(1, min(need, at.Len())))} //nolint:gosec // a count
		for i := range m.Nodes {
			c.Free = append(c.Free, uint64(at>>i&1))
		}
		c.Capacity = c.Free
		out = append(out, numahints.Resource{Name: intent.Printable(name), Counts: c})
	}
	function := func(address string) {
		if dev, ok := m.DeviceAt(address); intent.IsPCIAddress(address) && ok {
			add(address, 1, nodesWithCPUs(m, m.CPUsNear(dev)))
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(g.IDs)) {
		var at numahints.Mask
		for _, id := range g.NUMA[resource] {
			if i, ok := m.NodeIndex(id); ok {
				at |= 1 << i
			}
		}
		add(resource, len(g.IDs[resource]), at)
		for _, id := range g.IDs[resource] {
			function(id)
		}
	}
	for _, name := range g.CDI {
		function(name[strings.LastIndexByte(name, '=')+1:])
	}
	for _, node := range g.Nodes {
		if dev, ok := m.DeviceWithNumber(fmt.Sprintf("%d:%d", node.Major, node.Minor)); ok && node.Type == "c" {
			add(dev.Address, 1, nodesWithCPUs(m, m.CPUsNear(dev)))
		}
	}
	return out
}

// nodesWithCPUs returns the NUMA nodes that have some of the CPUs.
func nodesWithCPUs(m *topology.Machine, cpus topology.Set) (at numahints.Mask) {
	for i := range m.Nodes {
		if !m.Nodes[i].CPUs.And(cpus).Empty() {
			at |= 1 << i
		}
	}
	return at
}

// describeFit says for users on which NUMA nodes each resource fits.
func describeFit(m *topology.Machine, hints []numahints.Resource) string {
	var parts []string
	for _, r := range hints {
		var alone []int
		for i := range m.Nodes {
			if fitsAlone(r, i) {
				alone = append(alone, m.Nodes[i].ID)
			}
		}
		where := "on no single NUMA node"
		if slices.Sort(alone); len(alone) > 0 {
			where = "on NUMA nodes " + topology.FormatList(alone)
		}
		parts = append(parts, r.Name+" fits "+where)
	}
	return strings.Join(parts, ", ")
}

// chooseNewCPUs asks the placement policy for n CPUs that the container will own, on the NUMA nodes that the topology
// manager chose.
func (s *placer) chooseNewCPUs(n int) (cpus topology.Set, why string, err error) {
	free, memory, passed := s.n.ownableCPUs(s.p), s.memoryDemand(), s.takeOverCPUs()
	a := s.align(n, free.Union(passed), memory)
	if a.refusal != "" {
		if s.n.policy.Topology.RefuseUnaligned {
			return cpus, "", s.rejectUnaligned(a.refusal)
		}
		s.reportMisaligned(a.refusal, "the agent chooses the container's CPUs as with the policy best-effort")
	}
	ask := func(free, passed topology.Set) (placement.Assignment, error) {
		w := placement.CPURequest{N: n, TakenOverCPUs: passed, Memory: memory}
		return s.n.policy.Placement.Choose(s.n.placementView(free), s.subject(), w)
	}
	var got placement.Assignment
	if a.nodesLimited {
		got, err = ask(free.And(a.cpus), passed.And(a.cpus))
	}
	switch {
	case !a.nodesLimited:
		got, err = ask(free, passed)
	case err == nil && freeMemoryOn(s.n.machine, memory, a.nodes) >= memory.Bytes:
		s.alignedNodes = a.nodes
	case err == nil: // these nodes have too little free memory, so memory may be on other nodes, too
	case !a.preferred || s.n.policy.Topology.Policy == numahints.BestEffort:
		// The placement policy found no CPUs on these nodes, for example because they have too few. The nodes
		// are not required, so the placement policy may choose CPUs on all nodes.
		a.reason = ""
		got, err = ask(free, passed)
	default: // no CPUs found on the required nodes; for example, the pod requires whole cores, which hints do not consider
		reason := fmt.Sprintf("on NUMA nodes %s: %v", topology.FormatList(a.nodes), err)
		if s.n.policy.Topology.RefuseUnaligned {
			return cpus, "", s.rejectUnaligned(reason)
		}
		if got, err = ask(free, passed); err == nil {
			a.reason = ""
			s.reportMisaligned(reason, "the agent chooses the container's CPUs on all NUMA nodes")
		}
	}
	if err == nil {
		err = s.n.checkGrantable(s.p, s.c.Key, got.CPUs)
	}
	return got.CPUs, strings.TrimPrefix(a.reason+"; "+got.Why, "; "), err
}

// freeMemoryOn returns the sum of the free memory of the NUMA nodes with the given ids.
func freeMemoryOn(m *topology.Machine, memory placement.Memory, nodes []int) (bytes uint64) {
	for i, left := range memory.FreeByNode {
		if slices.Contains(nodes, m.Nodes[i].ID) {
			bytes += left
		}
	}
	return bytes
}

// rejectUnaligned makes the plan refuse the container because of the topology manager. It returns the reason, a
// sentence, as an error.
func (s *placer) rejectUnaligned(reason string) error {
	s.c.decision.unalignedReason = fmt.Sprintf("%s: %s: %s", topologyKey, s.n.policy.Topology.Policy, reason)
	return errors.New(reason)
}

// reportMisaligned adds a problem: the container does not meet the policy of the topology manager, for the given
// reason. The parameter then is a clause that says what the agent does instead.
func (s *placer) reportMisaligned(reason, then string) {
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
		Key: topologyKey, Value: string(s.n.policy.Topology.Policy), Reason: reason, Warning: true, Then: then,
	})
}

// alignedMemory returns the usable memory nodes that the topology manager chose. If the topology manager chose none of
// the usable nodes, alignedMemory returns all usable nodes.
func (s *placer) alignedMemory(usable []int) []int {
	both := slices.DeleteFunc(slices.Clone(usable), func(id int) bool { return !slices.Contains(s.alignedNodes, id) })
	if len(both) == 0 {
		return usable
	}
	return both
}
