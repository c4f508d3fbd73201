package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// candidate is a group with enough CPUs, and the cost of choosing them there.
type candidate struct {
	rank   rank
	group  int
	cost   cost
	far    int // the distance from the groups that are filled already, and from UsedWith
	beside int // the number of its CPUs in UsedWith
	left   int // the number of its free CPUs
	// nodes are the NUMA nodes of it and of the groups that are filled already, as a bit set of
	// indices, if memory counts.
	nodes uint64
}

// cost is what a choice uses: the number of groups of each level, the kinds of cores in each
// NUMA node, the CPUs of efficient cores, the split cores and how many of these were whole, the
// near CPUs, and the Shared CPUs. A core whose other threads are in UsedWith is no additional
// core, and counts as one split core less if it is completed.
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

// criterion is a position in the ranking.
type criterion int

// The criteria, the most important first. The first that differs decides; if all are equal, the
// lowest CPU wins.
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

// criteria are the names of the criteria for users.
var criteria = [...]string{
	mostBeside:      "the most CPUs near those that it already uses",
	fewestDies:      "the fewest dies",
	fewestNodes:     "the fewest NUMA nodes",
	mostCPUsNear:    "the most CPUs near ", // followed by the request's NearName
	leastFarMemory:  "the nearest memory",
	shortestWay:     "the shortest distance to the other chosen CPUs",
	fewestKinds:     "the fewest kinds of cores",
	fewestSplit:     "the fewest cores shared with others",
	fewestEfficient: "the fewest efficient cores",
	fewestL3:        "the fewest L3 caches",
	fewestClusters:  "the fewest clusters",
	fewestL2:        "the fewest L2 caches",
	mostCores:       "the most cores",
	fewestCores:     "the fewest cores",
	fewestBroken:    "the fewest whole cores split",
	fewestShared:    "the fewest CPUs of shared pools",
	mostLeft:        "the most CPUs left",
	leastLeft:       "the fewest CPUs left",
	lowest:          "the lowest CPU",
}

// rank is a number for each criterion; less is better.
type rank [lowest]int32

// rank returns the rank of a candidate.
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

// before reports whether a is better than b, and by which criterion. b has the lower CPU.
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
