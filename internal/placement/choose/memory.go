package choose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Memory asks for memory nodes.
type Memory struct {
	// Bytes must fit; 0 asks for the nearest nodes with free memory.
	Bytes uint64
	// CPUs are those that will use the memory. Their own nodes come first.
	CPUs topology.Set
	// Kinds of memory that are wanted; none means DRAM. Nodes uses other kinds if the wanted
	// kinds have too little.
	Kinds, Further []topology.MemoryKind
	// Free is the free memory of each node, in bytes and in the machine's order; nil means that
	// all memory is free.
	Free []uint64
	// Within limits the answer to these node ids; nil means all.
	Within []int
}

// MemoryError refuses a request for memory: the allowed nodes have too little.
type MemoryError struct {
	Want, Have uint64
	Nodes      int
}

// Error has both amounts.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%d bytes of memory are requested, and %d are free on %s", e.Want, e.Have, count(e.Nodes, "NUMA node"))
}

// Nodes returns the ids of the chosen memory nodes, ascending. They are the nodes of the CPUs.
// If these have no memory of the wanted kind, the nearest node that has it is chosen. If they
// have too little, the nearest others are added, as many as necessary. Of equally near nodes,
// those in the packages of the CPUs come first, since firmware without distances reports the
// same for all; then those with the most free memory. Nodes of further kinds come last. The
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
		need = max(need, 1) // the free memory is known, and a node without free memory is not enough
	}
	var out []int
	var sum uint64
	for i, n := range all {
		// All nodes of the CPUs are used, and others only if they add memory.
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

// Charge subtracts bytes that a container may use from the free memory of the nodes with the
// given ids. Like the kernel, it uses the nodes nearest to its CPUs first, and equally near
// ones in equal parts.
func Charge(m *topology.Machine, free []uint64, cpus topology.Set, ids []int, bytes uint64) {
	at, nodes := nodesOf(m, cpus), make([]int, 0, len(ids))
	for _, id := range ids {
		if i, known := m.NodeIndex(id); known {
			nodes = append(nodes, i)
		}
	}
	far := func(i int) int { return nearest(m, at, i) }
	// Of equally near nodes the fullest comes first, and the others share what it cannot take.
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

// usableNodes returns the indices of the allowed nodes with memory of some kinds.
func usableNodes(m *topology.Machine, within []int, kinds []topology.MemoryKind) []int {
	var out []int
	for i, n := range m.Nodes {
		if slices.Contains(kinds, n.Kind) && (within == nil || slices.Contains(within, n.ID)) {
			out = append(out, i)
		}
	}
	return out
}

// nearestFirst sorts nodes by their distance to the nodes of CPUs.
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

// left returns the free bytes of a node for a request.
func left(m *topology.Machine, q *Memory, i int) uint64 {
	if q.Free == nil {
		return m.Nodes[i].Memory
	}
	return q.Free[i]
}

// nearest returns the distance of a node to the nearest of others.
func nearest(m *topology.Machine, others []int, i int) int {
	best := 0
	for _, o := range others {
		if d := m.Distance(o, i); best == 0 || d < best {
			best = d
		}
	}
	return best
}
