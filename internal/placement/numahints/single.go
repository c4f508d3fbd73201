package numahints

// applySingleNode applies the policy single-numa-node. It uses only preferred hints with one node, and preferred hints
// for which the nodes do not matter.
func (s *search) applySingleNode(resources []Resource) Result {
	lists := make([][]Hint, 0, len(resources))
	for _, r := range resources {
		if r.Counts != nil || r.Hints != nil {
			lists = append(lists, s.singleNodeHints(r))
		}
	}
	sets, any := s.preferredOfLists(lists)
	best := Mask(0)
	for _, m := range sets {
		if best == 0 || s.isBetterSet(m, best) {
			best = m
		}
	}
	if best == 0 || best == s.allNodes { // on a machine with one node, the set does not restrict the container
		return Result{Any: true, Preferred: best != 0 || any}
	}
	return Result{Nodes: best, Preferred: true}
}

// singleNodeHints lists the preferred hints of a resource that have one node, or for which the nodes do not
// matter.
func (s *search) singleNodeHints(r Resource) (out []Hint) {
	if c := r.Counts; c != nil {
		one := c.minNodes(s.nodeCount) == 1
		for i := range s.nodeCount {
			if one && c.fits(1<<i) {
				out = append(out, Hint{Nodes: 1 << i, Preferred: true})
			}
		}
		return out
	}
	for _, h := range r.Hints {
		if h.Preferred && (h.Any || h.Nodes.Len() == 1) {
			out = append(out, h)
		}
	}
	return out
}
