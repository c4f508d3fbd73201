package numahints

import "math/bits"

// cover returns the best set of nodes that has exactly size members and enough of every resource. ok is false if there
// is no such set, or if the search uses up its work before it finds one. It tries nodes from the highest index down, so
// the first set that it finds is the one with the lowest value as a Mask.
func (s *search) cover(size int, counts []*Counts) (best Mask, ok bool) {
	return s.coverWithin(size, counts, computeMaxCounts(counts, s.nodeCount, size))
}

// coverWithin does the same as cover, for a caller that already has the result of computeMaxCounts for this size or a
// larger size (maxCounts).
func (s *search) coverWithin(size int, counts []*Counts, maxCounts [][][]uint64) (best Mask, ok bool) {
	c := coverSearch{search: s, counts: counts, need: make([]uint64, len(counts)), maxCount: maxCounts}
	for i, r := range counts {
		c.need[i] = r.Need
	}
	c.try(s.nodeCount-1, size, 0, 0)
	return c.best, c.best != 0
}

// coverSearch is the state of one call of cover.
type coverSearch struct {
	*search

	counts []*Counts
	need   []uint64 // the amount of each resource that the chosen nodes still lack
	// maxCount[r][i][k] is the largest amount of resource r that k nodes with index 0 to i have together.
	maxCount     [][][]uint64
	best         Mask
	bestDistance int // sum of the distances in best; only with PreferClosest
}

// try decides whether the node with index i and the nodes below it belong to the set. size is the number of nodes that
// are still missing in the set. distances is the sum of the distances between the nodes chosen so far. try returns true
// if the whole search is over.
func (c *coverSearch) try(i, size int, chosen Mask, distances int) (done bool) {
	if !c.spendWork(len(c.counts)) {
		return true
	}
	if c.options.PreferClosest && c.best != 0 && distances >= c.bestDistance {
		return false
	}
	for r, need := range c.need {
		if size > i+1 || need > 0 && (i < 0 || need > c.maxCount[r][i][size]) {
			return false
		}
	}
	if size == 0 {
		c.best, c.bestDistance = chosen, distances
		return !c.options.PreferClosest
	}
	if c.try(i-1, size, chosen, distances) {
		return true
	}
	before := make([]uint64, len(c.need))
	copy(before, c.need)
	for r, count := range c.counts {
		c.need[r] -= min(c.need[r], sumOn(count.Free, 1<<i))
	}
	more := 0
	if c.options.PreferClosest {
		for m := chosen; m != 0; m &= m - 1 {
			j := bits.TrailingZeros64(uint64(m))
			more += c.options.Distance(i, j) + c.options.Distance(j, i)
		}
		more += c.options.Distance(i, i)
	}
	done = c.try(i-1, size-1, chosen|1<<i, distances+more)
	copy(c.need, before)
	return done
}

// computeMaxCounts computes coverSearch.maxCount for n nodes and sets of up to size nodes.
func computeMaxCounts(counts []*Counts, n, size int) [][][]uint64 {
	out := make([][][]uint64, len(counts))
	for r, c := range counts {
		out[r] = make([][]uint64, n)
		var sorted []uint64 // the largest amounts so far, descending
		for i := range n {
			sorted = insertDescending(sorted, sumOn(c.Free, 1<<i))
			sorted = sorted[:min(len(sorted), size)]
			sums := make([]uint64, size+1)
			for k := 1; k <= size; k++ {
				sums[k] = sums[k-1]
				if k <= len(sorted) {
					sums[k] += sorted[k-1]
				}
			}
			out[r][i] = sums
		}
	}
	return out
}
