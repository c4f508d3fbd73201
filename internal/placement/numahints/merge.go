package numahints

import (
	"cmp"
	"slices"
)

// merge returns the best set of nodes that is the intersection of one hint of each resource.
func (s *search) merge(resources []Resource) Hint {
	// Try preferred hints first: they are few, and often the resources have a preferred set in common.
	if h, ok := s.mergePreferred(s.splitHints(resources, (*Counts).preferredHints)); ok {
		return h
	}
	lists, counts := s.splitHints(resources, (*Counts).hintsOn)
	target := s.targetSize(resources)
	var best *Hint
	for _, m := range s.intersections(target, lists) {
		if len(counts) > 0 {
			var ok bool
			if m, ok = s.bestSubset(target, m, counts); !ok {
				continue
			}
		}
		if h := (Hint{Nodes: m}); s.isBetterHint(target, best, h) {
			best = &h
		}
		if s.workLeft <= 0 && s.nodeCount > exhaustiveNodes {
			break
		}
	}
	if best == nil {
		return Hint{Nodes: s.allNodes}
	}
	return *best
}

// splitHints splits the hints of all resources that have a preference into lists and counts. lists has the hints of a
// resource one by one. On a machine with few nodes, the function list converts all Counts to such lists. On any other
// machine, splitHints returns the Counts unchanged in counts. A resource that is not available gets a list with one
// hint, which is not preferred.
func (s *search) splitHints(resources []Resource, list func(*Counts, int) []Hint) (lists [][]Hint, counts []*Counts) {
	for _, r := range resources {
		switch c := r.Counts; {
		case c == nil && r.Hints == nil:
		case c == nil && len(r.Hints) == 0, c != nil && !c.fits(s.allNodes):
			lists = append(lists, []Hint{{Any: true}})
		case c == nil:
			lists = append(lists, r.Hints)
		case s.nodeCount <= s.options.maxListedNodes:
			lists = append(lists, list(c, s.nodeCount))
		default:
			counts = append(counts, c)
		}
	}
	return lists, counts
}

// mergePreferred returns the best set that every resource prefers. It returns false if there is no such set.
func (s *search) mergePreferred(lists [][]Hint, counts []*Counts) (Hint, bool) {
	sets, any := s.preferredOfLists(lists)
	if sets == nil && !any {
		return Hint{}, false
	}
	size := 0
	for i, c := range counts {
		least := c.minNodes(s.nodeCount)
		if least == 0 || i > 0 && least != size {
			return Hint{}, false
		}
		size = least
	}
	fits := func(m Mask) bool {
		return !slices.ContainsFunc(counts, func(c *Counts) bool { return m.Len() != size || !c.fits(m) })
	}
	switch {
	case any && len(counts) == 0:
		sets = append(sets, s.allNodes)
	case any: // no list restricts the nodes, so only the counts decide
		m, ok := s.cover(size, counts)
		return Hint{Nodes: m, Preferred: true}, ok
	}
	var best Mask
	for _, m := range sets {
		if fits(m) && (best == 0 || s.isBetterSet(m, best)) {
			best = m
		}
	}
	return Hint{Nodes: best, Preferred: true}, best != 0
}

// preferredOfLists returns the sets that all lists prefer. A list can have a preferred hint for which the nodes do not
// matter (Any). Such a list counts as if it preferred every set of the other lists. any is true if every list has such
// a hint.
func (s *search) preferredOfLists(lists [][]Hint) (sets []Mask, any bool) {
	any = true
	for _, list := range lists {
		var own []Mask
		free := false
		for _, h := range list {
			switch {
			case !h.Preferred:
			case h.Any:
				free = true
			case h.Nodes&s.allNodes != 0:
				own = append(own, h.Nodes&s.allNodes)
			}
		}
		slices.Sort(own)
		own = slices.Compact(own)
		switch {
		case any && free:
			sets = append(sets, own...)
		case any:
			sets = append(keepListed(sets, own), own...)
		case free:
		default:
			sets = keepListed(sets, own)
		}
		slices.Sort(sets)
		sets, any = slices.Compact(sets), any && free
	}
	return sets, any
}

// keepListed returns those of the sets that are also in the list sorted.
func keepListed(sets, sorted []Mask) []Mask {
	return slices.DeleteFunc(slices.Clone(sets), func(m Mask) bool { _, in := slices.BinarySearch(sorted, m); return !in })
}

// maxSets limits the number of intersections on machines with more than exhaustiveNodes nodes.
const maxSets = 64

// intersections takes one hint of each list and intersects these hints, in all combinations. It returns the
// intersections that are not empty. If there are too many, it returns those with the best sizes: target is the best
// size, and sizeRank gives the order of the others.
func (s *search) intersections(target int, lists [][]Hint) []Mask {
	sets := []Mask{s.allNodes}
	for _, list := range lists {
		masks := make([]Mask, 0, len(list))
		for _, h := range list {
			if h.Any {
				masks = append(masks, s.allNodes)
			} else if m := h.Nodes & s.allNodes; m != 0 {
				masks = append(masks, m)
			}
		}
		slices.Sort(masks)
		sets = s.intersect(sets, slices.Compact(masks))
		if s.nodeCount > exhaustiveNodes && len(sets) > maxSets {
			slices.SortFunc(sets, func(a, b Mask) int {
				return cmp.Or(cmp.Compare(sizeRank(target, a.Len()), sizeRank(target, b.Len())), cmp.Compare(a, b))
			})
			sets, s.incomplete = sets[:maxSets], true
		}
	}
	slices.Sort(sets)
	return sets
}

// intersect returns the intersections of each of the sets with each of the masks, without duplicates and
// without the empty set.
func (s *search) intersect(sets, masks []Mask) (out []Mask) {
	if s.nodeCount <= exhaustiveNodes {
		return s.intersectFew(sets, masks)
	}
	for _, a := range sets {
		if !s.spendWork(len(masks) / 4) { // an intersection costs less than one unit of work
			break
		}
		for _, b := range masks {
			if a&b != 0 {
				out = append(out, a&b)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intersectFew does the same as intersect, but only for machines with at most exhaustiveNodes nodes.
func (s *search) intersectFew(sets, masks []Mask) (out []Mask) {
	var seen [1 << exhaustiveNodes]bool
	for _, a := range sets {
		for _, b := range masks {
			if both := a & b; both != 0 && !seen[both] {
				seen[both] = true
				out = append(out, both)
			}
		}
		if len(out) == int(s.allNodes) { // out has every set except the empty one
			break
		}
	}
	return out
}
