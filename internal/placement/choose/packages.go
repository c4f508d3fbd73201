package choose

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// maxPackages is the largest number of packages of which every combination is tried. With more
// packages, the packages that were filled first stay chosen.
const maxPackages = 8

// inner is a group inside a package, with its number of free CPUs.
type inner struct{ group, pkg, have int }

// overPackages improves a division of n CPUs over packages, which filled one package after
// another. If as few packages have the CPUs on fewer dies, or on no more dies and fewer NUMA
// nodes, it returns that division and the number of choices.
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

// inside lists the groups of a level that have free CPUs, those with the most first.
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

// packageSet is a set of packages, by their index.
type packageSet uint64

const everyPackage = ^packageSet(0)

func (s packageSet) has(pkg int) bool { return pkg < 64 && s&(1<<pkg) != 0 }

// packages lists the sets of as many packages as were filled.
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

// needed returns how many parts of some packages are needed for n CPUs. If all parts together
// have too few CPUs, it returns more than their number.
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

// fewest divides n over as few parts as possible, in the first of the sets of packages that
// need the fewest. It takes all of the largest parts, and the best part that has the rest.
// Nearness counts only for the last part: with 64 NUMA nodes all combinations would take too
// long.
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

// dies returns the number of dies of some groups. A group inside a die does not count that die.
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
