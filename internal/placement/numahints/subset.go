package numahints

import "math/bits"

// subset returns the best set that is the intersection of a set of nodes and one hint of each
// count. ok is false if some count has no hint.
func (s *search) subset(target int, within Mask, counts []*Counts) (m Mask, ok bool) {
	for _, c := range counts {
		if !c.fits(s.all) {
			return 0, false
		}
	}
	if len(counts) == 1 && within == s.all {
		if m, ok := s.cover(target, counts); ok {
			return m, true
		}
		return within, true
	}
	for size := target; size >= 1; size-- {
		if m := s.subsetOf(size, within, counts); m != 0 {
			return m, true
		}
	}
	for size := target + 1; size < within.Len(); size++ {
		if m := s.subsetOf(size, within, counts); m != 0 {
			return m, true
		}
	}
	return within, true // each count may use all nodes
}

// subsetOf returns the best such set of one size; 0 if there is none.
func (s *search) subsetOf(size int, within Mask, counts []*Counts) (best Mask) {
	nodes := within.Indices()
	if size > len(nodes) || size < 1 {
		return 0
	}
	last := uint64(1)<<len(nodes) - 1 // 0 shifted out for 64 nodes gives all ones
	for set := uint64(1)<<size - 1; set <= last; set = next(set) {
		if !s.work(1 + len(counts)) {
			return best
		}
		m := spread(set, nodes)
		if (best == 0 || s.narrower(m, best)) && s.reachable(m, within, counts) {
			if best = m; !s.o.PreferClosest {
				return best // the first has the lowest value
			}
		}
		if size == len(nodes) {
			break
		}
	}
	return best
}

// next returns the next higher number with the same number of 1 bits; all ones at the end.
func next(set uint64) uint64 {
	low := set & -set
	up := set + low
	if up == 0 {
		return ^uint64(0)
	}
	return up | (set^up)/low>>2
}

// spread maps bits of positions to bits of nodes.
func spread(set uint64, nodes []int) (m Mask) {
	for ; set != 0; set &= set - 1 {
		m |= 1 << nodes[bits.TrailingZeros64(set)]
	}
	return m
}

// maxAssign limits the steps of one call of reachable.
const maxAssign = 4096

// reachable reports whether a set is the intersection of within and one hint of each count. A
// hint may have more nodes than the set, if each additional node is missing in another hint or
// in within.
func (s *search) reachable(m, within Mask, counts []*Counts) bool {
	outside, rest := s.all&^within, within&^m
	slack := make([]uint64, len(counts))
	for i, c := range counts {
		has := on(c.Free, m|outside)
		if has >= c.Need {
			return true // this count uses none of the remaining nodes, and the other counts may use all of them
		}
		slack[i] = on(c.Free, rest) - (c.Need - has)
	}
	if len(counts) < 2 {
		return false
	}
	steps := maxAssign
	return s.assign(rest, counts, slack, &steps)
}

// assign decides for each of the remaining nodes which count leaves it out.
func (s *search) assign(rest Mask, counts []*Counts, slack []uint64, steps *int) bool {
	for rest != 0 {
		i := bits.TrailingZeros64(uint64(rest))
		rest &= rest - 1
		free := false
		for _, c := range counts {
			free = free || on(c.Free, 1<<i) == 0
		}
		if free { // no count needs it
			continue
		}
		for r, c := range counts {
			has := on(c.Free, 1<<i)
			if has > slack[r] {
				continue
			}
			if *steps--; *steps < 0 || !s.work(1) {
				s.cut = true
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
