package numahints

import (
	"math/bits"
	"slices"
)

// MaxNodes is the highest number of NUMA nodes that a Mask can have.
const MaxNodes = 64

// Mask is a set of NUMA nodes, by their index in the machine.
type Mask uint64

// Nodes makes a mask of indices.
func Nodes(indices ...int) (m Mask) {
	for _, i := range indices {
		m |= 1 << i
	}
	return m
}

// All is the mask of n nodes.
func All(n int) Mask {
	if n >= MaxNodes {
		return ^Mask(0)
	}
	return 1<<n - 1
}

// Len counts the nodes.
func (m Mask) Len() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether a node is in the mask.
func (m Mask) Has(i int) bool { return m>>i&1 != 0 }

// Indices lists the nodes in ascending order.
func (m Mask) Indices() []int {
	out := make([]int, 0, m.Len())
	for ; m != 0; m &= m - 1 {
		out = append(out, bits.TrailingZeros64(uint64(m)))
	}
	return out
}

// Hint is a set of nodes on which a resource is available.
type Hint struct {
	Nodes Mask
	// Any: the nodes do not matter (the kubelet's nil affinity).
	Any bool
	// Preferred: on an empty machine, no smaller set would have enough.
	Preferred bool
}

// Counts is a compact form of hints: each set of nodes that has enough is a hint. A hint is
// preferred if its set is as small as the smallest set that would have enough on an empty
// machine. The kubelet's CPU, memory and device managers enumerate these sets.
type Counts struct {
	Need uint64
	// OnEmpty is the need that decides which sets are preferred; 0 means Need.
	OnEmpty uint64
	// Free and Capacity are the amounts of each node, by index.
	Free, Capacity []uint64
}

// Resource has the hints of one resource of a container.
type Resource struct {
	Name string
	// Counts are its hints in compact form; nil if Hints has them.
	Counts *Counts
	// Hints lists its hints one by one. A nil list means no preference; an empty list means that
	// the resource is not available.
	Hints []Hint
}

// on sums amounts over the nodes of a mask.
func on(amounts []uint64, m Mask) (sum uint64) {
	for ; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros64(uint64(m)); i < len(amounts) {
			sum += amounts[i]
		}
	}
	return sum
}

// Through limits the hints to sets that contain all nodes of a mask, for a pod that has something
// on these nodes already.
func (c *Counts) Through(m Mask) {
	if c.OnEmpty == 0 {
		c.OnEmpty = c.Need
	}
	more := c.Need + 1 // a set without one of the nodes has less than the need
	for _, free := range c.Free {
		more += free
	}
	c.Free = slices.Clone(c.Free)
	for _, i := range m.Indices() {
		c.Free[i] += more
		c.Need += more
	}
}

// least returns the size of the smallest set of nodes that has enough on an empty machine; 0 if no
// set has.
func (c *Counts) least(n int) int {
	need := c.OnEmpty
	if need == 0 {
		need = c.Need
	}
	return smallest(c.Capacity, need, n)
}

// fits reports whether a set of nodes has enough.
func (c *Counts) fits(m Mask) bool { return on(c.Free, m) >= c.Need }

// smallest returns the size of the smallest set of nodes that has enough; 0 if even all nodes
// have too little.
func smallest(amounts []uint64, need uint64, n int) int {
	sorted := make([]uint64, 0, n)
	for _, a := range amounts[:min(n, len(amounts))] {
		sorted = insert(sorted, a)
	}
	var sum uint64
	for i, a := range sorted {
		if sum += a; sum >= need {
			return i + 1
		}
	}
	return 0
}

// insert adds an amount to a list in descending order. Lists are short.
func insert(sorted []uint64, a uint64) []uint64 {
	at := len(sorted)
	for at > 0 && sorted[at-1] < a {
		at--
	}
	return slices.Insert(sorted, at, a)
}

// expand lists the hints of counts on n nodes.
func (c *Counts) expand(n int) []Hint {
	best := c.least(n)
	out := []Hint{}
	for m := Mask(1); m <= All(n) && m != 0; m++ {
		if c.fits(m) {
			out = append(out, Hint{Nodes: m, Preferred: m.Len() == best})
		}
	}
	return out
}
