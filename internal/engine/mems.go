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

// chooseMemory decides the memory nodes of a new container. A container that owns CPUs, or is
// bound to NUMA nodes, gets the nodes of its CPUs. Any other container gets all nodes that no
// other pod has exclusively. If its nodes have no free memory, it may use other nodes.
// chooseMemory keeps the kubelet's choice. The decision is final, because a change would make
// the kernel move pages.
func (s *placer) chooseMemory() {
	if s.c.Assignment.Memory.Keep {
		return
	}
	t := s.n.termsOf(s.p, s.c.Name, &s.c.Pristine)
	if s.c.Assignment.Pool == placement.Own {
		s.c.Assignment.Memory = t.Memory
	}
	if !t.Chooses || t.KeepsMemory || s.c.Pristine.CPU.Mems != "" || len(s.n.machine.Nodes) < 2 || len(t.External.Mems) > 0 {
		return
	}
	every, bounded := s.memoryNodes()
	usable := s.alignedMemory(every)
	q := choose.Memory{
		Within: usable, Bytes: uint64(max(s.c.Pristine.Memory.Limit.V, 0)), CPUs: s.n.memoryNear(s.p, s.c),
		Further: []topology.MemoryKind{topology.HBM, topology.PMEM},
	}
	if q.CPUs.Empty() {
		if bounded && (s.c.Assignment.Pool == placement.Shared || s.c.Assignment.Pool == placement.Reclaimed) {
			s.c.Mems = topology.FormatList(usable)
		}
		return
	}
	q.Free = s.n.freeMemory(s.expectedMemory())
	if kinds := s.c.Assignment.Memory.Kinds; len(kinds) > 0 {
		s.c.Mems = topology.FormatList(s.memoryOfKinds(q, kinds))
		return
	}
	ids, err := choose.Nodes(s.n.machine, q)
	if short := (*choose.MemoryError)(nil); errors.As(err, &short) && len(usable) > 0 {
		ids = usable
		if q.Bytes > 0 {
			s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
				Key: "cpuset.mems", Value: topology.FormatList(usable), Reason: err.Error(), Warning: true, Then: "all of them are used, the nearest first",
			})
		}
	}
	s.c.Mems = topology.FormatList(s.withPages(ids, every, q))
}

// withPages adds memory nodes until the container's huge pages fit, the nearest first. If they do not fit within the nodes
// of q, it adds some of every.
func (s *placer) withPages(ids, every []int, q choose.Memory) []int {
	for _, r := range s.pageHints() {
		q.Bytes, q.Free, q.Further = r.Counts.Need, r.Counts.Free, nil
		more, err := choose.Nodes(s.n.machine, q)
		if err != nil {
			q.Within = every
			more, err = choose.Nodes(s.n.machine, q)
		}
		if err != nil {
			more = every
			s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
				Key: "cpuset.mems", Value: topology.FormatList(more), Reason: r.Name + ": " + err.Error(), Warning: true, Then: "all of them are used, the nearest first",
			})
		}
		ids = append(ids, more...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// memoryOfKinds returns the nearest node of each kind, and more nodes of these kinds if the memory
// does not fit. Kinds that the machine does not have are reported; without any of them it gets
// DRAM.
func (s *placer) memoryOfKinds(q choose.Memory, kinds []topology.MemoryKind) (ids []int) {
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
		one := choose.Memory{CPUs: q.CPUs, Within: q.Within, Free: q.Free, Kinds: []topology.MemoryKind{k}}
		near, err := choose.Nodes(s.n.machine, one)
		if err != nil {
			warn("this node has no free memory of kind "+k.String(), "it gets memory of the others, or of kind DRAM")
			continue
		}
		ids = append(ids, near...)
	}
	q.Kinds, q.Further = kinds, nil
	if len(ids) == 0 {
		q.Kinds, q.Bytes = nil, 0
	}
	more, err := choose.Nodes(s.n.machine, q)
	switch {
	case len(ids) == 0 && err != nil:
		return q.Within
	case len(ids) == 0:
		ids = more
	case err != nil:
		warn(err.Error(), "the nodes of these kinds that are nearest are used")
	default:
		ids = append(ids, more...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// memoryNear returns the CPUs that a container's memory should be near: the CPUs that it owns,
// or the CPUs of the NUMA nodes that it is bound to. It is empty if the container may run on all
// CPUs.
func (n *view) memoryNear(p *Pod, c *Container) (cpus topology.Set) {
	switch {
	case c.Assignment.Pool == placement.Own:
		return c.Assignment.Owned
	case c.PoolNode.Set:
		node, _ := n.machine.Node(c.PoolNode.V)
		return node.CPUs
	case c.Assignment.Pool == placement.Reclaimed && p.Intent.NUMA.IsSet():
		return c.Assignment.Near
	case c.Assignment.Pool.Named():
		return balloonContainers{n}.cpus(c)
	case c.Assignment.Which.Nodes != "":
		return nearOf(c.Assignment.CPUGroup, n.machine)
	}
	return cpus
}

// memoryNodes lists the nodes with memory that no other pod has exclusively. bounded reports
// whether another pod has any node exclusively. If other pods have all DRAM nodes exclusively,
// the pod may use every node.
func (s *placer) memoryNodes() (usable []int, bounded bool) {
	var all []int
	alone, ordinary := s.n.ledger.ExclusiveNodesOfOthers(s.p.Pod.UID), false
	for _, n := range s.n.machine.Nodes {
		if n.Kind == topology.NoMemory {
			continue
		}
		all = append(all, n.ID)
		if n.CPUs.And(alone).Empty() {
			usable = append(usable, n.ID)
			ordinary = ordinary || n.Kind == topology.DRAM
		}
	}
	if !ordinary {
		return all, false
	}
	return usable, len(usable) < len(all)
}
