package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Displaced returns a problem if a container's pool is bound to NUMA nodes, or prefers NUMA
// nodes, and has no CPU left on them. The problem names the owners of these CPUs.
func (s *State) Displaced(c *Container) (q lifecycle.Problem, ok bool) {
	near, cpus := nearOf(c.Assignment.CPUGroup, s.Machine), s.CPUs(c)
	if !c.Alive() || !s.DisplacedBy(c.Assignment.CPUGroup, cpus) {
		return q, false
	}
	list := func(t topology.Set) string { return s.Machine.Format(t) }
	owned := near.And(s.ledger.Exclusive())
	left := "other pools have them"
	if !owned.Empty() {
		left = fmt.Sprintf("%d are owned by %s", owned.Len(), s.ownersOf(owned))
	}
	return lifecycle.Problem{
		Key: c.Assignment.From, Value: list(near), Warning: true,
		Reason: fmt.Sprintf("its pool has none of the %d CPUs of its NUMA nodes: %s", near.Len(), left),
		Then:   fmt.Sprintf("it runs on %d others, %s, until its pool has some there", cpus.Len(), list(cpus)),
	}, true
}

// DisplacedBy reports whether none of these CPUs is on a NUMA node that the group is bound to or
// prefers.
func (s *State) DisplacedBy(seat placement.CPUGroup, cpus topology.Set) bool {
	near := nearOf(seat, s.Machine)
	return !near.Empty() && cpus.And(near).Empty()
}

// nearOf returns the CPUs of the NUMA nodes that a pool is bound to or prefers; empty if it has
// no such nodes.
func nearOf(seat placement.CPUGroup, m *topology.Machine) topology.Set {
	near := seat.Near
	for _, id := range seat.Which.On() {
		node, _ := m.Node(id)
		near = near.Union(node.CPUs)
	}
	return near
}

// maxOwners limits how many owners a problem names.
const maxOwners = 3

// ownersOf names the pods that own some of these CPUs.
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
