package numahints

import "math/bits"

// bestSubset chooses one hint of each element of counts, and intersects these hints and the mask outer. It returns the best
// set that it can get in this way. ok is false if an element of counts has no hints. target is the best size (see
// sizeRank).
func (s *search) bestSubset(target int, outer Mask, counts []*Counts) (m Mask, ok bool) {
	for _, c := range counts {
		if !c.fits(s.allNodes) {
			return 0, false
		}
	}
	if len(counts) == 1 && outer == s.allNodes {
		if m, ok := s.cover(target, counts); ok {
			return m, true
		}
		return outer, true
	}
	for size := target; size >= 1; size-- {
		if m := s.bestSubsetOfSize(size, outer, counts); m != 0 {
			return m, true
		}
	}
	for size := target + 1; size < outer.Len(); size++ {
		if m := s.bestSubsetOfSize(size, outer, counts); m != 0 {
			return m, true
		}
	}
	return outer, true // the hint with all nodes is possible for each of the counts
}

// bestSubsetOfSize does the same as bestSubset, but only for sets with size nodes. It returns 0 if there is no such set.
func (s *search) bestSubsetOfSize(size int, outer Mask, counts []*Counts) (best Mask) {
	nodes := outer.Indices()
	if size > len(nodes) || size < 1 {
		return 0
	}
	last := uint64(1)<<len(nodes) - 1 // with 64 nodes the shift gives 0, so last has all ones
	for set := uint64(1)<<size - 1; set <= last; set = nextSet(set) {
		if !s.spendWork(1 + len(counts)) {
			return best
		}
		m := expandBits(set, nodes)
		if (best == 0 || s.isBetterSet(m, best)) && s.isIntersection(m, outer, counts) {
			if best = m; !s.options.PreferClosest {
				return best // the first has the lowest value
			}
		}
		if size == len(nodes) {
			break
		}
	}
	return best
}

// nextSet returns the next higher number with the same number of 1 bits. After the highest number it returns
// all ones.
func nextSet(set uint64) uint64 {
	low := set & -set
	up := set + low
	if up == 0 {
		return ^uint64(0)
	}
	return up | (set^up)/low>>2
}

// expandBits returns the mask that has nodes[i] for each bit i of set.
func expandBits(set uint64, nodes []int) (m Mask) {
	for ; set != 0; set &= set - 1 {
		m |= 1 << nodes[bits.TrailingZeros64(set)]
	}
	return m
}

// maxAssign is the largest number of steps in one call of isIntersection.
const maxAssign = 4096

// isIntersection reports whether m is the intersection of the mask outer and one hint of each element of counts. A hint can
// have nodes outside of m, if each of these nodes is missing in another hint or in outer.
func (s *search) isIntersection(m, outer Mask, counts []*Counts) bool {
	outside, rest := s.allNodes&^outer, outer&^m
	slack := make([]uint64, len(counts))
	for i, c := range counts {
		has := sumOn(c.Free, m|outside)
		if has >= c.Need {
			return true // the hint of c needs none of the remaining nodes, and the other hints may have all of them
		}
		slack[i] = sumOn(c.Free, rest) - (c.Need - has)
	}
	if len(counts) < 2 {
		return false
	}
	steps := maxAssign
	return s.assign(rest, counts, slack, &steps)
}

// assign chooses, for each node in rest, an element of counts whose hint leaves the node out. It reports whether this
// is possible. slack has, for each element of counts, the amount on the nodes in rest that its hint does not need.
func (s *search) assign(rest Mask, counts []*Counts, slack []uint64, steps *int) bool {
	for rest != 0 {
		i := bits.TrailingZeros64(uint64(rest))
		rest &= rest - 1
		free := false
		for _, c := range counts {
			free = free || sumOn(c.Free, 1<<i) == 0
		}
		if free { // one of the counts has nothing on the node, so its hint can leave the node out
			continue
		}
		for r, c := range counts {
			has := sumOn(c.Free, 1<<i)
			if has > slack[r] {
				continue
			}
			if *steps--; *steps < 0 || !s.spendWork(1) {
				s.incomplete = true
				return false
			}
			slack[r] -= has
			if s.assign(rest, counts, slack, steps) {
				return true
			}
			slack[r] += has
		}
		return false
	}
	return true
}
