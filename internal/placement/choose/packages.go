package choose

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// maxPackages is the largest number of packages for which every combination is tried. With more packages,
// improvePackages keeps the packages that fill chose.
const maxPackages = 8

// innerGroup is a group inside a package. pkg is the index of the package, and freeCount the number of the group's
// free CPUs.
type innerGroup struct{ group, pkg, freeCount int }

// improvePackages looks for a better division of n CPUs over packages than filled, the division that fill found. A
// division over equally many packages is better if it has fewer dies, or as many dies and fewer NUMA nodes. The result
// best is the better division, and level is the level of its groups: dies or NUMA nodes. The result groupCount is the
// number of groups of this level with free CPUs. If there is no better division, groupCount is 0.
func (p *picker) improvePackages(g *group, n int, filled []portion, c cost) (best []portion, level topology.Level, groupCount int) {
	if p.tree.groups[g.parts[0]].outer != topology.PackageLevel || p.usedWithCount != nil {
		return nil, 0, 0
	}
	for _, l := range [...]topology.Level{topology.DieLevel, topology.NodeLevel} {
		parts := p.groupsInside(g, l)
		if partsNeeded(parts, n, allPackages) >= int(c.spans[l]) {
			continue
		}
		portions, sum, ok := p.divideOverFewest(parts, n, p.packageSets(g, filled))
		die, node := sum.spans[topology.DieLevel]-c.spans[topology.DieLevel], sum.spans[topology.NodeLevel]-c.spans[topology.NodeLevel]
		if ok && cmp.Or(die, node) < 0 {
			best, level, groupCount, c = portions, l, len(parts), sum
		}
	}
	return best, level, groupCount
}

// groupsInside returns the groups of a level that have free CPUs, the groups with the most free CPUs first.
func (p *picker) groupsInside(g *group, l topology.Level) []innerGroup {
	parts := make([]innerGroup, 0, len(p.tree.machine.Groups(l)))
	var add func(at, pkg int)
	add = func(at, pkg int) {
		switch of := &p.tree.groups[at]; {
		case p.freeCount[at] == 0:
		case of.inner >= l:
			parts = append(parts, innerGroup{at, pkg, int(p.freeCount[at])})
		default:
			for _, part := range of.parts {
				add(part, pkg)
			}
		}
	}
	for pkg, at := range g.parts {
		add(at, pkg)
	}
	slices.SortStableFunc(parts, func(a, b innerGroup) int { return b.freeCount - a.freeCount })
	return parts
}

// packageSet is a set of packages, as a bit set of indices.
type packageSet uint64

const allPackages = ^packageSet(0)

func (s packageSet) has(pkg int) bool { return pkg < 64 && s&(1<<pkg) != 0 }

// packageSets returns all sets that have as many packages as the division filled. If the machine has more than
// maxPackages packages, it returns only the set of the packages in filled.
func (p *picker) packageSets(g *group, filled []portion) []packageSet {
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

// partsNeeded returns how many of the parts in a set of packages are needed for n CPUs. If these parts together have
// fewer than n CPUs, it returns more than the number of all parts.
func partsNeeded(parts []innerGroup, n int, in packageSet) int {
	used := 0
	for i := range parts {
		if in != allPackages && !in.has(parts[i].pkg) {
			continue
		}
		used++
		if n -= parts[i].freeCount; n <= 0 {
			return used
		}
	}
	return len(parts) + 1
}

// divideOverFewest divides n over as few parts as possible, in the set of packages that needs the fewest
// parts. It takes all CPUs of the largest parts, and the rest from the best part that has enough CPUs for the rest.
// Only the choice of this last part considers distances, because with 64 NUMA nodes a search of all combinations would
// take too long.
func (p *picker) divideOverFewest(parts []innerGroup, n int, sets []packageSet) (portions []portion, c cost, ok bool) {
	least, in := len(parts)+1, packageSet(0)
	for _, s := range sets {
		if k := partsNeeded(parts, n, s); k < least {
			least, in = k, s
		}
	}
	var others []int
	for _, part := range parts {
		switch {
		case !in.has(part.pkg):
		case len(portions) == least-1:
			others = append(others, part.group)
		default:
			portions = append(portions, portion{part.group, part.freeCount})
			n -= part.freeCount
		}
	}
	slices.Sort(others) // the lowest CPUs first
	last, _, of := p.bestGroup(others, n, portions)
	if of == 0 {
		return nil, c, false
	}
	for _, s := range portions {
		one, whole := p.costOf(s.group, s.n)
		if c = c.add(one); !whole {
			return nil, c, false
		}
	}
	c, portions = c.add(last.cost), append(portions, portion{last.group, n})
	c.spans[topology.DieLevel] = p.countDies(portions)
	return portions, c, true
}

// countDies returns the number of dies that the groups are in.
func (p *picker) countDies(portions []portion) (n int16) {
	var seen [topology.MaxNodes]int
	for _, s := range portions {
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
