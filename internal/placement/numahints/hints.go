package numahints

import (
	"math/bits"
	"slices"
)

// MaxNodes is the highest number of NUMA nodes that a Mask can have.
const MaxNodes = 64

// Mask is a set of NUMA nodes. Bit i stands for the node with index i in the machine.
type Mask uint64

// MaskOf returns the mask of the nodes with the given indices.
func MaskOf(indices ...int) (m Mask) {
	for _, i := range indices {
		m |= 1 << i
	}
	return m
}

// AllNodes returns the mask of the nodes 0 to n-1.
func AllNodes(n int) Mask {
	if n >= MaxNodes {
		return ^Mask(0)
	}
	return 1<<n - 1
}

// Len returns the number of nodes in the mask.
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
	// Any means that the nodes do not matter (the kubelet's nil affinity).
	Any bool
	// Preferred means that no smaller set of nodes would have enough, even on an empty machine.
	Preferred bool
}

// Counts is a compact form of hints: each set of nodes that has enough of the resource is a hint. A hint is
// preferred if no smaller set would have enough on an empty machine. The kubelet's CPU, memory and device
// managers list these sets one by one.
type Counts struct {
	// Need is the amount of the resource that the container needs.
	Need uint64
	// NeedOnEmpty is used in place of Need to decide which sets are preferred; 0 means Need.
	NeedOnEmpty uint64
	// Free and Capacity are the free amount and the total amount on each node, by index.
	Free, Capacity []uint64
}

// Resource has the hints of one resource of a container.
type Resource struct {
	Name string
	// Counts are the hints of the resource in compact form; nil if Hints has them.
	Counts *Counts
	// Hints lists the resource's hints one by one. A nil list means no preference; an empty list means that the
	// resource is not available.
	Hints []Hint
}

// sumOn sums amounts over the nodes of a mask.
func sumOn(amounts []uint64, m Mask) (sum uint64) {
	for ; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros64(uint64(m)); i < len(amounts) {
			sum += amounts[i]
		}
	}
	return sum
}

// RequireNodes changes c so that only sets with all nodes of m are hints. It is for a pod that already uses these
// nodes.
func (c *Counts) RequireNodes(m Mask) {
	if c.NeedOnEmpty == 0 {
		c.NeedOnEmpty = c.Need
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

// minNodes returns the size of the smallest set of nodes that would have enough of the resource on an empty machine
// with n nodes; 0 if no set would.
func (c *Counts) minNodes(n int) int {
	need := c.NeedOnEmpty
	if need == 0 {
		need = c.Need
	}
	return smallestSetSize(c.Capacity, need, n)
}

// fits reports whether a set of nodes has enough of the resource.
func (c *Counts) fits(m Mask) bool { return sumOn(c.Free, m) >= c.Need }

// smallestSetSize returns the size of the smallest set of nodes whose amounts reach need. It returns 0 if even all n
// nodes have too little.
func smallestSetSize(amounts []uint64, need uint64, n int) int {
	sorted := make([]uint64, 0, n)
	for _, a := range amounts[:min(n, len(amounts))] {
		sorted = insertDescending(sorted, a)
	}
	var sum uint64
	for i, a := range sorted {
		if sum += a; sum >= need {
			return i + 1
		}
	}
	return 0
}

// insertDescending adds an amount to a list in descending order. Lists are short.
func insertDescending(sorted []uint64, a uint64) []uint64 {
	at := len(sorted)
	for at > 0 && sorted[at-1] < a {
		at--
	}
	return slices.Insert(sorted, at, a)
}

// hintsOn returns the hints of c on a machine with n nodes, sorted by size, then by Mask. n is less than MaxNodes.
func (c *Counts) hintsOn(n int) []Hint { return c.hintsUpTo(n, n) }

// hintsUpTo returns, for a machine with n nodes, those hints of c that have at most maxSize nodes. The hints are sorted
// by size, then by Mask.
func (c *Counts) hintsUpTo(n, maxSize int) []Hint {
	best, out := c.minNodes(n), []Hint{}
	for size := 1; size <= maxSize; size++ {
		for m := AllNodes(size); m <= AllNodes(n); m = Mask(nextSet(uint64(m))) {
			if c.fits(m) {
				out = append(out, Hint{Nodes: m, Preferred: size == best})
			}
		}
	}
	return out
}

// preferredHints returns the preferred hints of c on a machine with n nodes, sorted by Mask.
func (c *Counts) preferredHints(n int) (out []Hint) {
	best := c.minNodes(n)
	if best == 0 {
		return nil
	}
	for m := AllNodes(best); m <= AllNodes(n); m = Mask(nextSet(uint64(m))) {
		if c.fits(m) {
			out = append(out, Hint{Nodes: m, Preferred: true})
		}
	}
	return out
}
