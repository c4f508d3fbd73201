package choose

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/topology"
)

// filling is some groups that hold together what is wanted of them.
type filling struct {
	candidate // what they cost in all
	shares    []share
	fresh     int // how many of them have nothing that it is used with
}

func (f *filling) add(p *picker, s share, c cost) {
	f.far += p.far(s.group, f.shares)
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
	var first [topology.MaxNodes]int
	for i := range p.seeds(parts, &first) {
		found = p.try(parts, n, first[i:i+1], &best, found)
	}
	for _, has := range [...]tally{p.beside, p.nearby} {
		if k := p.with(parts, has, &first); k > 0 {
			found = p.try(parts, n, first[:k], &best, found)
		}
	}
	return best, found
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
// first; else that with the fewest CPUs others run on. It returns how many there are.
func (p *picker) seeds(parts []int, out *[topology.MaxNodes]int) (n int) {
	most := int32(0)
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
		for _, part := range out[1:n] {
			if p.sharing(part) < p.sharing(out[0]) {
				out[0] = part
			}
		}
		n = 1
	}
	return n
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
		next := -1
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
