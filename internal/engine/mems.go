package engine

import (
	"errors"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// chooseMemory decides the memory nodes of a new container: those of its CPUs if it
// owns these or is bound to their node, else all nodes that no other pod has alone.
// It keeps the kubelet's choice. It decides only once, as pages would have to move.
func (s *seating) chooseMemory() {
	if t := s.n.termsOf(s.p, s.c.Name, &s.c.Pristine); !t.Chooses || s.c.Pristine.CPU.Mems != "" || len(s.n.machine.Nodes) < 2 || len(t.Given.Mems) > 0 {
		return
	}
	all, usable := s.memoryNodes()
	q := choose.Memory{Within: usable, Bytes: uint64(max(s.c.Pristine.Memory.Limit.V, 0))}
	switch {
	case s.c.Seat.Pool == placement.Own:
		q.CPUs = s.c.Seat.Owned
	case s.c.Home.Set:
		node, _ := s.n.machine.Node(s.c.Home.V)
		q.CPUs = node.CPUs
	case s.c.Seat.Pool == placement.Reclaimed && s.p.Intent.NUMA.Said():
		q.CPUs = s.c.Seat.Near
	case s.c.Seat.Pool == placement.Shared || s.c.Seat.Pool == placement.Reclaimed:
		if len(usable) > 0 && len(usable) < len(all) {
			s.c.Mems = topology.FormatList(usable)
		}
		return
	}
	if q.CPUs.Empty() {
		return
	}
	if q.Bytes > 0 {
		q.Free = s.freeMemory()
	}
	ids, err := choose.Nodes(s.n.machine, q)
	if short := (*choose.MemoryError)(nil); errors.As(err, &short) {
		s.c.Found.Problems = append(s.c.Found.Problems, lifecycle.Problem{
			Key: "cpuset.mems", Value: topology.FormatList(usable), Reason: err.Error(), Warning: true, Then: "the nearest nodes are used all the same",
		})
		q.Bytes = 0
		ids, err = choose.Nodes(s.n.machine, q)
	}
	if err == nil {
		s.c.Mems = topology.FormatList(ids)
	}
}

// memoryNodes lists the nodes that have ordinary memory, and those of them that no
// other pod has alone.
func (s *seating) memoryNodes() (all, usable []int) {
	alone := s.n.ledger.Alone(s.p.Pod.UID)
	for _, n := range s.n.machine.Nodes {
		if n.Kind != topology.DRAM {
			continue
		}
		all = append(all, n.ID)
		if n.CPUs.And(alone).Empty() {
			usable = append(usable, n.ID)
		}
	}
	return all, usable
}

// freeMemory is the memory that the limits of placed containers leave on each node,
// in bytes; nil if the nodes' memory is not known. A container on several nodes
// counts equally on each. Only limits of Guaranteed pods count, since these are
// requests as well. Any other limit may be as large as its author likes, and would
// push others off a node for nothing.
func (s *seating) freeMemory() []uint64 {
	free := make([]uint64, len(s.n.machine.Nodes))
	known := false
	for i, n := range s.n.machine.Nodes {
		free[i], known = n.Memory, known || n.Memory > 0
	}
	if !known {
		return nil
	}
	for _, c := range s.n.everyone(true) {
		p, limit := s.n.pod(c.PodID), c.Pristine.Memory.Limit.V
		if !c.Alive() || c.Mems == "" || limit <= 0 || p == nil || p.Intent.QoS != intent.Guaranteed {
			continue
		}
		ids, err := topology.ParseList(c.Mems)
		if err != nil || len(ids) == len(s.n.machine.Nodes) {
			continue
		}
		for _, id := range ids {
			if i, ok := s.n.machine.NodeIndex(id); ok {
				free[i] -= min(free[i], uint64(limit)/uint64(len(ids)))
			}
		}
	}
	return free
}
