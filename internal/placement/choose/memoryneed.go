package choose

import (
	"math"
	"math/bits"

	"github.com/trimtab/trimtab/internal/topology"
)

// memoryNeed is how much memory should be near some CPUs, and the free memory of each NUMA
// node, by index.
type memoryNeed struct {
	tree  *Tree
	bytes uint64
	left  []uint64
	full  uint64 // the nodes without free memory, as a bit set
}

// needOf makes a memoryNeed; left is nil if unknown.
func (t *Tree) needOf(bytes uint64, left []uint64) memoryNeed {
	m := memoryNeed{tree: t, bytes: bytes, left: left}
	for i, n := range left {
		if n == 0 {
			m.full |= 1 << i
		}
	}
	return m
}

// matters reports whether the choice of nodes affects the distance of the memory: the memory
// does not fit on every node with CPUs.
func (m *memoryNeed) matters() bool {
	for i, n := range m.left {
		if n < m.bytes && !m.tree.machine.Nodes[i].CPUs.Empty() {
			return true
		}
	}
	return false
}

// localDistance is the distance of a node to itself (ACPI, SLIT); unreachable is the largest
// possible value.
const localDistance, unreachable = 10, 254

// far returns how much memory would not be on the nodes themselves, in MiB times the additional
// distance. It stops counting above limit.
func (m *memoryNeed) far(nodes uint64, limit int64) (far int64) {
	if m.bytes == 0 || m.left == nil {
		return 0
	}
	short := m.bytes
	for b := nodes; b != 0; b &= b - 1 {
		short -= min(short, m.left[bits.TrailingZeros64(b)])
	}
	if short == 0 {
		return 0
	}
	done, read := nodes|m.full, [topology.MaxNodes]uint8{}
	for short > 0 && far <= limit {
		next, way := m.nearestLeft(nodes, done, &read)
		if next < 0 {
			break
		}
		some := min(short, m.left[next])
		far += int64(some>>20) * int64(max(0, way-localDistance))
		short -= some
		done |= 1 << next
	}
	return far + int64(short>>20)*(unreachable-localDistance)
}

// nearestLeft returns the unused node that is nearest to any node of a set, and its distance; -1
// if there is none. Of equally near nodes it returns the lowest. read is the position in each
// node's list of neighbours.
func (m *memoryNeed) nearestLeft(nodes, done uint64, read *[topology.MaxNodes]uint8) (next, way int) {
	next = -1
	for b := nodes; b != 0; b &= b - 1 {
		i := bits.TrailingZeros64(b)
		order := m.tree.nearest[i]
		for int(read[i]) < len(order) && done>>order[read[i]]&1 != 0 {
			read[i]++
		}
		if int(read[i]) == len(order) {
			continue
		}
		o := int(order[read[i]])
		if d := m.tree.machine.Distance(i, o); next < 0 || d < way || d == way && o < next {
			next, way = o, d
		}
	}
	return next, way
}

// weighMemory computes the distance of the request's memory from each NUMA node, if the nodes
// differ.
func (p *picker) weighMemory() {
	need := p.tree.needOf(p.want.Memory, p.want.MemoryLeft)
	if p.want.Memory == 0 || !need.matters() {
		return
	}
	p.memory = &p.weighed
	p.memory.need = need
	for i := range p.want.MemoryLeft {
		p.memory.far[i] = clamped(need.far(1<<i, math.MaxInt64))
	}
}

// farMemory returns the distance of memory for the NUMA nodes of a candidate.
func (p *picker) farMemory(nodes uint64) int32 {
	switch {
	case p.memory == nil || nodes == 0:
		return 0
	case nodes&(nodes-1) == 0:
		return p.memory.far[bits.TrailingZeros64(nodes)]
	}
	return clamped(p.memory.need.far(nodes, math.MaxInt64))
}

func clamped(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// weighed has the distances of memory for a request.
type weighed struct {
	need memoryNeed
	far  [topology.MaxNodes]int32 // from each node alone
}

// nodesIn returns the NUMA nodes, as a bit set of indices, on which n CPUs of a group would be
// chosen, if memory counts. measure was called before.
func (p *picker) nodesIn(group, n int) uint64 {
	if p.memory == nil {
		return 0
	}
	if node := p.tree.groups[group].node; node >= 0 {
		return 1 << node
	}
	if m := p.known.find(group, n); m != nil {
		return m.nodes
	}
	return 0
}

// nodesOf returns the NUMA nodes of some groups.
func (p *picker) nodesOf(groups []share) (nodes uint64) {
	for _, s := range groups {
		nodes |= p.nodesIn(s.group, s.n)
	}
	return nodes
}
