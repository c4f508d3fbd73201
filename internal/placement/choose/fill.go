package choose

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// filling is some groups that hold together what is wanted of them.
type filling struct {
	candidate // what they cost in all
	shares    []share
	fresh     int // how many of them have nothing that it is used with
	// instead is what they are better by than one that would hold all; empty where none
	// would.
	instead string
}

func (f *filling) add(p *picker, s share, c cost) {
	f.far += p.far(s.group, f.shares)
	f.nodes |= p.nodesIn(s.group, s.n)
	f.shares, f.cost, f.left = append(f.shares, s), f.cost.plus(c), f.left+int(p.have[s.group])
	if n := p.besides(s.group); n > 0 {
		f.beside += n
	} else {
		f.fresh++
	}
}

// fill divides n over several parts, none of which holds them all: the largest
// are emptied until one holds the rest, so that no fewer would do. It may begin with
// those that have CPUs beside or near; the best of what is found by the ranking stays.
func (p *picker) fill(parts []int, n int) (best filling, found bool) {
	if part := &p.tree.groups[parts[0]]; len(parts) == 2 && part.ofKind && part.outer > topology.NodeLevel {
		return p.fillKinds(parts[0], parts[1], n)
	}
	if best, found = p.fillAll(parts, n); found {
		return best, true
	}
	var first [topology.MaxNodes]int
	for i := range p.seeds(parts, &first) {
		found = p.try(parts, n, first[i:i+1], &best, found)
	}
	for _, has := range [...]tally{p.beside, p.nearby} {
		if k := p.with(parts, has, &first); k > 0 {
			found = p.try(parts, n, first[:k], &best, found)
		}
	}
	if p.wholes != nil {
		f, ok := p.fillWhole(parts, n)
		found = p.keep(&f, ok, &best, found)
	}
	return best, found
}

// fillAll takes all that parts have, where that is what is wanted: there is no other way.
func (p *picker) fillAll(parts []int, n int) (f filling, ok bool) {
	for _, part := range parts {
		n -= int(p.have[part])
	}
	if n != 0 {
		return f, false
	}
	f.shares = p.list()
	for _, part := range parts {
		have := int(p.have[part])
		if have == 0 {
			continue
		}
		c, ok := p.measure(part, have)
		if !ok {
			p.release(f.shares)
			return filling{}, false
		}
		f.add(p, share{part, have}, c)
	}
	return f, true
}

// fillKinds divides n over two kinds of cores in the best of all ways: how many cores
// are shared with others depends on each number.
func (p *picker) fillKinds(a, b, n int) (best filling, found bool) {
	for k := max(1, n-int(p.have[b])); k <= min(n-1, int(p.have[a])); k++ {
		one, okA := p.measure(a, k)
		two, okB := p.measure(b, n-k)
		f := filling{shares: p.list()}
		f.add(p, share{a, k}, one)
		f.add(p, share{b, n - k}, two)
		found = p.keep(&f, okA && okB, &best, found)
	}
	return best, found
}

// try fills groups beginning with some and keeps the better of that and what was found
// before. It reports whether anything is found.
func (p *picker) try(parts []int, n int, first []int, best *filling, found bool) bool {
	f, ok := p.fillFrom(parts, n, first)
	return p.keep(&f, ok, best, found)
}

// keep replaces what was found before where a filling is better.
func (p *picker) keep(f *filling, ok bool, best *filling, found bool) bool {
	f.rank = p.rank(&f.candidate)
	if !ok || found && (f.fresh > best.fresh || f.fresh == best.fresh && !f.rank.better(&best.rank)) {
		p.release(f.shares)
		return found
	}
	p.release(best.shares)
	*best = *f
	return true
}

// with lists the groups of which has counts any, those with the most free CPUs first.
// It returns how many there are.
func (p *picker) with(parts []int, has tally, groups *[topology.MaxNodes]int) (n int) {
	if has == nil {
		return 0
	}
	for _, part := range parts {
		if has[part] == 0 || p.have[part] == 0 || n == len(groups) {
			continue
		}
		at := n
		for ; at > 0 && p.have[groups[at-1]] < p.have[part]; at-- {
			groups[at] = groups[at-1]
		}
		groups[at] = part
		n++
	}
	return n
}

// maxSeeds bounds how many equally large groups are tried as the first.
const maxSeeds = 8

// seeds lists the groups with the most free CPUs, where it matters which of them is the
// first; of those that are as good as each other that with the fewest CPUs others run on. It
// returns how many there are.
func (p *picker) seeds(parts []int, out *[topology.MaxNodes]int) (n int) {
	most, first := int32(0), parts[0]
	for _, part := range parts {
		if have := p.have[part]; have > most || have == most && p.sharing(part) < p.sharing(first) {
			most, first = have, part
		}
	}
	if !p.distancesMatter(first) {
		out[0] = first
		return 1
	}
	var known [maxSeeds]uint64 // what is around them
	for _, part := range parts {
		if p.have[part] != most {
			continue
		}
		around := p.around(part, parts)
		switch i := slices.Index(known[:n], around); {
		case i >= 0 && p.sharing(part) < p.sharing(out[i]):
			out[i] = part
		case i < 0 && n < maxSeeds:
			out[n], known[n] = part, around
			n++
		}
	}
	return n
}

// around sums up a group and how many free CPUs there are at which distance from it. Of two
// groups that are entirely free and have the same sum it does not matter which is emptied
// first: on an empty machine all have. Other groups have sums of their own.
func (p *picker) around(part int, parts []int) (sum uint64) {
	g := &p.tree.groups[part]
	if int(p.have[part]) != g.size || g.node < 0 || p.besides(part) > 0 || p.nearby != nil && p.nearby[part] > 0 {
		return spreadBits(uint64(part) + 1)
	}
	for _, other := range parts {
		o := &p.tree.groups[other]
		h := uint64(p.have[other])<<32 | uint64(p.besides(other))<<16
		if o.node >= 0 {
			h |= uint64(p.tree.machine.Distance(g.node, o.node))
		}
		sum += spreadBits(h)
	}
	return sum ^ spreadBits(uint64(g.shape)+1)<<1
}

// spreadBits is the last step of SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014).
func spreadBits(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// sharing is on how many free CPUs of a group others run.
func (p *picker) sharing(group int) int {
	if p.shared == nil {
		return 0
	}
	return int(p.shared[group])
}

// distancesMatter reports whether one NUMA node may be nearer to a group than
// another.
func (p *picker) distancesMatter(group int) bool {
	at := p.tree.groups[group].node
	return at >= 0 && p.tree.machine.Nodes[at].Distance != nil
}

// fillFrom empties some groups in their order, then the largest others.
func (p *picker) fillFrom(parts []int, n int, first []int) (f filling, ok bool) {
	f.shares = p.list()
	for i := 0; n > 0; i++ {
		var next int
		if i < len(first) {
			next = first[i]
		} else if last, _, of := p.best(parts, n, f.shares); of > 0 {
			f.add(p, share{last.group, n}, last.cost)
			return f, true
		} else if next = p.largest(parts, f.shares); next < 0 {
			return f, false
		}
		take := min(int(p.have[next]), n)
		c, ok := p.measure(next, take)
		for !ok && take > 1 { // cores of two threads, and an odd number of CPUs
			take--
			c, ok = p.measure(next, take)
		}
		if !ok {
			return f, false
		}
		f.add(p, share{next, take}, c)
		n -= take
	}
	return f, true
}

// largest returns the group with the most free CPUs of those not used yet, the
// nearest to the used ones where several have as many, and of these the one with the
// fewest CPUs others run on; -1 where none has any.
func (p *picker) largest(parts []int, used []share) int {
	best, near := -1, 0
	for _, part := range parts {
		have := p.have[part]
		if have == 0 || best >= 0 && have < p.have[best] || isUsed(used, part) {
			continue
		}
		far := p.far(part, used)
		if best < 0 || have > p.have[best] || cmp.Or(far-near, p.sharing(part)-p.sharing(best)) < 0 {
			best, near = part, far
		}
	}
	return best
}

func isUsed(list []share, group int) bool {
	for i := range list {
		if list[i].group == group {
			return true
		}
	}
	return false
}
