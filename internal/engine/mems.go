package engine

import (
	"errors"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// chooseMemory decides the memory nodes of a new container. The agent never removes one of these nodes later, because
// the kernel would move the container's pages.
func (s *placer) chooseMemory() {
	s.bindMemory()
	s.beginColdStart()
}

// bindMemory binds a new container to memory nodes. A container that owns CPUs, is in a balloon, or is bound to NUMA
// nodes gets the memory nodes near its CPUs. If the nearest nodes have too little free memory, the container gets
// further nodes, too. If another pod has NUMA nodes exclusively, a container in the shared or reclaimed pool gets all
// nodes except those. bindMemory changes nothing if the kubelet chose memory nodes, or if the placement policy leaves
// the nodes as the runtime requested them.
func (s *placer) bindMemory() {
	if s.c.Assignment.Memory.KeepRequested {
		return
	}
	t := s.termsNow()
	if s.c.Assignment.Pool == placement.Exclusive {
		s.c.Assignment.Memory = t.Memory
	}
	if !t.ChoosesCPUsOrMemory || t.KeepsRequestedMemory || s.c.Pristine.CPU.Mems != "" || len(s.n.machine.Nodes) < 2 || len(t.External.Mems) > 0 {
		return
	}
	every, bounded := s.memoryNodes()
	usable := s.alignedMemory(every)
	q := choose.MemoryRequest{
		AllowedNodes: usable, Bytes: uint64(max(s.c.Pristine.Memory.Limit.V, 0)), CPUs: s.n.nearMemoryCPUs(s.p, s.c),
		FallbackKinds: []topology.MemoryKind{topology.HBM, topology.PMEM},
	}
	if q.CPUs.Empty() {
		if bounded && (s.c.Assignment.Pool == placement.Shared || s.c.Assignment.Pool == placement.Reclaimed) {
			s.c.Mems = topology.FormatList(usable)
		}
		return
	}
	q.Free = s.n.freeMemory(s.expectedMemoryUsers())
	if kinds := s.c.Assignment.Memory.Kinds; len(kinds) > 0 {
		s.c.Mems = topology.FormatList(s.memoryOfKinds(q, kinds))
		return
	}
	ids, err := choose.MemoryNodes(s.n.machine, q)
	if short := (*choose.MemoryError)(nil); errors.As(err, &short) && len(usable) > 0 {
		ids = usable
		if q.Bytes > 0 {
			s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
				Key: "cpuset.mems", Value: topology.FormatList(usable), Reason: err.Error(), Warning: true, Then: "the container may use all of these nodes, the nearest first",
			})
		}
	}
	s.c.Mems = topology.FormatList(s.withHugePageNodes(ids, every, q))
}

// withHugePageNodes adds memory nodes to ids, the nearest nodes first, until the container's huge pages fit on the
// nodes. It chooses from q.AllowedNodes. If the huge pages do not fit on the allowed nodes, it chooses from allNodes.
func (s *placer) withHugePageNodes(ids, allNodes []int, q choose.MemoryRequest) []int {
	for _, r := range s.hugePageHints() {
		q.Bytes, q.Free, q.FallbackKinds = r.Counts.Need, r.Counts.Free, nil
		more, err := choose.MemoryNodes(s.n.machine, q)
		if err != nil {
			q.AllowedNodes = allNodes
			more, err = choose.MemoryNodes(s.n.machine, q)
		}
		if err != nil {
			more = allNodes
			s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
				Key: "cpuset.mems", Value: topology.FormatList(more), Reason: r.Name + ": " + err.Error(), Warning: true, Then: "the container may use all of these nodes, the nearest first",
			})
		}
		ids = append(ids, more...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// memoryOfKinds returns, for each of the memory kinds, the nearest NUMA node with free memory of this kind. If the
// container's memory does not fit on these nodes, the result has more nodes of the kinds. If no node has free memory of
// a kind, memoryOfKinds adds a problem for the kind. If no node has free memory of any of the kinds, the result has the
// nearest DRAM nodes, or all allowed nodes if there is no DRAM node.
func (s *placer) memoryOfKinds(q choose.MemoryRequest, kinds []topology.MemoryKind) (ids []int) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.String()
	}
	warn := func(reason, then string) {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: s.c.Assignment.Memory.From, Value: strings.Join(names, ","), Reason: reason, Warning: true, Then: then,
		})
	}
	for _, k := range kinds {
		one := choose.MemoryRequest{CPUs: q.CPUs, AllowedNodes: q.AllowedNodes, Free: q.Free, Kinds: []topology.MemoryKind{k}}
		near, err := choose.MemoryNodes(s.n.machine, one)
		if err != nil {
			warn("no NUMA node has free memory of kind "+k.String(), "the container gets memory of the other kinds that it requests, or else of kind DRAM")
			continue
		}
		ids = append(ids, near...)
	}
	q.Kinds, q.FallbackKinds = kinds, nil
	if len(ids) == 0 {
		q.Kinds, q.Bytes = nil, 0
	}
	more, err := choose.MemoryNodes(s.n.machine, q)
	switch {
	case len(ids) == 0 && err != nil:
		return q.AllowedNodes
	case len(ids) == 0:
		ids = more
	case err != nil:
		warn(err.Error(), "the container gets the nearest nodes of these kinds")
	default:
		ids = append(ids, more...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// nearMemoryCPUs returns the CPUs near which a container's memory should be: the CPUs that the container owns, or the
// CPUs of its balloon or of the NUMA nodes to which it is bound. The result is empty for other containers.
func (n *view) nearMemoryCPUs(p *Pod, c *Container) (cpus topology.Set) {
	switch {
	case c.Assignment.OwnsAndShares():
		cpus, _ = n.layout(c).CPUs(c.Assignment.CPUGroup)
		return cpus
	case c.Assignment.Pool == placement.Exclusive:
		return c.Assignment.Owned
	case c.PoolNode.Set:
		node, _ := n.machine.Node(c.PoolNode.V)
		return node.CPUs
	case c.Assignment.Pool == placement.Reclaimed && p.Intent.NUMA.IsSet():
		return c.Assignment.Near
	case c.Assignment.Pool.Named():
		return balloonContainers{n}.memoryCPUs(c)
	case c.Assignment.PoolID.Nodes != "":
		return preferredCPUs(c.Assignment.CPUGroup, n.machine)
	}
	return cpus
}

// memoryNodes returns the ids of the NUMA nodes that have memory and that no other pod has exclusively. bounded reports
// whether the result lacks nodes because other pods have them exclusively. If other pods have all DRAM nodes
// exclusively, memoryNodes returns all nodes with memory, and bounded is false.
func (s *placer) memoryNodes() (usable []int, bounded bool) {
	var all []int
	othersCPUs, ordinary := s.n.ledger.ExclusiveNodeCPUsOfOthers(s.p.Pod.UID), false
	for _, n := range s.n.machine.Nodes {
		if n.Kind == topology.NoMemory {
			continue
		}
		all = append(all, n.ID)
		if n.CPUs.And(othersCPUs).Empty() {
			usable = append(usable, n.ID)
			ordinary = ordinary || n.Kind == topology.DRAM
		}
	}
	if !ordinary {
		return all, false
	}
	return usable, len(usable) < len(all)
}
