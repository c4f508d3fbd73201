package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// picker is one question while it is answered.
type picker struct {
	tree *Tree
	want Want
	why  []Reason
	out  topology.Set

	// Of the set that is chosen from at the moment, by group:
	free   topology.Set
	have   []int // how many of its CPUs are free
	beside []int // how many of its CPUs are in Beside; nil where that is empty
	known  []measured
	some   []share
}

// share is how many CPUs a group gives.
type share struct{ group, n int }

// measured is what n CPUs of an entirely free group cost. Groups of one shape
// cost the same.
type measured struct {
	shape, n int
	cost     cost
}

// from starts to choose from other CPUs.
func (p *picker) from(free topology.Set) {
	p.free, p.known = free, p.known[:0]
	p.have = p.count(p.have, free)
	if !p.want.Beside.Empty() && p.beside == nil {
		p.beside = p.count(nil, p.want.Beside)
	}
}

// count returns how many CPUs of a set each group has.
func (p *picker) count(into []int, s topology.Set) []int {
	groups := p.tree.groups
	if into == nil {
		into = make([]int, len(groups))
	}
	for i := len(groups) - 1; i >= 0; i-- {
		n := 0
		for _, cpu := range groups[i].threads {
			if s.Has(cpu) {
				n++
			}
		}
		for _, part := range groups[i].parts {
			n += into[part]
		}
		into[i] = n
	}
	return into
}

func (p *picker) besides(group int) int {
	if p.beside == nil {
		return 0
	}
	return p.beside[group]
}

// take adds n CPUs of a group to the answer, walking inwards, and notes what
// decided on the way. It reports whether there was a way.
func (p *picker) take(at, n int) bool {
	g := &p.tree.groups[at]
	if g.ofCores {
		_, ok := p.threads(at, n)
		for _, s := range p.some {
			p.takeThreads(s)
		}
		return ok
	}
	best, rule, of := p.best(g.parts, n, nil)
	if of > 0 {
		p.why = append(p.why, Reason{Step: Entered, Rule: rule, Level: p.tree.groups[best.group].outer, Kinds: p.tree.byKind(g), Of: of})
		return p.take(best.group, n)
	}
	shares, c, ok := p.fill(g.parts, n)
	p.why = append(p.why, Reason{Step: Filled, Level: p.tree.groups[g.parts[0]].outer, Kinds: p.tree.byKind(g), Of: len(g.parts), Left: len(shares)})
	if fewer, level, of := p.overPackages(g, n, shares, c); ok && of > 0 {
		shares = fewer
		p.why = append(p.why, Reason{Step: Filled, Level: level, Of: of, Left: len(shares)})
	}
	for _, s := range shares {
		ok = ok && p.take(s.group, s.n)
	}
	return ok
}

// takeThreads adds the lowest free threads of a core.
func (p *picker) takeThreads(s share) {
	for _, cpu := range p.tree.groups[s.group].threads {
		if s.n > 0 && p.free.Has(cpu) {
			p.out.Add(cpu)
			s.n--
		}
	}
}

// measure says what take would cost, without a word.
func (p *picker) measure(at, n int) (c cost, ok bool) {
	g := &p.tree.groups[at]
	alike := p.have[at] == g.size && p.besides(at) == 0
	if alike {
		for i := range p.known {
			if p.known[i].shape == g.shape && p.known[i].n == n {
				return p.known[i].cost, true
			}
		}
	}
	if g.ofCores {
		c, ok = p.threads(at, n)
	} else if best, _, of := p.best(g.parts, n, nil); of > 0 {
		c, ok = best.cost, true
	} else {
		_, c, ok = p.fill(g.parts, n)
	}
	for l := g.outer; l <= g.inner && l < topology.CoreLevel; l++ {
		c.spans[l]++
	}
	if g.ofKind {
		c.kinds++
	}
	if alike && ok {
		p.known = append(p.known, measured{g.shape, n, c})
	}
	return c, ok
}

// best returns the best of the groups that hold n, by what rule it beat the
// next best, and how many there were. Groups already used are left out, and
// nearness to them counts.
func (p *picker) best(parts []int, n int, used []share) (best candidate, rule string, of int) {
	var next candidate
	for _, part := range parts {
		if p.have[part] < n || isUsed(used, part) {
			continue
		}
		c := candidate{group: part, far: p.far(part, used)}
		var ok bool
		if c.cost, ok = p.measure(part, n); !ok {
			continue
		}
		of++
		switch {
		case of == 1:
			best = c
		case first(p.better(&c, &best)):
			best, next = c, best
		case of == 2 || first(p.better(&c, &next)):
			next = c
		}
	}
	if of > 1 {
		_, rule = p.better(&best, &next)
	}
	return best, rule, of
}

// fill divides n over several parts, none of which holds them all: the largest
// are emptied until one holds the rest, so that no fewer would do. Of equally
// large ones the nearest to each other are taken.
func (p *picker) fill(parts []int, n int) (best []share, c cost, found bool) {
	nearest := 0
	for _, seed := range p.seeds(parts) {
		shares, sum, far, ok := p.fillFrom(parts, n, seed)
		if ok && (!found || far < nearest) {
			best, c, nearest, found = shares, sum, far, true
		}
	}
	return best, c, found
}

// maxSeeds bounds how many equally large groups are tried as the first.
const maxSeeds = 8

// seeds returns the groups with the most free CPUs, where it matters which of
// them is the first.
func (p *picker) seeds(parts []int) []int {
	var out [maxSeeds]int
	most, n := 0, 0
	for _, part := range parts {
		if p.have[part] > most {
			n, most = 0, p.have[part]
		}
		if p.have[part] == most && n < maxSeeds {
			out[n] = part
			n++
		}
	}
	if n > 1 && !p.distancesMatter(out[0]) {
		n = 1
	}
	return out[:n]
}

// distancesMatter reports whether one NUMA node may be nearer to a group than
// another.
func (p *picker) distancesMatter(group int) bool {
	at := p.tree.groups[group].node
	return at >= 0 && p.tree.machine.Nodes[at].Distance != nil
}

func (p *picker) fillFrom(parts []int, n, seed int) (shares []share, sum cost, far int, ok bool) {
	for next := seed; next >= 0; next = p.largest(parts, shares) {
		take := min(p.have[next], n)
		c, ok := p.measure(next, take)
		for !ok && take > 1 { // cores of two threads, and an odd number of CPUs
			take--
			c, ok = p.measure(next, take)
		}
		if !ok {
			return nil, sum, far, false
		}
		far += p.far(next, shares)
		shares, sum = append(shares, share{next, take}), sum.plus(c)
		if n -= take; n == 0 {
			return shares, sum, far, true
		}
		if last, _, of := p.best(parts, n, shares); of > 0 {
			return append(shares, share{last.group, n}), sum.plus(last.cost), far + last.far, true
		}
	}
	return nil, sum, far, false
}

// largest returns the group with the most free CPUs of those not used yet, the
// nearest to the used ones where several have as many; -1 where none has any.
func (p *picker) largest(parts []int, used []share) int {
	best, near := -1, 0
	for _, part := range parts {
		have := p.have[part]
		if have == 0 || best >= 0 && have < p.have[best] || isUsed(used, part) {
			continue
		}
		if far := p.far(part, used); best < 0 || have > p.have[best] || far < near {
			best, near = part, far
		}
	}
	return best
}

// far returns how far a group is from others, as the sum over their NUMA nodes.
func (p *picker) far(part int, others []share) int {
	sum, at := 0, p.tree.groups[part].node
	for _, o := range others {
		if to := p.tree.groups[o.group].node; at >= 0 && to >= 0 {
			sum += p.tree.machine.Distance(to, at)
		}
	}
	return sum
}

func first(yes bool, _ string) bool { return yes }

func isUsed(list []share, group int) bool {
	for i := range list {
		if list[i].group == group {
			return true
		}
	}
	return false
}
