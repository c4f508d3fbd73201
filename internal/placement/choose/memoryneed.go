package choose

import (
	"math"
	"math/bits"

	"github.com/trimtab/trimtab/internal/topology"
)

// memoryNeed is how much memory should be near the chosen CPUs, and the free memory of each NUMA node, by
// index.
type memoryNeed struct {
	tree       *Tree
	bytes      uint64
	freeByNode []uint64
	fullNodes  uint64 // the nodes without free memory, as a bit set of indices
}

// newMemoryNeed makes a memoryNeed. The slice freeByNode has the free memory of each node; nil if unknown.
func (t *Tree) newMemoryNeed(bytes uint64, freeByNode []uint64) memoryNeed {
	m := memoryNeed{tree: t, bytes: bytes, freeByNode: freeByNode}
	for i, n := range freeByNode {
		if n == 0 {
			m.fullNodes |= 1 << i
		}
	}
	return m
}

// matters reports whether the memory does not fit on some node with CPUs. Only then does the choice of nodes change how
// far the memory is.
func (m *memoryNeed) matters() bool {
	for i, n := range m.freeByNode {
		if n < m.bytes && !m.tree.machine.Nodes[i].CPUs.Empty() {
			return true
		}
	}
	return false
}

// localDistance is the distance of a node to itself in the table SLIT of ACPI, and unreachable is the largest possible
// distance in this table. farMemory uses unreachable for memory that fits on no node.
const localDistance, unreachable = 10, 254

// farMemory measures the memory that does not fit on the given nodes and would be on other nodes. It returns the sum of
// MiB times the additional distance of these other nodes. It stops counting when the sum is above limit.
func (m *memoryNeed) farMemory(nodes uint64, limit int64) (far int64) {
	if m.bytes == 0 || m.freeByNode == nil {
		return 0
	}
	short := m.bytes
	for b := nodes; b != 0; b &= b - 1 {
		short -= min(short, m.freeByNode[bits.TrailingZeros64(b)])
	}
	if short == 0 {
		return 0
	}
	done, read := nodes|m.fullNodes, [topology.MaxNodes]uint8{}
	for short > 0 && far <= limit {
		next, distance := m.nearestRemaining(nodes, done, &read)
		if next < 0 {
			break
		}
		some := min(short, m.freeByNode[next])
		far += int64(some>>20) * int64(max(0, distance-localDistance))
		short -= some
		done |= 1 << next
	}
	return far + int64(short>>20)*(unreachable-localDistance)
}

// nearestRemaining returns the node that is nearest to one of the given nodes, and its distance. It skips the nodes in
// done; if all nodes are in done, the result next is -1. Of equally near nodes it returns the lowest. The array read
// stores, from one call to the next, how far nearestRemaining has read each list in Tree.nodesByDistance: all nodes
// before that position are in done.
func (m *memoryNeed) nearestRemaining(nodes, done uint64, read *[topology.MaxNodes]uint8) (next, distance int) {
	next = -1
	for b := nodes; b != 0; b &= b - 1 {
		i := bits.TrailingZeros64(b)
		order := m.tree.nodesByDistance[i]
		for int(read[i]) < len(order) && done>>order[read[i]]&1 != 0 {
			read[i]++
		}
		if int(read[i]) == len(order) {
			continue
		}
		o := int(order[read[i]])
		if d := m.tree.machine.Distance(i, o); next < 0 || d < distance || d == distance && o < next {
			next, distance = o, d
		}
	}
	return next, distance
}

// computeMemoryDistances computes how far the requested memory would be from each NUMA node. It does nothing if the
// memory fits on every node with CPUs.
func (p *picker) computeMemoryDistances() {
	need := p.tree.newMemoryNeed(p.request.Memory, p.request.FreeMemory)
	if p.request.Memory == 0 || !need.matters() {
		return
	}
	p.memory = &p.memoryDistances
	p.memory.need = need
	for i := range p.request.FreeMemory {
		p.memory.far[i] = clamp(need.farMemory(1<<i, math.MaxInt64))
	}
}

// farMemory returns the result of memoryNeed.farMemory for a set of NUMA nodes, as an int32. It returns 0 if the
// requested memory fits on every node with CPUs.
func (p *picker) farMemory(nodes uint64) int32 {
	switch {
	case p.memory == nil || nodes == 0:
		return 0
	case nodes&(nodes-1) == 0:
		return p.memory.far[bits.TrailingZeros64(nodes)]
	}
	return clamp(p.memory.need.farMemory(nodes, math.MaxInt64))
}

// clamp limits a number to the range of an int32.
func clamp(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// memoryDistances has how far the requested memory would be from each single NUMA node.
type memoryDistances struct {
	need memoryNeed
	far  [topology.MaxNodes]int32 // the result of memoryNeed.farMemory for each single node
}

// nodesIn returns the NUMA nodes of the CPUs that would be chosen if n CPUs of a group are taken, as a bit set of
// indices. It returns 0 if the requested memory fits on every node with CPUs. The caller must have called costOf for
// the group and n before.
func (p *picker) nodesIn(group, n int) uint64 {
	if p.memory == nil {
		return 0
	}
	if node := p.tree.groups[group].node; node >= 0 {
		return 1 << node
	}
	if m := p.costs.find(group, n); m != nil {
		return m.nodes
	}
	return 0
}

// nodesOf returns the NUMA nodes of the CPUs that the groups give, as a bit set of indices.
func (p *picker) nodesOf(groups []portion) (nodes uint64) {
	for _, s := range groups {
		nodes |= p.nodesIn(s.group, s.n)
	}
	return nodes
}
