package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// DisplacedProblem returns a problem if a container's pool is bound to NUMA nodes, or prefers NUMA nodes, and has no
// CPUs left on these nodes. The problem names the pods that own the CPUs of these nodes.
func (s *State) DisplacedProblem(c *Container) (q lifecycle.Problem, ok bool) {
	near, cpus := preferredCPUs(c.Assignment.CPUGroup, s.Machine), s.CPUs(c)
	if !c.Alive() || !s.IsDisplaced(c.Assignment.CPUGroup, cpus) {
		return q, false
	}
	list := func(t topology.Set) string { return s.Machine.Format(t) }
	owned := near.And(s.ledger.OwnedCPUs())
	left := "other pools have them"
	if !owned.Empty() {
		left = fmt.Sprintf("%d are owned by %s", owned.Len(), s.ownersOf(owned))
	}
	return lifecycle.Problem{
		Key: c.Assignment.From, Value: list(near), Warning: true,
		Reason: fmt.Sprintf("the container's pool has none of the %d CPUs on the pool's NUMA nodes: %s", near.Len(), left),
		Then:   fmt.Sprintf("the container runs on %d other CPUs, %s, until its pool gets CPUs there", cpus.Len(), list(cpus)),
	}, true
}

// IsDisplaced reports whether a group is bound to NUMA nodes, or prefers NUMA nodes, and none of its current CPUs is on
// such a node. cpus are the current CPUs.
func (s *State) IsDisplaced(group placement.CPUGroup, cpus topology.Set) bool {
	near := preferredCPUs(group, s.Machine)
	return !near.Empty() && cpus.And(near).Empty()
}

// preferredCPUs returns the CPUs of the NUMA nodes to which a group is bound or that the group prefers. The result is
// empty if there are no such nodes.
func preferredCPUs(group placement.CPUGroup, m *topology.Machine) topology.Set {
	near := group.Near
	for _, id := range group.PoolID.NodeIDs() {
		node, _ := m.Node(id)
		near = near.Union(node.CPUs)
	}
	return near
}

// maxOwners limits how many pods the text of a problem names as owners of CPUs.
const maxOwners = 3

// ownersOf returns the names of the pods that own some of these CPUs, at most maxOwners of them, and the number
// of the other pods.
func (s *State) ownersOf(cpus topology.Set) string {
	var pods []string
	for _, g := range s.ledger.Grants() {
		if !g.CPUs.And(cpus).Empty() {
			pods = append(pods, g.Pod)
		}
	}
	slices.Sort(pods)
	if pods = slices.Compact(pods); len(pods) > maxOwners {
		more := fmt.Sprintf("%d more pods", len(pods)-maxOwners)
		return strings.Join(pods[:maxOwners], ", ") + " and " + more
	}
	return strings.Join(pods, ", ")
}
