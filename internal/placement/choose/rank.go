package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// candidate is a group with enough CPUs, and the cost of taking them there.
type candidate struct {
	rank     rank
	group    int
	cost     cost
	distance int // the result of distanceOf
	usedWith int // the number of its CPUs in UsedWith
	free     int // the number of its free CPUs
	// nodes are the NUMA nodes of the group and of the groups that are used already, as a bit set of indices.
	// It is 0 if the distance of memory does not matter.
	nodes uint64
}

// cost is what a choice of CPUs uses. spans has the number of groups of each level. kinds is the number of
// kinds of cores, summed over NUMA nodes. efficient counts CPUs of efficient cores, near the near CPUs, and
// shared the Shared CPUs. split is the number of cores that are used partly, and broken how many of these
// were completely free. A core with other threads in UsedWith is not counted again. If the choice completes
// such a core, it subtracts 1 from split.
type cost struct {
	spans            [topology.CoreLevel + 1]int16
	kinds, efficient int16
	split, broken    int16
	near, shared     int16
}

// add returns the sum of two costs.
func (c cost) add(d cost) cost {
	for l := range c.spans {
		c.spans[l] += d.spans[l]
	}
	c.kinds, c.efficient = c.kinds+d.kinds, c.efficient+d.efficient
	c.split, c.broken = c.split+d.split, c.broken+d.broken
	c.near, c.shared = c.near+d.near, c.shared+d.shared
	return c
}

// criterion is a criterion of the ranking of candidates. Its value is the index in a rank.
type criterion int

// The criteria, the most important first. The first criterion in which two candidates differ decides. If all
// are equal, the candidate with the lowest CPU wins.
const (
	mostUsedWith criterion = iota
	fewestDies
	fewestNodes
	mostCPUsNear
	leastFarMemory
	shortestDistance
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
	mostFree
	leastFree
	lowest
)

// criteria has the names of the criteria for users.
var criteria = [...]string{
	mostUsedWith:     "the most CPUs near those that the owner already has",
	fewestDies:       "the fewest dies",
	fewestNodes:      "the fewest NUMA nodes",
	mostCPUsNear:     "the most CPUs near ", // followed by the request's NearName
	leastFarMemory:   "the nearest memory",
	shortestDistance: "the shortest distance to the other chosen CPUs",
	fewestKinds:      "the fewest kinds of cores",
	fewestSplit:      "the fewest cores shared with others",
	fewestEfficient:  "the fewest efficient cores",
	fewestL3:         "the fewest L3 caches",
	fewestClusters:   "the fewest clusters",
	fewestL2:         "the fewest L2 caches",
	mostCores:        "the most cores",
	fewestCores:      "the fewest cores",
	fewestBroken:     "the fewest whole cores split",
	fewestShared:     "the fewest CPUs of shared pools",
	mostFree:         "the most CPUs left",
	leastFree:        "the fewest CPUs left",
	lowest:           "the lowest CPU",
}

// rank has a number for each criterion; a lower number is better.
type rank [lowest]int32

// rank returns the rank of a candidate.
func (p *picker) rank(c *candidate) rank {
	r := rank{
		mostUsedWith:     -int32(c.usedWith),
		fewestDies:       int32(c.cost.spans[topology.DieLevel]),
		fewestNodes:      int32(c.cost.spans[topology.NodeLevel]),
		mostCPUsNear:     -int32(c.cost.near),
		shortestDistance: int32(c.distance),
		fewestKinds:      int32(c.cost.kinds),
		fewestEfficient:  int32(c.cost.efficient),
		fewestL3:         int32(c.cost.spans[topology.L3Level]),
		fewestClusters:   int32(c.cost.spans[topology.ClusterLevel]),
		fewestL2:         int32(c.cost.spans[topology.L2Level]),
		fewestBroken:     int32(c.cost.broken),
		fewestShared:     int32(c.cost.shared),
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
		r[mostFree] = -int32(c.free)
	} else {
		r[leastFree] = int32(c.free)
	}
	return r
}

// isBetter reports whether a is better than b, and which criterion decides. If they are equal, b is better,
// because callers pass candidates in the order of their lowest CPUs.
func (a *rank) isBetter(b *rank) (yes bool, by criterion) {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i], criterion(i)
		}
	}
	return false, lowest
}

// better reports whether a is better than b.
func (a *rank) better(b *rank) bool {
	yes, _ := a.isBetter(b)
	return yes
}

// rule returns the name of the criterion that decided between candidates; "" if there was only one candidate.
func (p *picker) rule(by criterion, of int) string {
	switch {
	case of < 2:
		return ""
	case by == mostCPUsNear:
		return criteria[by] + p.nearName
	}
	return p.name(by)
}

// name returns the name of a criterion for users.
func (p *picker) name(by criterion) string {
	if by == fewestEfficient && p.want.Efficient {
		return "the most efficient cores"
	}
	return criteria[by]
}
