package choose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Memory is a question for memory nodes.
type Memory struct {
	// Bytes that must fit; 0 asks for the nearest nodes whatever is free.
	Bytes uint64
	// CPUs the memory is for: their own nodes come first.
	CPUs topology.Set
	// Kinds of memory that are wanted; none means DRAM.
	Kinds []topology.MemoryKind
	// Free is what is left at each node of the machine, in bytes and in the
	// machine's order; nil means that all of it is.
	Free []uint64
	// Within bounds the answer to these node ids; nil means no bound.
	Within []int
}

// MemoryError refuses a question for memory: the nodes that may be used do not
// hold it.
type MemoryError struct {
	Want, Have uint64
	Nodes      int
}

// Error says both amounts.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%d bytes of memory are wanted, and %d are left on %s", e.Want, e.Have, count(e.Nodes, "NUMA node"))
}

// Nodes returns the ids of the memory nodes for a question, in ascending order.
// They are the nodes of the CPUs; where those have no memory of the kind
// wanted, the nearest that has; and where they are short, as many of the nearest
// others as it takes: of equally near ones those in the packages of the CPUs
// first (firmware that tells no distances has all at the same), then those with the
// most left. The error is a *MemoryError.
func Nodes(m *topology.Machine, q Memory) ([]int, error) {
	usable := usableNodes(m, q)
	var local, sorted []int
	for i := range m.Nodes {
		if !m.Nodes[i].CPUs.And(q.CPUs).Empty() {
			local = append(local, i)
		}
	}
	sorted = slices.Clone(usable)
	far := func(i int) int { return nearest(m, local, i) }
	packages := m.Spread(topology.PackageLevel, q.CPUs)
	outside := func(i int) int {
		if m.Nodes[i].CPUs.And(packages).Empty() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(sorted, func(a, b int) int {
		return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(outside(a), outside(b)), cmp.Compare(left(m, q, b), left(m, q, a)))
	})
	var out []int
	var sum uint64
	for _, i := range sorted {
		// All nodes of the CPUs are used, and at least one in any case.
		if len(out) > 0 && sum >= q.Bytes && !slices.Contains(local, i) {
			continue
		}
		out = append(out, m.Nodes[i].ID)
		sum += left(m, q, i)
	}
	if len(out) == 0 || sum < q.Bytes {
		return nil, &MemoryError{q.Bytes, sum, len(usable)}
	}
	slices.Sort(out)
	return out, nil
}

// usableNodes returns the indices of the nodes a question may be answered with.
func usableNodes(m *topology.Machine, q Memory) []int {
	kinds := q.Kinds
	if len(kinds) == 0 {
		kinds = []topology.MemoryKind{topology.DRAM}
	}
	var out []int
	for i, n := range m.Nodes {
		if slices.Contains(kinds, n.Kind) && (q.Within == nil || slices.Contains(q.Within, n.ID)) {
			out = append(out, i)
		}
	}
	return out
}

func left(m *topology.Machine, q Memory, i int) uint64 {
	if q.Free == nil {
		return m.Nodes[i].Memory
	}
	return q.Free[i]
}

// nearest returns how far a node is from the nearest of others.
func nearest(m *topology.Machine, others []int, i int) int {
	best := 0
	for _, o := range others {
		if d := m.Distance(o, i); best == 0 || d < best {
			best = d
		}
	}
	return best
}
