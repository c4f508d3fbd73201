package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// candidate is a group with enough CPUs, and the cost of taking CPUs of this group.
type candidate struct {
	rank     rank
	group    int // the index of the group in Tree.groups
	cost     cost
	distance int // the sum of the distances from the group's NUMA node to the nodes of the other used groups and of Request.UsedWith
	usedWith int // the number of the group's CPUs that are in Request.UsedWith
	free     int // the number of the group's free CPUs
	// nodes are the NUMA nodes of the group, and of the groups from which CPUs are already taken, as a bit set of
	// indices. It is 0 if the requested memory fits on every node with CPUs.
	nodes uint64
}

// cost is what a choice of CPUs uses. It does not count a core that has threads in Request.UsedWith, because this core
// is in use anyway.
type cost struct {
	spans         [topology.CoreLevel + 1]int16 // by level: the number of groups with chosen CPUs, such as the number of NUMA nodes
	coreKinds     int16                         // on how many kinds of cores the chosen CPUs are, added up over all NUMA nodes
	efficientCPUs int16                         // the chosen CPUs on efficient cores
	// splitCores is the number of cores of which only some threads are chosen and no thread is in Request.UsedWith. It
	// is 1 lower for each core that the choice completes: some threads of this core are in UsedWith, and all others are
	// chosen. brokenCores is how many of the cores with only some chosen threads were completely free.
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
	mostUsedWith         criterion = iota // the candidate has the most CPUs in Request.UsedWith
	fewestDies                            // the chosen CPUs are on the fewest dies
	fewestNodes                           // the chosen CPUs are on the fewest NUMA nodes
	mostCPUsNear                          // the most chosen CPUs are in picker.near
	leastFarMemory                        // the requested memory would be nearest to the chosen CPUs
	shortestDistance                      // the NUMA node is nearest to the nodes of the other chosen CPUs and of Request.UsedWith
	fewestKinds                           // the chosen CPUs are on the fewest kinds of cores
	fewestSplitCores                      // the fewest cores are shared with other containers; only for hybrid processors
	fewestEfficientCores                  // the fewest chosen CPUs are on efficient cores; with Request.Efficient, the most
	fewestL3                              // the chosen CPUs are in the fewest L3 caches
	fewestClusters                        // the chosen CPUs are in the fewest clusters of cores
	fewestL2                              // the chosen CPUs are in the fewest L2 caches
	mostCores                             // the chosen CPUs are on the most cores; only with SpreadThreads
	fewestCores                           // the chosen CPUs are on the fewest cores; only without SpreadThreads
	fewestBrokenCores                     // the fewest completely free cores are only partly chosen
	fewestSharedCPUs                      // the fewest chosen CPUs are in Request.Shared
	mostFreeCPUs                          // the candidate has the most free CPUs; only with Request.PreferEmptiest
	fewestFreeCPUs                        // the candidate has the fewest free CPUs; only without Request.PreferEmptiest
	lowestCPU                             // the candidate has the lowest CPU
)

// criteria has the names of the criteria for users.
var criteria = [...]string{
	mostUsedWith:         "the most CPUs near those that the owner already has",
	fewestDies:           "the fewest dies",
	fewestNodes:          "the fewest NUMA nodes",
	mostCPUsNear:         "the most CPUs near ", // followed by picker.nearName
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
