package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// candidate is a group that holds all that is wanted of it, and what that would
// cost.
type candidate struct {
	rank   rank
	group  int
	cost   cost
	far    int // from the groups already filled, and those beside
	beside int // how many CPUs it has that the chosen ones are used with
	left   int // how many of its CPUs are free
	// nodes are the NUMA nodes of it and of the groups already filled, by index, a bit each,
	// where memory counts.
	nodes uint64
}

// cost is what a choice uses up: how many groups of each level it is in, of how
// many kinds the cores are in each NUMA node, and how many CPUs are of efficient
// ones; how many cores it takes a part of, and how many of these were whole; how many of
// its CPUs are near, and on how many others run. A core of which the one who asks has
// the rest is no further one, and one that is taken in part less.
type cost struct {
	spans            [topology.CoreLevel + 1]int16
	kinds, efficient int16
	split, broken    int16
	near, shared     int16
}

func (c cost) plus(d cost) cost {
	for l := range c.spans {
		c.spans[l] += d.spans[l]
	}
	c.kinds, c.efficient = c.kinds+d.kinds, c.efficient+d.efficient
	c.split, c.broken = c.split+d.split, c.broken+d.broken
	c.near, c.shared = c.near+d.near, c.shared+d.shared
	return c
}

// criterion is a place in the ranking.
type criterion int

// The criteria, the most important first. The first that tells two candidates apart
// decides; where none does, the lowest CPU.
const (
	mostBeside criterion = iota
	fewestDies
	fewestNodes
	mostCPUsNear
	leastFarMemory
	shortestWay
	fewestKinds
	fewestSplit
	fewestEfficient
	fewestL3
	fewestClusters
	fewestL2
	mostCores
	fewestCores
	fewestBroken
	fewestShared
	mostLeft
	leastLeft
	lowest
)

// criteria are their names, for people.
var criteria = [...]string{
	mostBeside:      "the most CPUs beside those it works with",
	fewestDies:      "the fewest dies",
	fewestNodes:     "the fewest NUMA nodes",
	mostCPUsNear:    "the most CPUs near ", // what is near is said by the question
	leastFarMemory:  "the nearest memory",
	shortestWay:     "the shortest way to the others chosen",
	fewestKinds:     "the fewest kinds of cores",
	fewestSplit:     "the fewest cores shared with others",
	fewestEfficient: "the fewest efficient cores",
	fewestL3:        "the fewest L3 caches",
	fewestClusters:  "the fewest clusters",
	fewestL2:        "the fewest L2 caches",
	mostCores:       "the most cores",
	fewestCores:     "the fewest cores",
	fewestBroken:    "the fewest whole cores broken",
	fewestShared:    "the fewest CPUs of shared pools",
	mostLeft:        "the most left over",
	leastLeft:       "the least left over",
	lowest:          "the lowest CPU",
}

// rank is a number for each criterion: less is better.
type rank [lowest]int32

// rank says what a candidate is worth by each criterion.
func (p *picker) rank(c *candidate) rank {
	r := rank{
		mostBeside:      -int32(c.beside),
		fewestDies:      int32(c.cost.spans[topology.DieLevel]),
		fewestNodes:     int32(c.cost.spans[topology.NodeLevel]),
		mostCPUsNear:    -int32(c.cost.near),
		shortestWay:     int32(c.far),
		fewestKinds:     int32(c.cost.kinds),
		fewestEfficient: int32(c.cost.efficient),
		fewestL3:        int32(c.cost.spans[topology.L3Level]),
		fewestClusters:  int32(c.cost.spans[topology.ClusterLevel]),
		fewestL2:        int32(c.cost.spans[topology.L2Level]),
		fewestBroken:    int32(c.cost.broken),
		fewestShared:    int32(c.cost.shared),
	}
	if cores := int32(c.cost.spans[topology.CoreLevel]); p.want.Cores == SpreadThreads {
		r[mostCores] = -cores
	} else {
		r[fewestCores] = cores
	}
	if p.tree.hybrid && p.want.Cores != SpreadThreads && p.want.Cores != OneThread {
		r[fewestSplit] = int32(c.cost.split)
	}
	if p.memory != nil {
		r[leastFarMemory] = p.farMemory(c.nodes)
	}
	if p.want.Efficient {
		r[fewestEfficient] *= -1
	}
	if p.want.PreferEmptiest {
		r[mostLeft] = -int32(c.left)
	} else {
		r[leastLeft] = int32(c.left)
	}
	return r
}

// before reports whether a is better than b, and by which criterion. b comes first in the
// order of the lowest CPU.
func (a *rank) before(b *rank) (yes bool, by criterion) {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i], criterion(i)
		}
	}
	return false, lowest
}

func (a *rank) better(b *rank) bool {
	yes, _ := a.before(b)
	return yes
}

// rule names the criterion that decided among several.
func (p *picker) rule(by criterion, of int) string {
	switch {
	case of < 2:
		return ""
	case by == mostCPUsNear:
		return criteria[by] + p.nearName
	}
	return p.name(by)
}

// name names a criterion of CPUs.
func (p *picker) name(by criterion) string {
	if by == fewestEfficient && p.want.Efficient {
		return "the most efficient cores"
	}
	return criteria[by]
}
