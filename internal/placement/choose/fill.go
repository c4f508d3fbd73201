package choose

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// filling is a set of groups that together have enough CPUs.
type filling struct {
	candidate // their total cost
	shares    []share
	fresh     int // how many of them have no CPU of UsedWith
	// instead is the criterion by which they are better than one group with enough CPUs; empty
	// if they are not.
	instead string
}

func (f *filling) add(p *picker, s share, c cost) {
	f.far += p.distanceOf(s.group, f.shares)
	f.nodes |= p.nodesIn(s.group, s.n)
	f.shares, f.cost, f.left = append(f.shares, s), f.cost.plus(c), f.left+int(p.have[s.group])
	if n := p.besides(s.group); n > 0 {
		f.beside += n
	} else {
		f.fresh++
	}
}

// fill divides n over several parts, none of which has enough. It takes all of the largest
// parts until one has enough for the rest, so that no fewer parts would do. It may begin with
// parts that have UsedWith or near CPUs. The ranking picks the best result.
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

// fillAll takes all CPUs of the parts, if that is the number wanted.
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

// fillKinds divides n over two kinds of cores. It tries each division, because the number of
// shared cores differs.
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

// try fills groups beginning with first, and keeps the result if it is better than the earlier
// result. It reports whether any result exists.
func (p *picker) try(parts []int, n int, first []int, best *filling, found bool) bool {
	f, ok := p.fillFrom(parts, n, first)
	return p.keep(&f, ok, best, found)
}

// keep replaces the earlier result if a filling is better.
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

// with lists the groups that have any of the CPUs counted in has, the groups with the most free
// CPUs first. It returns their number.
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

// maxSeeds limits how many equally large groups are tried as the first.
const maxSeeds = 8

// seeds lists the groups with the most free CPUs, if the choice of the first group affects the
// result. Of equal groups it lists the group whose CPUs have the fewest other users. It returns
// their number.
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

// around hashes a group and the number of free CPUs at each distance from it. Two entirely free
// groups with the same hash are interchangeable as the first group. On an empty machine all
// groups have the same hash. A group that is not entirely free has a unique hash.
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

// sharing returns the number of a group's free CPUs on which other containers run.
func (p *picker) sharing(group int) int {
	if p.shared == nil {
		return 0
	}
	return int(p.shared[group])
}

// distancesMatter reports whether NUMA nodes differ in their distance to a group.
func (p *picker) distancesMatter(group int) bool {
	at := p.tree.groups[group].node
	return at >= 0 && p.tree.machine.Nodes[at].Distance != nil
}

// fillFrom takes all of some groups in their order, then of the largest others.
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
		for !ok && take > 1 { // cores have two threads, and n is odd
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

// largest returns the unused group with the most free CPUs. Of equal ones it returns the
// nearest to the used groups, then the one with the fewest Shared CPUs; -1 if none has free
// CPUs.
func (p *picker) largest(parts []int, used []share) int {
	best, near := -1, 0
	for _, part := range parts {
		have := p.have[part]
		if have == 0 || best >= 0 && have < p.have[best] || isUsed(used, part) {
			continue
		}
		far := p.distanceOf(part, used)
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
