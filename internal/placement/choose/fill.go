package choose

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// division divides the requested CPUs over several groups, and has the cost of this division.
type division struct {
	candidate // the total cost of the groups
	portions  []portion
	newGroups int // the number of groups in portions that have no CPU in Request.UsedWith
	// betterBy is the criterion by which the set is better than a single group with enough CPUs; "" if no
	// single group has enough.
	betterBy string
}

// add adds a portion of a group to the division. The parameter c is the cost of this portion.
func (f *division) add(p *picker, s portion, c cost) {
	f.distance += p.distanceOf(s.group, f.portions)
	f.nodes |= p.nodesIn(s.group, s.n)
	f.portions, f.cost, f.free = append(f.portions, s), f.cost.add(c), f.free+int(p.freeCount[s.group])
	if n := p.usedWithIn(s.group); n > 0 {
		f.usedWith += n
	} else {
		f.newGroups++
	}
}

// fill divides n CPUs over several parts of a group. It takes all free CPUs of the largest parts until one part has
// enough CPUs for the rest. So the result has as few parts as possible. fill also tries divisions that begin with the
// parts that have CPUs in Request.UsedWith, or CPUs of a preference with Partly. Of all these divisions it returns one
// with the fewest parts that have no CPU in Request.UsedWith. If several have equally many such parts, it returns the
// best of them by the ranking. If the parts are the two kinds of cores of a NUMA node, fillKinds divides n.
func (p *picker) fill(parts []int, n int) (best division, found bool) {
	if part := &p.tree.groups[parts[0]]; len(parts) == 2 && part.isCoreKind && part.outer > topology.NodeLevel {
		return p.fillKinds(parts[0], parts[1], n)
	}
	if best, found = p.fillAll(parts, n); found {
		return best, true
	}
	var first [topology.MaxNodes]int
	for i := range p.listSeeds(parts, &first) {
		found = p.tryFill(parts, n, first[i:i+1], &best, found)
	}
	for _, has := range [...]tally{p.usedWithCount, p.nearCount} {
		if k := p.groupsWith(parts, has, &first); k > 0 {
			found = p.tryFill(parts, n, first[:k], &best, found)
		}
	}
	if p.wholeCoreCount != nil {
		f, ok := p.fillWhole(parts, n)
		found = p.keepBetter(&f, ok, &best, found)
	}
	return best, found
}

// fillAll takes all free CPUs of the parts. The result ok is false if their number is not n, or if they cannot all be
// taken.
func (p *picker) fillAll(parts []int, n int) (f division, ok bool) {
	for _, part := range parts {
		n -= int(p.freeCount[part])
	}
	if n != 0 {
		return f, false
	}
	f.portions = p.emptyList()
	for _, part := range parts {
		have := int(p.freeCount[part])
		if have == 0 {
			continue
		}
		c, ok := p.costOf(part, have)
		if !ok {
			p.releaseList(f.portions)
			return division{}, false
		}
		f.add(p, portion{part, have}, c)
	}
	return f, true
}

// fillKinds divides n over the two kinds of cores of a NUMA node. It tries every division, because divisions
// differ in the number of cores that are split.
func (p *picker) fillKinds(a, b, n int) (best division, found bool) {
	for k := max(1, n-int(p.freeCount[b])); k <= min(n-1, int(p.freeCount[a])); k++ {
		one, okA := p.costOf(a, k)
		two, okB := p.costOf(b, n-k)
		f := division{portions: p.emptyList()}
		f.add(p, portion{a, k}, one)
		f.add(p, portion{b, n - k}, two)
		found = p.keepBetter(&f, okA && okB, &best, found)
	}
	return best, found
}

// tryFill divides n over parts, beginning with the groups in first. It stores the result in best if the result is
// better than best. The parameter found says whether best has a result before the call. tryFill reports whether best
// has a result after the call.
func (p *picker) tryFill(parts []int, n int, first []int, best *division, found bool) bool {
	f, ok := p.fillFrom(parts, n, first)
	return p.keepBetter(&f, ok, best, found)
}

// keepBetter stores f in best if f is better. The parameter ok says whether f has enough CPUs, and found says whether
// best has a result before the call. keepBetter reports whether best has a result after the call.
func (p *picker) keepBetter(f *division, ok bool, best *division, found bool) bool {
	f.rank = p.rank(&f.candidate)
	if !ok || found && (f.newGroups > best.newGroups || f.newGroups == best.newGroups && !f.rank.beats(&best.rank)) {
		p.releaseList(f.portions)
		return found
	}
	p.releaseList(best.portions)
	*best = *f
	return true
}

// groupsWith stores in groups the parts with free CPUs for which counts has a number above 0. The parts with the most
// free CPUs come first. It returns the number of stored parts.
func (p *picker) groupsWith(parts []int, counts tally, groups *[topology.MaxNodes]int) (n int) {
	if counts == nil {
		return 0
	}
	for _, part := range parts {
		if counts[part] == 0 || p.freeCount[part] == 0 || n == len(groups) {
			continue
		}
		at := n
		for ; at > 0 && p.freeCount[groups[at-1]] < p.freeCount[part]; at-- {
			groups[at] = groups[at-1]
		}
		groups[at] = part
		n++
	}
	return n
}

// maxSeeds limits the number of groups that fill tries as the first group.
const maxSeeds = 8

// listSeeds stores in out the parts that fill should try as the first part, and returns their number. These are the parts
// with the most free CPUs, at most maxSeeds. If several of them would give the same result, it stores only the one
// with the fewest CPUs in Request.Shared. If the distances between the NUMA nodes are unknown, it stores only one part.
func (p *picker) listSeeds(parts []int, out *[topology.MaxNodes]int) (n int) {
	most, first := int32(0), parts[0]
	for _, part := range parts {
		if have := p.freeCount[part]; have > most || have == most && p.sharedIn(part) < p.sharedIn(first) {
			most, first = have, part
		}
	}
	if !p.distancesKnown(first) {
		out[0] = first
		return 1
	}
	var known [maxSeeds]uint64 // the result of hashAround for each group in out
	for _, part := range parts {
		if p.freeCount[part] != most {
			continue
		}
		around := p.hashAround(part, parts)
		switch i := slices.Index(known[:n], around); {
		case i >= 0 && p.sharedIn(part) < p.sharedIn(out[i]):
			out[i] = part
		case i < 0 && n < maxSeeds:
			out[n], known[n] = part, around
			n++
		}
	}
	return n
}

// hashAround returns a hash of a group and of the free CPUs at each distance from the group. If two completely free
// groups have the same hash, fill needs to try only one of them as the first group. A group that is not completely free
// has a unique hash.
func (p *picker) hashAround(part int, parts []int) (sum uint64) {
	g := &p.tree.groups[part]
	if int(p.freeCount[part]) != g.size || g.node < 0 || p.usedWithIn(part) > 0 || p.nearCount != nil && p.nearCount[part] > 0 {
		return spreadBits(uint64(part) + 1)
	}
	for _, other := range parts {
		o := &p.tree.groups[other]
		h := uint64(p.freeCount[other])<<32 | uint64(p.usedWithIn(other))<<16
		if o.node >= 0 {
			h |= uint64(p.tree.machine.Distance(g.node, o.node))
		}
		sum += spreadBits(h)
	}
	return sum ^ spreadBits(uint64(g.shape)+1)<<1
}

// spreadBits mixes the bits of a number. It is the last step of SplitMix64 (Steele, Lea, Flood: Fast
// Splittable Pseudorandom Number Generators, 2014).
func spreadBits(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// sharedIn returns the number of a group's free CPUs that are in Request.Shared.
func (p *picker) sharedIn(group int) int {
	if p.sharedCount == nil {
		return 0
	}
	return int(p.sharedCount[group])
}

// distancesKnown reports whether the distances from a group's NUMA node to other nodes are known.
func (p *picker) distancesKnown(group int) bool {
	at := p.tree.groups[group].node
	return at >= 0 && p.tree.machine.Nodes[at].Distance != nil
}

// fillFrom takes all CPUs of the groups in first, in their order, and then of the largest other groups, until
// one group has enough for the rest.
func (p *picker) fillFrom(parts []int, n int, first []int) (f division, ok bool) {
	f.portions = p.emptyList()
	for i := 0; n > 0; i++ {
		var next int
		if i < len(first) {
			next = first[i]
		} else if last, _, of := p.bestGroup(parts, n, f.portions); of > 0 {
			f.add(p, portion{last.group, n}, last.cost)
			return f, true
		} else if next = p.largestGroup(parts, f.portions); next < 0 {
			return f, false
		}
		take := min(int(p.freeCount[next]), n)
		c, ok := p.costOf(next, take)
		for !ok && take > 1 { // with WholeCores, possibly no set of the group's whole cores has exactly take CPUs
			take--
			c, ok = p.costOf(next, take)
		}
		if !ok {
			return f, false
		}
		f.add(p, portion{next, take}, c)
		n -= take
	}
	return f, true
}

// largestGroup returns the unused group with the most free CPUs; -1 if no unused group has free CPUs. Of equal
// groups it returns the group nearest to the used groups, and then the group with the fewest Shared CPUs.
func (p *picker) largestGroup(parts []int, used []portion) int {
	best, near := -1, 0
	for _, part := range parts {
		have := p.freeCount[part]
		if have == 0 || best >= 0 && have < p.freeCount[best] || isUsed(used, part) {
			continue
		}
		far := p.distanceOf(part, used)
		if best < 0 || have > p.freeCount[best] || cmp.Or(far-near, p.sharedIn(part)-p.sharedIn(best)) < 0 {
			best, near = part, far
		}
	}
	return best
}

// isUsed reports whether a group is in the list.
func isUsed(list []portion, group int) bool {
	for i := range list {
		if list[i].group == group {
			return true
		}
	}
	return false
}
