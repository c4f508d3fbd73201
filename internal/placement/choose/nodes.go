package choose

import (
	"math/bits"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodeSet is a candidate set of NUMA nodes.
type nodeSet struct {
	nodes uint64 // indices, as a bit set
	left  int    // how many more CPUs they have than wanted
	rank  nodeRank
}

// nodeCriterion is a criterion of the ranking of node sets of one size: first properties of the
// nodes, then of the CPUs that would be chosen there.
type nodeCriterion int

// The criteria, the most important first. If all are equal, the lowest nodes win.
const (
	mostNodesNear nodeCriterion = iota
	fewestPackages
	nearestMemory
	shortestBetween
	mostPreferred
	ofCPUs // the criteria of CPUs follow, beginning with the fewest kinds of cores
)

const lowestNodes = ofCPUs + nodeCriterion(lowest-fewestKinds)

// nodeCriteria are the names of the criteria for users.
var nodeCriteria = [...]string{
	mostNodesNear:   "the most nodes near ", // followed by NearName
	fewestPackages:  "the fewest sockets",
	nearestMemory:   "the nearest memory",
	shortestBetween: "the shortest distance between them",
	mostPreferred:   "the most preferred CPUs",
}

// nodeRank is a number for each criterion; less is better.
type nodeRank [lowestNodes]int64

// rule names a criterion.
func (s *nodeSearch) rule(by nodeCriterion) string {
	switch {
	case by == mostNodesNear:
		return nodeCriteria[by] + s.want.NearName
	case by < ofCPUs:
		return nodeCriteria[by]
	case by == lowestNodes:
		return "the lowest node ids"
	}
	return s.picker.name(criterion(by-ofCPUs) + fewestKinds)
}

// before reports whether a is better than b, and by which criterion.
func (a *nodeSet) before(b *nodeSet) (yes bool, by nodeCriterion) {
	for i := range a.rank {
		if a.rank[i] != b.rank[i] {
			return a.rank[i] < b.rank[i], nodeCriterion(i)
		}
	}
	differ := a.nodes ^ b.nodes
	return a.nodes&differ&-differ != 0, lowestNodes // of equally many nodes, the set with the lowest node that differs
}

// order ranks a set by the number of CPUs that it would leave unused.
func (a *nodeSet) order(roomy bool) {
	if roomy {
		a.rank[ofCPUs+nodeCriterion(mostLeft-fewestKinds)] = -int64(a.left)
	} else {
		a.rank[ofCPUs+nodeCriterion(leastLeft-fewestKinds)] = int64(a.left)
	}
}

// decide returns the best of the sets that were found, and the reason.
func (s *nodeSearch) decide() (best nodeSet, why Reason) {
	s.price()
	best = s.sets[0]
	for i := range s.sets[1:] {
		if yes, _ := s.sets[1+i].before(&best); yes {
			best = s.sets[1+i]
		}
	}
	return best, s.against(&best)
}

// against returns the criteria that decided for the best set.
func (s *nodeSearch) against(best *nodeSet) Reason {
	why := Reason{Step: Bound, Of: len(s.sets), Left: s.k, Level: topology.NodeLevel}
	for i := range s.sets {
		if s.sets[i].nodes != best.nodes {
			s.lostTo(&why, best, &s.sets[i])
		}
	}
	for by, n := range s.lost {
		if why.Of += n; n > 0 && s.k > 1 {
			why.against(by, s.rule(nodeCriterion(by)), n, -1)
		}
	}
	for i := range s.worse {
		s.lostTo(&why, best, &s.worse[i])
	}
	return why
}

// lostTo notes by which criterion a set lost.
func (s *nodeSearch) lostTo(why *Reason, best, c *nodeSet) {
	id := -1
	if s.k == 1 {
		id = s.named(c.nodes)
	}
	_, by := best.before(c)
	why.against(int(by), s.rule(by), 1, id)
}

// named returns the id of the first node of a set.
func (s *nodeSearch) named(nodes uint64) int {
	return s.tree.machine.Nodes[bits.TrailingZeros64(nodes)].ID
}

// price ranks sets by the CPUs that would be chosen there, if no earlier criterion decides.
// Sets that turn out too small are dropped. If whole nodes are taken, the number of CPUs left
// over decides.
func (s *nodeSearch) price() {
	if len(s.sets) < 2 || s.want.Whole {
		return
	}
	for i := range s.sets {
		for b := s.sets[i].nodes; b != 0; b &= b - 1 {
			if s.tree.byNode[bits.TrailingZeros64(b)] < 0 { // the CPUs of nodes that caches or dies cut across cannot be ranked
				return
			}
		}
	}
	if s.k == 1 {
		s.prepareEach()
	} else {
		s.picker.from(s.picker.usable(s.want.From))
	}
	n := 0
	for i := range s.sets {
		if s.priceOne(&s.sets[i]) {
			s.sets[n], s.sets[i] = s.sets[i], s.sets[n]
			n++
		}
	}
	if n > 0 {
		s.sets = s.sets[:n]
	}
}

// prepareEach starts a choice on each single node, from the CPUs that the preferences leave
// there.
func (s *nodeSearch) prepareEach() {
	var all topology.Set
	for i := range s.sets {
		c := &s.sets[i]
		free, dropped := s.picker.preferred(s.picker.usable(s.want.From.And(s.tree.machine.Nodes[bits.TrailingZeros64(c.nodes)].CPUs)))
		c.rank[mostPreferred] = dropped
		all = all.Union(free)
	}
	s.picker.from(all)
}

// preferred applies the preferences without noting reasons. Each preference that is skipped is
// a bit of dropped, the most important first.
func (p *picker) preferred(free topology.Set) (left topology.Set, dropped int64) {
	for i := range p.want.Preferences {
		pref := &p.want.Preferences[i]
		if pref.Partly { // the set of nodes has already decided nearness
			continue
		}
		dropped <<= 1
		if left, kept := p.prefer(free, pref); kept {
			free = left
		} else {
			dropped |= 1
		}
	}
	dropped <<= 1
	if p.want.Cores == PreferWhole && p.want.N >= p.tree.threads {
		if whole := p.ofWhole(free); whole.Len() >= p.want.N {
			free = whole
		} else {
			dropped |= 1
		}
	}
	return free, dropped
}

// priceOne ranks one set by its CPUs; ok is false if they cannot be chosen.
func (s *nodeSearch) priceOne(c *nodeSet) (ok bool) {
	p, k := &s.picker, 0
	var groups [topology.MaxNodes]int
	for b := c.nodes; b != 0; b &= b - 1 {
		groups[k] = s.tree.byNode[bits.TrailingZeros64(b)]
		k++
	}
	var sum candidate
	switch {
	case k == 1:
		sum.cost, ok = p.measure(groups[0], s.want.N)
	case s.want.Even:
		ok = true
		for _, g := range groups[:k] {
			one, can := p.measure(g, s.want.N/k)
			sum.cost, ok = sum.cost.plus(one), ok && can
		}
	default:
		f, found := p.fill(groups[:k], s.want.N)
		sum.cost, ok = f.cost, found
		p.release(f.shares)
	}
	sum.left = c.left
	r := p.rank(&sum)
	for i := fewestKinds; i < mostLeft; i++ {
		c.rank[ofCPUs+nodeCriterion(i-fewestKinds)] = int64(r[i])
	}
	return ok
}
