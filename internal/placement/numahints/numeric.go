package numahints

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// applyNumeric applies Katalyst's policy numeric. The resources in Options.AlignedResources get the same set of nodes,
// and at least one of these resources prefers this set. The sets of all resources form a chain: each set contains the
// next. applyNumeric takes the chain in which the most resources outside of AlignedResources get a preferred hint. Of
// equal chains, it takes the one with fewer nodes, then the one with the lower Masks. Katalyst compares only resources
// that are neighbours in its list, so its result depends on their order. applyNumeric counts all preferred hints, so the
// order does not matter.
func (s *search) applyNumeric(resources []Resource) Result {
	c := chains{search: s, choices: make([]Hint, len(resources))}
	for i, r := range resources {
		if r.Counts == nil && r.Hints != nil && len(r.Hints) == 0 || r.Counts != nil && !r.Counts.fits(s.allNodes) {
			return Result{Nodes: 0, Any: true}
		}
		c.choices[i] = Hint{Any: true, Preferred: true}
	}
	if !c.chooseSmall(resources) && (!c.listItems(resources, s.nodeCount) || !c.choose(s.nodeCount)) {
		return Result{Any: true}
	}
	out := Result{Any: true, Preferred: true, Admitted: true, ResourceHints: c.choices}
	for _, h := range c.choices {
		if !h.Any {
			out.Nodes, out.Any, out.Preferred = out.Nodes|h.Nodes, false, out.Preferred && h.Preferred
		}
	}
	return out
}

// smallSetSize is the largest size of the sets that applyNumeric tries first. Most results have no larger set.
const smallSetSize = 2

// chooseSmall tries only sets of up to smallSetSize nodes. It returns false if it finds no choice, or if larger sets
// may give a better choice.
func (c *chains) chooseSmall(resources []Resource) bool {
	if c.nodeCount > c.options.maxListedNodes || slices.ContainsFunc(resources, func(r Resource) bool { return r.Counts != nil && r.Counts.minNodes(c.nodeCount) > smallSetSize }) {
		return false
	}
	left := c.workLeft
	if c.listItems(resources, smallSetSize) && c.choose(smallSetSize) {
		return true
	}
	c.workLeft = left
	return false
}

// listItems fills c.items, the resources or groups of resources that each get one set of nodes. It converts Counts only
// to hints of at most maxSize nodes. It returns false if there are too many items.
func (c *chains) listItems(resources []Resource, maxSize int) bool {
	c.possibleHints, c.items = c.possibleHintsOf(resources, maxSize), nil
	var aligned []int
	free := false // the nodes do not matter to one of the aligned resources
	for i, r := range resources {
		align := slices.Contains(c.options.AlignedResources, r.Name)
		switch {
		case c.possibleHints[i] == nil: // the nodes do not matter
			free = free || align
		case align:
			aligned = append(aligned, i)
		default:
			c.items = append(c.items, item{resources: []int{i}, sets: c.possibleHints[i]})
		}
	}
	if len(aligned) > 0 {
		c.items = append(c.items, item{resources: aligned, sets: alignedSets(c.possibleHints, aligned, free), aligned: true})
	}
	c.incomplete = c.incomplete || len(c.items) > maxItems
	return len(c.items) <= maxItems
}

// maxItems limits the number of items, so that a uint64 has a bit for each item.
const maxItems = 63

// item is one resource that gets a set of nodes of its own, or all aligned resources, which get one set together.
type item struct {
	resources []int  // the indices of the resources
	sets      []Hint // the sets that are possible for the item, sorted by size and Mask, without duplicates
	aligned   bool   // the item is all aligned resources together
}

// chains is the state of a search for the best chain of sets.
type chains struct {
	*search

	possibleHints [][]Hint // by resource; nil if the nodes do not matter to the resource
	items         []item
	choices       []Hint // the chosen hint of each resource
}

// possibleHintsOf lists the hints of each resource; nil for a resource to which the nodes do not matter. It converts
// Counts only to hints of at most maxSize nodes.
func (c *chains) possibleHintsOf(resources []Resource, maxSize int) [][]Hint {
	out := make([][]Hint, len(resources))
	for i, r := range resources {
		switch {
		case r.Counts != nil && c.nodeCount <= c.options.maxListedNodes:
			out[i] = r.Counts.hintsUpTo(c.nodeCount, maxSize) // already sorted
		case r.Counts == nil && r.Hints != nil && !slices.Contains(r.Hints, Hint{Any: true, Preferred: true}):
			out[i] = sortHints(r.Hints)
		}
	}
	if c.nodeCount <= c.options.maxListedNodes {
		return out
	}
	pool := []Mask{c.allNodes} // the sets to try for resources with Counts, because there are too many sets to try all
	for i, r := range resources {
		if r.Counts != nil {
			pool = append(pool, c.smallSets(r.Counts)...)
		}
		for _, h := range out[i] {
			pool = append(pool, h.Nodes)
		}
	}
	for i, r := range resources {
		if r.Counts != nil {
			out[i] = c.hintsAmong(r.Counts, pool)
		}
	}
	return out
}

// maxSmall is the largest size of the sets that smallSets returns.
const maxSmall = 4

// smallSets returns, for each size up to maxSmall, the best set of this size that has enough of the resource.
func (c *chains) smallSets(counts *Counts) (out []Mask) {
	c.incomplete = true // the search does not try other sets
	one, largest := []*Counts{counts}, min(c.nodeCount, maxSmall)
	most := computeMaxCounts(one, c.nodeCount, largest)
	for size := 1; size <= largest; size++ {
		if m, ok := c.coverWithin(size, one, most); ok {
			out = append(out, m)
		}
	}
	return out
}

// hintsAmong returns the sets in pool that have enough of the resource, as hints.
func (c *chains) hintsAmong(counts *Counts, pool []Mask) []Hint {
	least := counts.minNodes(c.nodeCount)
	var out []Hint
	for _, m := range pool {
		if counts.fits(m) {
			out = append(out, Hint{Nodes: m, Preferred: m.Len() == least})
		}
	}
	return sortHints(out)
}

// sortHints returns the hints that have nodes, sorted by size and Mask, without duplicates. A set that is listed twice
// is preferred if one of its hints is preferred.
func sortHints(hints []Hint) []Hint {
	out := slices.DeleteFunc(append([]Hint{}, hints...), func(h Hint) bool { return h.Any || h.Nodes == 0 })
	slices.SortFunc(out, func(a, b Hint) int {
		pref := 0
		if a.Preferred != b.Preferred {
			if pref = 1; a.Preferred {
				pref = -1
			}
		}
		return cmp.Or(cmp.Compare(a.Nodes.Len(), b.Nodes.Len()), cmp.Compare(a.Nodes, b.Nodes), pref)
	})
	return slices.CompactFunc(out, func(a, b Hint) bool { return a.Nodes == b.Nodes })
}

// bySize orders sets by their size, then by their Mask.
func bySize(a, b Mask) int { return cmp.Or(cmp.Compare(a.Len(), b.Len()), cmp.Compare(a, b)) }

// findHint returns the index of the hint with these nodes in hints, which are sorted by size and Mask.
func findHint(hints []Hint, nodes Mask) (at int, found bool) {
	return slices.BinarySearchFunc(hints, nodes, func(h Hint, m Mask) int { return bySize(h.Nodes, m) })
}

// alignedSets returns the sets that are possible for all aligned resources. At least one of these resources must prefer
// the set. If free is true, the nodes do not matter to another aligned resource, and alignedSets then returns all sets
// that are possible.
func alignedSets(options [][]Hint, aligned []int, free bool) []Hint {
	both := options[aligned[0]]
	for _, i := range aligned[1:] {
		both = intersectHints(both, options[i])
	}
	return slices.DeleteFunc(slices.Clone(both), func(h Hint) bool { return !h.Preferred && !free })
}

// intersectHints returns the sets that are in both sorted lists. A set is preferred if it is preferred in one of the
// lists.
func intersectHints(a, b []Hint) []Hint {
	out := make([]Hint, 0, min(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch order := bySize(a[0].Nodes, b[0].Nodes); {
		case order < 0:
			a = a[1:]
		case order > 0:
			b = b[1:]
		default:
			out = append(out, Hint{Nodes: a[0].Nodes, Preferred: a[0].Preferred || b[0].Preferred})
			a, b = a[1:], b[1:]
		}
	}
	return out
}

// candidateSet is one set of nodes, and the items for which this set is possible. Items are bits: bit j stands for
// chains.items[j].
type candidateSet struct {
	nodes    Mask
	possible uint64 // the items that have a hint with these nodes
	// preferring are the items outside of Options.AlignedResources that prefer these nodes.
	preferring uint64
}

// sets iterates over the possible sets of all items, the best set first.
func (c *chains) sets() iter.Seq[candidateSet] {
	if !c.options.PreferClosest {
		return c.setsBySize
	}
	return slices.Values(slices.SortedFunc(c.setsBySize, func(a, b candidateSet) int {
		if c.isBetterSet(a.nodes, b.nodes) {
			return -1
		}
		return 1
	}))
}

// setsBySize iterates over the possible sets of all items, sorted by size and Mask. To do so, it merges the items'
// sorted lists.
func (c *chains) setsBySize(yield func(candidateSet) bool) {
	rest := make([][]Hint, len(c.items))
	for j, it := range c.items {
		rest[j] = it.sets
	}
	for one := c.takeSet(rest); one.nodes != 0 && yield(one); {
		one = c.takeSet(rest)
	}
}

// takeSet removes the first set, in the order of bySize, from the remaining lists and returns it. At the end it returns
// a set without nodes.
func (c *chains) takeSet(rest [][]Hint) (one candidateSet) {
	for _, list := range rest {
		if len(list) > 0 && (one.nodes == 0 || bySize(list[0].Nodes, one.nodes) < 0) {
			one.nodes = list[0].Nodes
		}
	}
	for j, list := range rest {
		if len(list) == 0 || list[0].Nodes != one.nodes {
			continue
		}
		one.possible |= 1 << j
		if list[0].Preferred && !c.items[j].aligned {
			one.preferring |= 1 << j
		}
		rest[j] = list[1:]
	}
	return one
}

// chainStep stands for one chain of sets: the chain of an earlier step, and one more set that contains all sets of the
// earlier chain.
type chainStep struct {
	from      int    // the index of the earlier step; -1 for the empty chain
	set       int    // the index of the added set
	placed    uint64 // the items for which a set of the chain is possible
	preferred uint64 // the items that prefer a set of the chain
}

// covers reports whether the chain s is at least as good as the chain o. The chain s must have a possible set for every
// item for which o has one. Each item that prefers a set of o must also prefer a set of s.
func (s *chainStep) covers(o *chainStep) bool {
	return o.placed&^s.placed|o.preferred&^s.preferred == 0
}

// choose finds the best chain of sets with at most maxSize nodes that has a possible set for each item, and gives each
// item a set of this chain. It returns false if there is no such chain, or if larger sets may give a better chain.
func (c *chains) choose(maxSize int) bool {
	all := uint64(1)<<len(c.items) - 1
	steps := []chainStep{{from: -1, set: -1}}
	best := -1
	if all == 0 {
		best = 0
	}
	wanted := c.preferringItems()
	var sets []candidateSet // the sets to which steps refer by index
	// done reports that no later set can improve the choice.
	done := func() bool { return best >= 0 && steps[best].preferred == wanted }
	for one := range c.sets() {
		if done() || one.nodes.Len() > maxSize {
			break
		}
		first := len(steps)
		sets = append(sets, one)
		steps = c.extend(steps, sets, len(sets)-1)
		for k := first; k < len(steps); k++ {
			if steps[k].placed == all && (best < 0 || bits.OnesCount64(steps[k].preferred) > bits.OnesCount64(steps[best].preferred)) {
				best = k
			}
		}
	}
	if best < 0 || maxSize < c.nodeCount && !done() {
		return false
	}
	c.assignChain(steps, sets, best)
	return true
}

// preferringItems returns the items outside of Options.AlignedResources that have a preferred set.
func (c *chains) preferringItems() (items uint64) {
	for j, it := range c.items {
		if !it.aligned && slices.ContainsFunc(it.sets, func(h Hint) bool { return h.Preferred }) {
			items |= 1 << j
		}
	}
	return items
}

// assignChain gives each item a set of the best chain: the first set that the item prefers. An item that prefers no set
// of the chain gets the first set that is possible for the item.
func (c *chains) assignChain(steps []chainStep, sets []candidateSet, best int) {
	for k := best; steps[k].from >= 0; k = steps[k].from {
		here, before := sets[steps[k].set], steps[steps[k].from]
		for j, it := range c.items {
			if (here.preferring&^before.preferred|here.possible&^before.placed&^steps[best].preferred)>>j&1 != 0 {
				c.setHint(it, here.nodes)
			}
		}
	}
}

// setHint sets the choice for all resources of an item to the hint with these nodes.
func (c *chains) setHint(it item, nodes Mask) {
	for _, i := range it.resources {
		at, _ := findHint(c.possibleHints[i], nodes)
		c.choices[i] = c.possibleHints[i][at]
	}
}

// extend adds new steps: each continues one of the present chains with the set sets[at]. It adds no step that is not
// better than the chain that it continues. If one new step is at least as good as another, it keeps only the better
// one.
func (c *chains) extend(steps []chainStep, sets []candidateSet, at int) []chainStep {
	here, first := sets[at], len(steps)
	for i := 0; i < first && c.spendWork(1); i++ {
		was := steps[i]
		if was.set >= 0 && sets[was.set].nodes&^here.nodes != 0 {
			continue
		}
		now := chainStep{from: i, set: at, placed: was.placed | here.possible, preferred: was.preferred | here.preferring}
		if was.covers(&now) {
			continue
		}
		if others := steps[first:]; !slices.ContainsFunc(others, func(o chainStep) bool { return o.covers(&now) }) {
			others = slices.DeleteFunc(others, func(o chainStep) bool { return now.covers(&o) })
			steps = append(steps[:first+len(others)], now)
		}
	}
	return steps
}
