package numahints

import (
	"cmp"
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

// smallSets returns the best set with enough of each resource, for each of a few small sizes.
func (c *chains) smallSets(counts *Counts) (out []Mask) {
	c.cut = true // these are not all
	for size := range min(c.n, 4) {
		if m, ok := c.cover(size+1, []*Counts{counts}); ok {
			out = append(out, m)
		}
	}
	return out
}

// among returns those of the given sets that are hints of the counts.
func (c *chains) among(counts *Counts, pool []Mask) []Hint {
	least := smallest(counts.Capacity, counts.Need, c.n)
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

// step is a chain of sets that places some items. It places one item more than the previous
// step.
type step struct {
	preferred int    // the number of its preferred hints outside of Options.Align
	from      int    // the step before; -1 for none
	set       int    // its last set
	item      int    // the item that it placed there
	placed    uint64 // the items that are placed
}

// choose places all items on a chain of sets; false if no chain exists.
func (c *chains) choose() bool {
	var sets []Mask
	for _, it := range c.items {
		for _, h := range it.sets {
			sets = append(sets, h.Nodes)
		}
	}
	slices.SortFunc(sets, func(a, b Mask) int {
		switch {
		case a == b:
			return 0
		case c.narrower(a, b):
			return -1
		}
		return 1
	})
	sets = slices.Compact(sets)
	all := uint64(1)<<len(c.items) - 1
	steps := []step{{from: -1, set: -1, item: -1}}
	best := -1
	if all == 0 {
		best = 0
	}
	for at := range sets {
		var ends map[uint64]int
		steps, ends = c.extend(steps, sets, at)
		if k, ok := ends[all]; ok && (best < 0 || steps[k].preferred > steps[best].preferred) {
			best = k
		}
	}
	if best < 0 {
		return false
	}
	for k := best; steps[k].from >= 0; k = steps[k].from {
		for _, i := range c.items[steps[k].item].resources {
			at := slices.IndexFunc(c.options[i], func(h Hint) bool { return h.Nodes == sets[steps[k].set] })
			c.each[i] = c.options[i][at]
		}
	}
	return true
}

// extend adds the steps whose last set is sets[at]. ends has the best such step for each
// combination of placed items.
func (c *chains) extend(steps []step, sets []Mask, at int) (all []step, ends map[uint64]int) {
	ends = map[uint64]int{}
	for i := 0; i < len(steps) && c.work(1); i++ { // it grows
		was := steps[i]
		if was.set >= 0 && sets[was.set]&^sets[at] != 0 {
			continue
		}
		for j, it := range c.items {
			h, has := it.at(sets[at])
			if !has || was.placed>>j&1 != 0 {
				continue
			}
			now := step{preferred: was.preferred, from: i, set: at, item: j, placed: was.placed | 1<<j}
			if h.Preferred && !it.aligned {
				now.preferred++
			}
			if k, known := ends[now.placed]; !known || steps[k].preferred < now.preferred {
				steps = append(steps, now)
				ends[now.placed] = len(steps) - 1
			}
		}
	}
	return steps, ends
}

// at returns the hint for a set.
func (it *item) at(m Mask) (Hint, bool) {
	i := slices.IndexFunc(it.sets, func(h Hint) bool { return h.Nodes == m })
	if i < 0 {
		return Hint{}, false
	}
	return it.sets[i], true
}
