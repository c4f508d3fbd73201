package numahints

import (
	"cmp"
	"math/bits"
	"slices"
)

// numeric is Katalyst's policy. The resources in Options.Align get equal sets of nodes, and at
// least one of them prefers its set. The sets of all resources form a chain: each contains the
// next. Among such choices, more preferred hints outside of Align win, then fewer nodes, then
// lower values. Katalyst compares only neighbours, so its result depends on the order of
// resources. This policy counts each preferred hint and does not depend on the order.
func (s *search) numeric(resources []Resource) Result {
	c := chains{search: s, each: make([]Hint, len(resources))}
	for i, r := range resources {
		if r.Counts == nil && r.Hints != nil && len(r.Hints) == 0 || r.Counts != nil && !r.Counts.fits(s.all) {
			return Result{Nodes: 0, Any: true}
		}
		c.each[i] = Hint{Any: true, Preferred: true}
	}
	c.options = c.optionsOf(resources)
	var aligned []int
	free := false // an aligned resource has no preference
	for i, r := range resources {
		align := slices.Contains(s.o.Align, r.Name)
		switch {
		case c.options[i] == nil: // the nodes do not matter
			free = free || align
		case align:
			aligned = append(aligned, i)
		default:
			c.items = append(c.items, item{resources: []int{i}, sets: c.options[i]})
		}
	}
	if len(aligned) > 0 {
		c.items = append(c.items, item{resources: aligned, sets: alignedSets(c.options, aligned, free), aligned: true})
	}
	if len(c.items) > maxItems {
		s.cut = true
		return Result{Any: true}
	}
	if !c.choose() {
		return Result{Any: true}
	}
	out := Result{Any: true, Preferred: true, Admitted: true, Each: c.each}
	for _, h := range c.each {
		if !h.Any {
			out.Nodes, out.Any, out.Preferred = out.Nodes|h.Nodes, false, out.Preferred && h.Preferred
		}
	}
	return out
}

// maxItems limits the resources with a preference, so that a number can have a bit for each.
const maxItems = 63

// item is a unit that gets one set of nodes: a resource, or all aligned resources together.
type item struct {
	resources []int
	sets      []Hint // in order of sets, each once
	aligned   bool
}

// chains searches for the best chain of sets.
type chains struct {
	*search

	options [][]Hint // by resource; nil if the nodes do not matter to it
	items   []item
	each    []Hint // the choice, by resource
}

// optionsOf lists the possible sets of each resource; nil if the nodes do not matter to it.
func (c *chains) optionsOf(resources []Resource) [][]Hint {
	out := make([][]Hint, len(resources))
	pool := []Mask{c.all} // the sets that are tried for counts that are not expanded
	for i, r := range resources {
		switch {
		case r.Counts != nil && c.n <= c.o.enumerate:
			out[i] = tidy(r.Counts.expand(c.n))
		case r.Counts != nil:
			pool = append(pool, c.smallSets(r.Counts)...)
		case r.Hints != nil && !slices.Contains(r.Hints, Hint{Any: true, Preferred: true}):
			out[i] = tidy(r.Hints)
		}
		for _, h := range out[i] {
			pool = append(pool, h.Nodes)
		}
	}
	for i, r := range resources {
		if r.Counts != nil && c.n > c.o.enumerate {
			out[i] = c.among(r.Counts, pool)
		}
	}
	return out
}

// maxSmall is the largest size of the sets that are tried for counts that are not expanded.
const maxSmall = 4

// smallSets returns the best set with enough of a resource, for each of a few small sizes.
func (c *chains) smallSets(counts *Counts) (out []Mask) {
	c.cut = true // these are not all
	one, largest := []*Counts{counts}, min(c.n, maxSmall)
	most := mostOf(one, c.n, largest)
	for size := 1; size <= largest; size++ {
		if m, ok := c.coverWithin(size, one, most); ok {
			out = append(out, m)
		}
	}
	return out
}

// among returns those of the given sets that are hints of the counts.
func (c *chains) among(counts *Counts, pool []Mask) []Hint {
	least := counts.least(c.n)
	var out []Hint
	for _, m := range pool {
		if counts.fits(m) {
			out = append(out, Hint{Nodes: m, Preferred: m.Len() == least})
		}
	}
	return tidy(out)
}

// tidy sorts sets by size and value. A set that is listed twice is preferred if one of the
// entries is.
func tidy(hints []Hint) []Hint {
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

// alignedSets returns the sets that all aligned resources have and at least one of them prefers.
// free reports that the nodes do not matter to a further aligned resource.
func alignedSets(options [][]Hint, aligned []int, free bool) (out []Hint) {
	for _, h := range options[aligned[0]] {
		h.Preferred = h.Preferred || free
		all := true
		for _, i := range aligned[1:] {
			at := slices.IndexFunc(options[i], func(o Hint) bool { return o.Nodes == h.Nodes })
			if all = at >= 0; !all {
				break
			}
			h.Preferred = h.Preferred || options[i][at].Preferred
		}
		if all && h.Preferred {
			out = append(out, h)
		}
	}
	return out
}

// set is one set of nodes, and the items that may have it.
type set struct {
	nodes Mask
	may   uint64 // the items with a hint for it
	// wanted are the items outside of Options.Align that prefer it.
	wanted uint64
}

// setsOf lists the sets of all items, the best first.
func (c *chains) setsOf() []set {
	at := map[Mask]int{}
	var out []set
	for j, it := range c.items {
		for _, h := range it.sets {
			k, known := at[h.Nodes]
			if !known {
				k, at[h.Nodes] = len(out), len(out)
				out = append(out, set{nodes: h.Nodes})
			}
			out[k].may |= 1 << j
			if h.Preferred && !it.aligned {
				out[k].wanted |= 1 << j
			}
		}
	}
	slices.SortFunc(out, func(a, b set) int {
		if c.narrower(a.nodes, b.nodes) {
			return -1
		}
		return 1
	})
	return out
}

// step is a chain of sets. It has one set more than the step that it continues.
type step struct {
	from      int    // the step before; -1 for none
	set       int    // its last set
	placed    uint64 // the items that some set of the chain has a hint for
	preferred uint64 // of these, the items that prefer a set of the chain
}

// covers reports whether a step places no less than another does.
func (s *step) covers(o *step) bool { return o.placed&^s.placed|o.preferred&^s.preferred == 0 }

// choose places all items on a chain of sets; false if no chain exists.
func (c *chains) choose() bool {
	sets := c.setsOf()
	all := uint64(1)<<len(c.items) - 1
	steps := []step{{from: -1, set: -1}}
	best := -1
	if all == 0 {
		best = 0
	}
	for at := range sets {
		first := len(steps)
		steps = c.extend(steps, sets, at)
		for k := first; k < len(steps); k++ {
			if steps[k].placed == all && (best < 0 || bits.OnesCount64(steps[k].preferred) > bits.OnesCount64(steps[best].preferred)) {
				best = k
			}
		}
	}
	if best < 0 {
		return false
	}
	// An item gets the first set that it prefers, or else the first set that it may have.
	for k := best; steps[k].from >= 0; k = steps[k].from {
		here, before := sets[steps[k].set], steps[steps[k].from]
		for j, it := range c.items {
			if (here.wanted&^before.preferred|here.may&^before.placed&^steps[best].preferred)>>j&1 != 0 {
				c.give(it, here.nodes)
			}
		}
	}
	return true
}

// give gives the resources of an item a set.
func (c *chains) give(it item, nodes Mask) {
	for _, i := range it.resources {
		at := slices.IndexFunc(c.options[i], func(h Hint) bool { return h.Nodes == nodes })
		c.each[i] = c.options[i][at]
	}
}

// extend adds the steps whose last set is sets[at]: those that place more by it, and less than no
// other such step.
func (c *chains) extend(steps []step, sets []set, at int) []step {
	here, first := sets[at], len(steps)
	for i := 0; i < first && c.work(1); i++ {
		was := steps[i]
		if was.set >= 0 && sets[was.set].nodes&^here.nodes != 0 {
			continue
		}
		now := step{from: i, set: at, placed: was.placed | here.may, preferred: was.preferred | here.wanted}
		if was.covers(&now) {
			continue
		}
		if others := steps[first:]; !slices.ContainsFunc(others, func(o step) bool { return o.covers(&now) }) {
			others = slices.DeleteFunc(others, func(o step) bool { return now.covers(&o) })
			steps = append(steps[:first+len(others)], now)
		}
	}
	return steps
}
