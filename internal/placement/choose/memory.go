package choose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Memory is a question for memory nodes.
type Memory struct {
	// Bytes that must fit; 0 asks for the nearest nodes on which anything is left.
	Bytes uint64
	// CPUs the memory is for: their own nodes come first.
	CPUs topology.Set
	// Kinds of memory that are wanted; none means DRAM. Further are kinds that are
	// used where those do not hold it.
	Kinds, Further []topology.MemoryKind
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
// wanted, the nearest that has; and where they are short, or nothing is left on
// them, as many of the nearest others as it takes: of equally near ones those in the
// packages of the CPUs first (firmware that reports no distances has all at the same),
// then those with the most left. Nodes of further kinds come after all others. The
// error is a *MemoryError.
func Nodes(m *topology.Machine, q Memory) ([]int, error) {
	kinds := q.Kinds
	if len(kinds) == 0 {
		kinds = []topology.MemoryKind{topology.DRAM}
	}
	at := nodesOf(m, q.CPUs)
	wanted, further := usableNodes(m, q.Within, kinds), usableNodes(m, q.Within, q.Further)
	nearestFirst(m, wanted, at, &q)
	nearestFirst(m, further, at, &q)
	all := slices.Concat(wanted, further)
	need := q.Bytes
	if slices.ContainsFunc(all, func(i int) bool { return m.Nodes[i].Memory > 0 }) {
		need = max(need, 1) // what is left is known, and a node of which nothing is left is not enough
	}
	var out []int
	var sum uint64
	for i, n := range all {
		// All nodes of the CPUs are used; of the others those that there is something to gain from.
		if local := i < len(wanted) && slices.Contains(at, n); !local && (left(m, &q, n) == 0 && need > 0 || len(out) > 0 && sum >= need) {
			continue
		}
		out = append(out, m.Nodes[n].ID)
		sum += left(m, &q, n)
	}
	if len(out) == 0 || sum < need {
		return nil, &MemoryError{q.Bytes, sum, len(all)}
	}
	slices.Sort(out)
	return out, nil
}

// Charge takes bytes that a container may use off what is left at the nodes with the given
// ids: as the kernel does, off those nearest to its CPUs first, and off equally near ones
// alike.
func Charge(m *topology.Machine, free []uint64, cpus topology.Set, ids []int, bytes uint64) {
	at, nodes := nodesOf(m, cpus), make([]int, 0, len(ids))
	for _, id := range ids {
		if i, known := m.NodeIndex(id); known {
			nodes = append(nodes, i)
		}
	}
	far := func(i int) int { return nearest(m, at, i) }
	// Of equally near ones the fullest first: what it cannot take the others share.
	slices.SortFunc(nodes, func(a, b int) int { return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(free[a], free[b]), a-b) })
	for n, i := range nodes {
		alike := uint64(0)
		for _, o := range nodes[n:] {
			if far(o) == far(i) {
				alike++
			}
		}
		part := min(free[i], (bytes+alike-1)/alike)
		free[i], bytes = free[i]-part, bytes-part
	}
}

// nodesOf returns the indices of the nodes of some CPUs.
func nodesOf(m *topology.Machine, cpus topology.Set) (at []int) {
	for i := range m.Nodes {
		if !m.Nodes[i].CPUs.And(cpus).Empty() {
			at = append(at, i)
		}
	}
	return at
}

// usableNodes returns the indices of the nodes of some kinds that a question may be
// answered with.
func usableNodes(m *topology.Machine, within []int, kinds []topology.MemoryKind) []int {
	var out []int
	for i, n := range m.Nodes {
		if slices.Contains(kinds, n.Kind) && (within == nil || slices.Contains(within, n.ID)) {
			out = append(out, i)
		}
	}
	return out
}

// nearestFirst sorts nodes by how near they are to the nodes of CPUs.
func nearestFirst(m *topology.Machine, nodes, at []int, q *Memory) {
	packages := m.Spread(topology.PackageLevel, q.CPUs)
	far := func(i int) int { return nearest(m, at, i) }
	outside := func(i int) int {
		if m.Nodes[i].CPUs.And(packages).Empty() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(outside(a), outside(b)), cmp.Compare(left(m, q, b), left(m, q, a)))
	})
}

// left is what a question's answer may count on at a node, in bytes.
func left(m *topology.Machine, q *Memory, i int) uint64 {
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
