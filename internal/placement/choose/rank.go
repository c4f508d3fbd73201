package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// candidate is a group with enough CPUs, and the cost of taking CPUs of this group.
type candidate struct {
	rank     rank
	group    int // the index of the group in Tree.groups
	cost     cost
	distance int // the result of distanceOf
	usedWith int // the number of the group's CPUs in UsedWith
	free     int // the number of the group's free CPUs
	// nodes are the NUMA nodes of the group and of the groups that are used already, as a bit set of indices.
	// It is 0 if the distance of memory does not matter.
	nodes uint64
}

// cost is what a choice of CPUs uses. A core with other threads in UsedWith is not counted again.
type cost struct {
	spans         [topology.CoreLevel + 1]int16 // the number of groups of each level with chosen CPUs
	coreKinds     int16                         // the number of kinds of cores, summed over NUMA nodes
	efficientCPUs int16                         // the chosen CPUs on efficient cores
	// splitCores is the number of cores that are used partly. It is 1 lower for each core that UsedWith uses partly and
	// whose other threads are all chosen. brokenCores is how many of the partly used cores were completely free.
	splitCores, brokenCores int16
	nearCPUs, sharedCPUs    int16 // the chosen CPUs in picker.near, and those in Request.Shared
}

// add returns the sum of two costs.
func (c cost) add(d cost) cost {
	for l := range c.spans {
		c.spans[l] += d.spans[l]
	}
	c.coreKinds, c.efficientCPUs = c.coreKinds+d.coreKinds, c.efficientCPUs+d.efficientCPUs
	c.splitCores, c.brokenCores = c.splitCores+d.splitCores, c.brokenCores+d.brokenCores
	c.nearCPUs, c.sharedCPUs = c.nearCPUs+d.nearCPUs, c.sharedCPUs+d.sharedCPUs
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
	fewestSplitCores
	fewestEfficientCores
	fewestL3
	fewestClusters
	fewestL2
	mostCores
	fewestCores
	fewestBrokenCores
	fewestSharedCPUs
	mostFreeCPUs
	fewestFreeCPUs
	lowestCPU
)

// criteria has the names of the criteria for users.
var criteria = [...]string{
	mostUsedWith:         "the most CPUs near those that the owner already has",
	fewestDies:           "the fewest dies",
	fewestNodes:          "the fewest NUMA nodes",
	mostCPUsNear:         "the most CPUs near ", // followed by the request's NearName
	leastFarMemory:       "the nearest memory",
	shortestDistance:     "the shortest distance to the other chosen CPUs",
	fewestKinds:          "the fewest kinds of cores",
	fewestSplitCores:     "the fewest cores shared with other containers",
	fewestEfficientCores: "the fewest efficient cores",
	fewestL3:             "the fewest L3 caches",
	fewestClusters:       "the fewest clusters",
	fewestL2:             "the fewest L2 caches",
	mostCores:            "the most cores",
	fewestCores:          "the fewest cores",
	fewestBrokenCores:    "the fewest whole cores split",
	fewestSharedCPUs:     "the fewest CPUs of shared pools",
	mostFreeCPUs:         "the most CPUs left",
	fewestFreeCPUs:       "the fewest CPUs left",
	lowestCPU:            "the lowest CPU",
}

// rank has a number for each criterion; a lower number is better.
type rank [lowestCPU]int32

// rank returns the rank of a candidate.
func (p *picker) rank(c *candidate) rank {
	r := rank{
		mostUsedWith:         -int32(c.usedWith),
		fewestDies:           int32(c.cost.spans[topology.DieLevel]),
		fewestNodes:          int32(c.cost.spans[topology.NodeLevel]),
		mostCPUsNear:         -int32(c.cost.nearCPUs),
		shortestDistance:     int32(c.distance),
		fewestKinds:          int32(c.cost.coreKinds),
		fewestEfficientCores: int32(c.cost.efficientCPUs),
		fewestL3:             int32(c.cost.spans[topology.L3Level]),
		fewestClusters:       int32(c.cost.spans[topology.ClusterLevel]),
		fewestL2:             int32(c.cost.spans[topology.L2Level]),
		fewestBrokenCores:    int32(c.cost.brokenCores),
		fewestSharedCPUs:     int32(c.cost.sharedCPUs),
	}
	if cores := int32(c.cost.spans[topology.CoreLevel]); p.request.Cores == SpreadThreads {
		r[mostCores] = -cores
	} else {
		r[fewestCores] = cores
	}
	if p.tree.hybrid && p.request.Cores != SpreadThreads && p.request.Cores != OneThread {
		r[fewestSplitCores] = int32(c.cost.splitCores)
	}
	if p.memory != nil {
		r[leastFarMemory] = p.farMemory(c.nodes)
	}
	if p.request.Efficient {
		r[fewestEfficientCores] *= -1
	}
	if p.request.PreferEmptiest {
		r[mostFreeCPUs] = -int32(c.free)
	} else {
		r[fewestFreeCPUs] = int32(c.free)
	}
	return r
}

// isBetter reports whether a is better than b, and which criterion decides. If a and b are equal, isBetter returns
// false and lowestCPU. So a caller that searches for the best candidate must pass the candidate with the lower CPUs as
// b.
func (a *rank) isBetter(b *rank) (yes bool, by criterion) {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i], criterion(i)
		}
	}
	return false, lowestCPU
}

// beats reports whether a is better than b.
func (a *rank) beats(b *rank) bool {
	yes, _ := a.isBetter(b)
	return yes
}

// ruleName returns the name of the criterion that decided between candidates; "" if there was only one candidate. The
// parameter candidates is the number of candidates.
func (p *picker) ruleName(by criterion, candidates int) string {
	switch {
	case candidates < 2:
		return ""
	case by == mostCPUsNear:
		return criteria[by] + p.nearName
	}
	return p.criterionName(by)
}

// criterionName returns the name of a criterion for users.
func (p *picker) criterionName(by criterion) string {
	if by == fewestEfficientCores && p.request.Efficient {
		return "the most efficient cores"
	}
	return criteria[by]
}
