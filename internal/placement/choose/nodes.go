package choose

import (
	"math/bits"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodeSet is a set of NUMA nodes that has enough CPUs.
type nodeSet struct {
	nodes uint64 // the indices of the nodes, as a bit set
	left  int    // how many more CPUs the nodes have than requested
	rank  nodeRank
}

// nodeCriterion is a criterion by which node sets of one size are ranked. Criteria about the nodes come
// first, then criteria about the CPUs that would be chosen on them.
type nodeCriterion int

// The criteria, the most important first. If two sets are equal by all criteria, the set with the lower node ids wins.
const (
	mostNodesNear           nodeCriterion = iota // the most nodes have CPUs of the request's field Near
	fewestPackages                               // the nodes are in the fewest packages
	nearestMemory                                // the requested memory is nearest to the nodes
	shortestDistanceBetween                      // the sum of the distances between the nodes is the lowest
	mostPreferredCPUs                            // the most important preferences of the request can be met
	firstCPUCriterion                            // the criteria about CPUs follow, beginning with fewestKinds
)

// lowestNodes is the last criterion: the set with the lowest node ids.
const lowestNodes = firstCPUCriterion + nodeCriterion(lowestCPU-fewestKinds)

// nodeCriteria has the names of the criteria about nodes, for users.
var nodeCriteria = [...]string{
	mostNodesNear:           "the most nodes near ", // followed by NearName
	fewestPackages:          "the fewest sockets",
	nearestMemory:           "the nearest memory",
	shortestDistanceBetween: "the shortest distance between the nodes",
	mostPreferredCPUs:       "the most important preferences met",
}

// nodeRank has a number for each criterion; a lower number is better.
type nodeRank [lowestNodes]int64

// ruleName returns the name of a criterion for users.
func (s *nodeSearch) ruleName(by nodeCriterion) string {
	switch {
	case by == mostNodesNear:
		return nodeCriteria[by] + s.request.NearName
	case by < firstCPUCriterion:
		return nodeCriteria[by]
	case by == lowestNodes:
		return "the lowest node ids"
	}
	return s.picker.criterionName(criterion(by-firstCPUCriterion) + fewestKinds)
}

// isBetter reports whether set a is better than set b, and which criterion decides.
func (a *nodeSet) isBetter(b *nodeSet) (yes bool, by nodeCriterion) {
	for i := range a.rank {
		if a.rank[i] != b.rank[i] {
			return a.rank[i] < b.rank[i], nodeCriterion(i)
		}
	}
	differ := a.nodes ^ b.nodes
	return a.nodes&differ&-differ != 0, lowestNodes // a is better if it has the lowest node that only one of the sets has
}

// rankByLeft ranks a set by the number of CPUs that it would leave unused. If roomy is true, more unused CPUs are
// better, and otherwise fewer are better.
func (a *nodeSet) rankByLeft(roomy bool) {
	if roomy {
		a.rank[firstCPUCriterion+nodeCriterion(mostFreeCPUs-fewestKinds)] = -int64(a.left)
	} else {
		a.rank[firstCPUCriterion+nodeCriterion(fewestFreeCPUs-fewestKinds)] = int64(a.left)
	}
}

// chooseBest returns the best of the sets that were found, and the reason.
func (s *nodeSearch) chooseBest() (best nodeSet, why Reason) {
	s.rankByCost()
	best = s.sets[0]
	for i := range s.sets[1:] {
		if yes, _ := s.sets[1+i].isBetter(&best); yes {
			best = s.sets[1+i]
		}
	}
	return best, s.explain(&best)
}

// explain returns the reason for the best set: the criteria by which the other sets lost.
func (s *nodeSearch) explain(best *nodeSet) Reason {
	why := Reason{Step: NodesChosen, Candidates: len(s.sets), Remaining: s.setSize, Level: topology.NodeLevel}
	for i := range s.sets {
		if s.sets[i].nodes != best.nodes {
			s.addSetElimination(&why, best, &s.sets[i])
		}
	}
	for by, n := range s.lostByCriterion {
		if why.Candidates += n; n > 0 && s.setSize > 1 {
			why.addElimination(by, s.ruleName(nodeCriterion(by)), n, -1)
		}
	}
	for i := range s.losers {
		s.addSetElimination(&why, best, &s.losers[i])
	}
	return why
}

// addSetElimination adds to the reason the criterion by which the set c lost against the best set.
func (s *nodeSearch) addSetElimination(why *Reason, best, c *nodeSet) {
	id := -1
	if s.setSize == 1 {
		id = s.firstID(c.nodes)
	}
	_, by := best.isBetter(c)
	why.addElimination(int(by), s.ruleName(by), 1, id)
}

// firstID returns the id of the first node of a set.
func (s *nodeSearch) firstID(nodes uint64) int {
	return s.tree.machine.Nodes[bits.TrailingZeros64(nodes)].ID
}

// rankByCost ranks the remaining sets. It compares the sets by the CPUs that would be chosen on the nodes of each set.
// It drops sets on which the CPUs cannot be chosen. It does nothing if only one set remains, or if the request takes
// whole nodes.
func (s *nodeSearch) rankByCost() {
	if len(s.sets) < 2 || s.request.WholeNodes {
		return
	}
	for i := range s.sets {
		for b := s.sets[i].nodes; b != 0; b &= b - 1 {
			if s.tree.byNode[bits.TrailingZeros64(b)] < 0 { // no group of the tree is this node, because a cache or die has CPUs of several nodes
				return
			}
		}
	}
	if s.setSize == 1 {
		s.prepareEach()
	} else {
		s.picker.reset(s.picker.usableCPUs(s.request.From))
	}
	n := 0
	for i := range s.sets {
		if s.rankSet(&s.sets[i]) {
			s.sets[n], s.sets[i] = s.sets[i], s.sets[n]
			n++
		}
	}
	if n > 0 {
		s.sets = s.sets[:n]
	}
}

// prepareEach prepares the picker for sets of one node. The picker then chooses from the CPUs that the preferences
// leave on each node.
func (s *nodeSearch) prepareEach() {
	var all topology.Set
	for i := range s.sets {
		c := &s.sets[i]
		free, dropped := s.picker.applyExactPreferences(s.picker.usableCPUs(s.request.From.And(s.tree.machine.Nodes[bits.TrailingZeros64(c.nodes)].CPUs)))
		c.rank[mostPreferredCPUs] = dropped
		all = all.Union(free)
	}
	s.picker.reset(all)
}

// applyExactPreferences applies the preferences of the request that do not have Partly, and then the preference for
// whole cores, if Cores is PreferWhole. It adds no reasons. The result dropped has a bit for each of these preferences.
// The bit is 1 if the preference was skipped. The most important preference has the highest bit, and the preference for
// whole cores has the lowest bit.
func (p *picker) applyExactPreferences(free topology.Set) (left topology.Set, dropped int64) {
	for i := range p.request.Preferences {
		pref := &p.request.Preferences[i]
		if pref.Partly { // the criterion mostNodesNear has already compared the sets by this preference
			continue
		}
		dropped <<= 1
		if left, kept := p.applyPreference(free, pref); kept {
			free = left
		} else {
			dropped |= 1
		}
	}
	dropped <<= 1
	if p.request.Cores == PreferWhole && p.request.N >= p.tree.maxThreads {
		if whole := p.wholeCoreCPUs(free); whole.Len() >= p.request.N {
			free = whole
		} else {
			dropped |= 1
		}
	}
	return free, dropped
}

// rankSet ranks one set by the CPUs that would be chosen on its nodes. ok is false if the CPUs cannot be
// chosen.
func (s *nodeSearch) rankSet(c *nodeSet) (ok bool) {
	p, k := &s.picker, 0
	var groups [topology.MaxNodes]int
	for b := c.nodes; b != 0; b &= b - 1 {
		groups[k] = s.tree.byNode[bits.TrailingZeros64(b)]
		k++
	}
	var sum candidate
	switch {
	case k == 1:
		sum.cost, ok = p.costOf(groups[0], s.request.N)
	case s.request.Even:
		ok = true
		for _, g := range groups[:k] {
			one, can := p.costOf(g, s.request.N/k)
			sum.cost, ok = sum.cost.add(one), ok && can
		}
	default:
		f, found := p.fill(groups[:k], s.request.N)
		sum.cost, ok = f.cost, found
		p.releaseList(f.portions)
	}
	sum.free = c.left
	r := p.rank(&sum)
	for i := fewestKinds; i < mostFreeCPUs; i++ {
		c.rank[firstCPUCriterion+nodeCriterion(i-fewestKinds)] = int64(r[i])
	}
	return ok
}
