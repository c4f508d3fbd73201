package choose

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// maxPackages bounds of how many packages every choice is looked at. Where there
// are more, those that were filled first stay.
const maxPackages = 8

// inner is a group inside a package, with how many of its CPUs are free.
type inner struct{ group, pkg, have int }

// overPackages improves on n CPUs that were divided over packages, one filled
// after the other, at some cost: where as few packages have them on fewer dies, or
// on no more dies and fewer NUMA nodes, it returns these and of how many they are. What
// is used with others is where these are.
func (p *picker) overPackages(g *group, n int, filled []share, c cost) (best []share, level topology.Level, of int) {
	if p.tree.groups[g.parts[0]].outer != topology.PackageLevel || p.beside != nil {
		return nil, 0, 0
	}
	for _, l := range [...]topology.Level{topology.DieLevel, topology.NodeLevel} {
		parts := p.inside(g, l)
		if needed(parts, n, everyPackage) >= int(c.spans[l]) {
			continue
		}
		shares, sum, ok := p.fewest(parts, n, p.packages(g, filled))
		die, node := sum.spans[topology.DieLevel]-c.spans[topology.DieLevel], sum.spans[topology.NodeLevel]-c.spans[topology.NodeLevel]
		if ok && cmp.Or(die, node) < 0 {
			best, level, of, c = shares, l, len(parts), sum
		}
	}
	return best, level, of
}

// inside lists the groups of a level that have free CPUs, those with the most
// first.
func (p *picker) inside(g *group, l topology.Level) []inner {
	parts := make([]inner, 0, len(p.tree.machine.Groups(l)))
	var add func(at, pkg int)
	add = func(at, pkg int) {
		switch of := &p.tree.groups[at]; {
		case p.have[at] == 0:
		case of.inner >= l:
			parts = append(parts, inner{at, pkg, int(p.have[at])})
		default:
			for _, part := range of.parts {
				add(part, pkg)
			}
		}
	}
	for pkg, at := range g.parts {
		add(at, pkg)
	}
	slices.SortStableFunc(parts, func(a, b inner) int { return b.have - a.have })
	return parts
}

// packageSet is some packages, by their place in the machine.
type packageSet uint64

const everyPackage = ^packageSet(0)

func (s packageSet) has(pkg int) bool { return pkg < 64 && s&(1<<pkg) != 0 }

// packages lists the choices of as many packages as were filled.
func (p *picker) packages(g *group, filled []share) []packageSet {
	if len(g.parts) > maxPackages {
		var s packageSet
		for i, part := range g.parts {
			if isUsed(filled, part) {
				s |= 1 << i
			}
		}
		return []packageSet{s}
	}
	var sets []packageSet
	for s := packageSet(1); s < 1<<len(g.parts); s++ {
		if bits.OnesCount64(uint64(s)) == len(filled) {
			sets = append(sets, s)
		}
	}
	return sets
}

// needed is how many of the parts in some packages hold n, more than there are
// where all do not.
func needed(parts []inner, n int, in packageSet) int {
	used := 0
	for i := range parts {
		if in != everyPackage && !in.has(parts[i].pkg) {
			continue
		}
		used++
		if n -= parts[i].have; n <= 0 {
			return used
		}
	}
	return len(parts) + 1
}

// fewest divides n over as few parts as possible, in the first of the sets of
// packages that do with as few: all of the largest, and the best that holds the
// rest. Nearness counts for the last one alone; with 64 NUMA nodes it would cost
// more to look at all ways.
func (p *picker) fewest(parts []inner, n int, sets []packageSet) (shares []share, c cost, ok bool) {
	least, in := len(parts)+1, packageSet(0)
	for _, s := range sets {
		if k := needed(parts, n, s); k < least {
			least, in = k, s
		}
	}
	var others []int
	for _, part := range parts {
		switch {
		case !in.has(part.pkg):
		case len(shares) == least-1:
			others = append(others, part.group)
		default:
			shares = append(shares, share{part.group, part.have})
			n -= part.have
		}
	}
	slices.Sort(others) // the lowest CPUs first
	last, _, of := p.best(others, n, shares)
	if of == 0 {
		return nil, c, false
	}
	for _, s := range shares {
		one, whole := p.measure(s.group, s.n)
		if c = c.plus(one); !whole {
			return nil, c, false
		}
	}
	c, shares = c.plus(last.cost), append(shares, share{last.group, n})
	c.spans[topology.DieLevel] = p.dies(shares)
	return shares, c, true
}

// dies is on how many dies some groups are: those inside of a die do not count it.
func (p *picker) dies(shares []share) (n int16) {
	var seen [topology.MaxNodes]int
	for _, s := range shares {
		at := s.group
		for p.tree.groups[at].outer > topology.DieLevel {
			at = p.tree.groups[at].parent
		}
		if int(n) < len(seen) && !slices.Contains(seen[:n], at) {
			seen[n], n = at, n+1
		}
	}
	return n
}
