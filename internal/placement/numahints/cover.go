package numahints

import "math/bits"

// cover returns the best set of a size that has enough of everything; ok is false if none was
// found. It chooses from the highest node down, so that the first set found has the lowest value.
func (s *search) cover(size int, counts []*Counts) (best Mask, ok bool) {
	return s.coverWithin(size, counts, mostOf(counts, s.n, size))
}

// coverWithin is cover with the amounts that mostOf returned for this or a larger size.
func (s *search) coverWithin(size int, counts []*Counts, most [][][]uint64) (best Mask, ok bool) {
	c := covering{search: s, counts: counts, need: make([]uint64, len(counts)), maxCount: most}
	for i, r := range counts {
		c.need[i] = r.Need
	}
	c.try(s.n-1, size, 0, 0)
	return c.best, c.best != 0
}

// covering is the state of cover.
type covering struct {
	*search

	counts []*Counts
	need   []uint64 // what is still missing of each resource
	// maxCount has, for each resource, node i and number k, the largest amount that k of the nodes
	// up to i have together.
	maxCount  [][][]uint64
	best      Mask
	bestApart int // distance of best, with PreferClosest
}

// try decides for node i and the nodes below it whether they belong to the set; size of them are
// still to be chosen. apart is the distance between the chosen nodes. It reports whether the
// search is over.
func (c *covering) try(i, size int, chosen Mask, apart int) (done bool) {
	if !c.work(len(c.counts)) {
		return true
	}
	if c.o.PreferClosest && c.best != 0 && apart >= c.bestApart {
		return false
	}
	for r, need := range c.need {
		if size > i+1 || need > 0 && (i < 0 || need > c.maxCount[r][i][size]) {
			return false
		}
	}
	if size == 0 {
		c.best, c.bestApart = chosen, apart
		return !c.o.PreferClosest
	}
	if c.try(i-1, size, chosen, apart) {
		return true
	}
	before := make([]uint64, len(c.need))
	copy(before, c.need)
	for r, count := range c.counts {
		c.need[r] -= min(c.need[r], on(count.Free, 1<<i))
	}
	more := 0
	if c.o.PreferClosest {
		for m := chosen; m != 0; m &= m - 1 {
			j := bits.TrailingZeros64(uint64(m))
			more += c.o.Distance(i, j) + c.o.Distance(j, i)
		}
		more += c.o.Distance(i, i)
	}
	done = c.try(i-1, size-1, chosen|1<<i, apart+more)
	copy(c.need, before)
	return done
}

// mostOf makes covering.most.
func mostOf(counts []*Counts, n, size int) [][][]uint64 {
	out := make([][][]uint64, len(counts))
	for r, c := range counts {
		out[r] = make([][]uint64, n)
		var sorted []uint64 // the largest amounts so far, descending
		for i := range n {
			sorted = insert(sorted, on(c.Free, 1<<i))
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
