package choose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// MemoryRequest is a request for memory nodes.
type MemoryRequest struct {
	// Bytes is how much free memory the nodes must have together; 0 means that the nearest nodes with any free
	// memory are enough.
	Bytes uint64
	// CPUs are the CPUs that will use the memory. The nodes of these CPUs come first.
	CPUs topology.Set
	// Kinds are the kinds of memory to use; none means DRAM. FallbackKinds are further kinds, which are used only if
	// the nodes with memory of Kinds have too little free memory.
	Kinds, FallbackKinds []topology.MemoryKind
	// Free is the free memory of each node in bytes, in the order of Machine.Nodes; nil means that all memory is free.
	Free []uint64
	// AllowedNodes are the ids of the nodes that may be chosen; nil means all.
	AllowedNodes []int
}

// MemoryError is the error for a request for memory if the allowed nodes have too little free memory.
type MemoryError struct {
	WantBytes, FreeBytes uint64 // the requested memory, and the free memory of the nodes together
	Nodes                int    // the number of allowed nodes with memory of the requested kinds
}

// Error has the requested and the free number of bytes.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%d bytes of memory are requested, and %d are free on %s", e.WantBytes, e.FreeBytes, formatCount(e.Nodes, "NUMA node"))
}

// MemoryNodes returns the ids of the memory nodes for a request, ascending. It takes the nodes of the request's CPUs.
// If these nodes have no memory of the requested kinds, it takes the nearest node with such memory. If they have too
// little free memory, it adds the nearest other nodes. Of equally near nodes, nodes in the packages of the CPUs come
// first, because some firmware reports the same distance for all nodes. Then come the nodes with the most free memory.
// Nodes of FallbackKinds come last. The error is a *MemoryError.
func MemoryNodes(m *topology.Machine, q MemoryRequest) ([]int, error) {
	kinds := q.Kinds
	if len(kinds) == 0 {
		kinds = []topology.MemoryKind{topology.DRAM}
	}
	at := nodesOf(m, q.CPUs)
	wanted, further := usableNodes(m, q.AllowedNodes, kinds), usableNodes(m, q.AllowedNodes, q.FallbackKinds)
	nearestFirst(m, wanted, at, &q)
	nearestFirst(m, further, at, &q)
	all := slices.Concat(wanted, further)
	need := q.Bytes
	if slices.ContainsFunc(all, func(i int) bool { return m.Nodes[i].Memory > 0 }) {
		need = max(need, 1) // the memory of the nodes is known, so require at least one free byte
	}
	var out []int
	var sum uint64
	for i, n := range all {
		// Take all nodes of the CPUs. Skip other nodes without free memory, and all other nodes when the memory is
		// enough.
		if local := i < len(wanted) && slices.Contains(at, n); !local && (freeBytes(m, &q, n) == 0 && need > 0 || len(out) > 0 && sum >= need) {
			continue
		}
		out = append(out, m.Nodes[n].ID)
		sum += freeBytes(m, &q, n)
	}
	if len(out) == 0 || sum < need {
		return nil, &MemoryError{q.Bytes, sum, len(all)}
	}
	slices.Sort(out)
	return out, nil
}

// SubtractMemory subtracts the memory of a container from the free memory of the nodes, which is in the slice free by
// node index. The container may use the nodes with the given ids. As in the kernel, its memory is first on the nodes
// nearest to its CPUs. Equally near nodes get equal parts of the memory.
func SubtractMemory(m *topology.Machine, free []uint64, cpus topology.Set, ids []int, bytes uint64) {
	at, nodes := nodesOf(m, cpus), make([]int, 0, len(ids))
	for _, id := range ids {
		if i, known := m.NodeIndex(id); known {
			nodes = append(nodes, i)
		}
	}
	far := func(i int) int { return distanceToNearest(m, at, i) }
	// Of equally near nodes, the node with the least free memory comes first, so that the others can take the memory
	// that does not fit on it.
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

// nodesOf returns the indices of the nodes that have some of the CPUs.
func nodesOf(m *topology.Machine, cpus topology.Set) (at []int) {
	for i := range m.Nodes {
		if !m.Nodes[i].CPUs.And(cpus).Empty() {
			at = append(at, i)
		}
	}
	return at
}

// usableNodes returns the indices of the allowed nodes with memory of one of the kinds. The slice allowed has the ids
// of the allowed nodes; nil means all nodes.
func usableNodes(m *topology.Machine, allowed []int, kinds []topology.MemoryKind) []int {
	var out []int
	for i, n := range m.Nodes {
		if slices.Contains(kinds, n.Kind) && (allowed == nil || slices.Contains(allowed, n.ID)) {
			out = append(out, i)
		}
	}
	return out
}

// nearestFirst sorts nodes by their distance to cpuNodes, the nodes of the request's CPUs. Both slices have indices of
// nodes.
func nearestFirst(m *topology.Machine, nodes, cpuNodes []int, q *MemoryRequest) {
	packages := m.ExpandToGroups(topology.PackageLevel, q.CPUs)
	far := func(i int) int { return distanceToNearest(m, cpuNodes, i) }
	outside := func(i int) int {
		if m.Nodes[i].CPUs.And(packages).Empty() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(far(a), far(b)), cmp.Compare(outside(a), outside(b)), cmp.Compare(freeBytes(m, q, b), freeBytes(m, q, a)))
	})
}

// freeBytes returns the free memory of node i in bytes.
func freeBytes(m *topology.Machine, q *MemoryRequest, i int) uint64 {
	if q.Free == nil {
		return m.Nodes[i].Memory
	}
	return q.Free[i]
}

// distanceToNearest returns the distance from node i to the nearest of the other nodes.
func distanceToNearest(m *topology.Machine, others []int, i int) int {
	best := 0
	for _, o := range others {
		if d := m.Distance(o, i); best == 0 || d < best {
			best = d
		}
	}
	return best
}
