package choose

import (
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodeSet is a choice of NUMA nodes.
type nodeSet struct {
	nodes []int // by index, ascending
	left  int   // how many CPUs they have beside those that are wanted
	tied  bool  // what follows from the nodes alone does not decide against it
	rank  nodeRank
}

// nodeCriterion is a place in the ranking of sets of equally many nodes: first what
// follows from the nodes, then from the CPUs that would be chosen there.
type nodeCriterion int

// The criteria, the most important first. Where none tells two sets apart, the lowest nodes
// decide.
const (
	mostNodesNear nodeCriterion = iota
	fewestPackages
	nearestMemory
	shortestBetween
	mostPreferred
	ofCPUs // the criteria of CPUs follow, from the fewest kinds of cores on
)

const lowestNodes = ofCPUs + nodeCriterion(lowest-fewestKinds)

// nodeCriteria are their names, for people.
var nodeCriteria = [...]string{
	mostNodesNear:   "the most nodes near ", // NearName says what is near
	fewestPackages:  "the fewest packages",
	nearestMemory:   "the nearest memory",
	shortestBetween: "the shortest way between them",
	mostPreferred:   "the most that is preferred",
}

// nodeRank is a number for each criterion: less is better.
type nodeRank [lowestNodes]int64

// rule names a criterion.
func (s *nodeSearch) rule(by nodeCriterion) string {
	switch {
	case by == mostNodesNear:
		return nodeCriteria[by] + s.want.NearName
	case by < ofCPUs:
		return nodeCriteria[by]
	case by == lowestNodes:
		return "the lowest nodes"
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
	return slices.Compare(a.nodes, b.nodes) < 0, lowestNodes
}

// order ranks a set by what is left over.
func (a *nodeSet) order(roomy bool) {
	if roomy {
		a.rank[ofCPUs+nodeCriterion(mostLeft-fewestKinds)] = -int64(a.left)
	} else {
		a.rank[ofCPUs+nodeCriterion(leastLeft-fewestKinds)] = int64(a.left)
	}
}

// maxPriced is of how many sets of several nodes it is worked out what CPUs there would
// cost: of those that are equal until then, the ones with the least left over (the most, where
// that is preferred).
const maxPriced = 8

// price ranks sets by the CPUs that would be chosen there, where nothing before that
// decides. Those whose nodes do not hold what is wanted after all are left out. Where whole
// nodes are taken no N CPUs are chosen there: what is left over of these decides.
func (s *nodeSearch) price(all []nodeSet, k int) []nodeSet {
	if len(all) < 2 || s.want.Whole {
		return all
	}
	ofNodes := func(c *nodeSet) []int64 { return c.rank[:mostPreferred] }
	least := &all[0]
	for i := range all {
		if slices.Compare(ofNodes(&all[i]), ofNodes(least)) < 0 {
			least = &all[i]
		}
	}
	var best []*nodeSet
	groups := true
	for i := range all {
		if slices.Equal(ofNodes(&all[i]), ofNodes(least)) {
			best, all[i].tied = append(best, &all[i]), true
			groups = groups && !slices.ContainsFunc(all[i].nodes, func(at int) bool { return s.tree.byNode[at] < 0 })
		}
	}
	if len(best) == 1 || !groups { // of nodes that are cut by caches or dies nothing can be said
		return all
	}
	if k == 1 {
		s.prepareEach(best)
	} else {
		s.picker.from(s.picker.usable(s.want.From))
		best = firstOf(best, maxPriced)
	}
	var out []nodeSet
	for _, c := range best {
		if s.priceOne(c) {
			out = append(out, *c)
		}
	}
	if len(out) == 0 {
		return all
	}
	for i := range all {
		if !all[i].tied {
			out = append(out, all[i])
		}
	}
	return out
}

// firstOf returns the n best of some sets.
func firstOf(sets []*nodeSet, n int) []*nodeSet {
	var out []*nodeSet
	for _, c := range sets {
		at := len(out)
		for ; at > 0; at-- {
			if yes, _ := c.before(out[at-1]); !yes {
				break
			}
		}
		if at < n {
			out = slices.Insert(out, at, c)
			out = out[:min(n, len(out))]
		}
	}
	return out
}

// prepareEach starts to choose on single nodes, on each from what the preferences leave there.
func (s *nodeSearch) prepareEach(sets []*nodeSet) {
	var all topology.Set
	for _, c := range sets {
		free, dropped := s.picker.preferred(s.picker.usable(s.want.From.And(s.tree.machine.Nodes[c.nodes[0]].CPUs)))
		c.rank[mostPreferred] = dropped
		all = all.Union(free)
	}
	s.picker.from(all)
}

// preferred applies the preferences without a word. What cannot be kept to is a bit of
// dropped, the most important first.
func (p *picker) preferred(free topology.Set) (left topology.Set, dropped int64) {
	for i := range p.want.Preferences {
		pref := &p.want.Preferences[i]
		if pref.Partly { // it is the nodes' to be near
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

// priceOne ranks one set by its CPUs; ok is false where they cannot be chosen.
func (s *nodeSearch) priceOne(c *nodeSet) (ok bool) {
	p, k := &s.picker, len(c.nodes)
	var groups [topology.MaxNodes]int
	for i, at := range c.nodes {
		groups[i] = s.tree.byNode[at]
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

// localDistance is what firmware tells of a node to itself (ACPI, SLIT), unreachable the
// most it can tell.
const localDistance, unreachable = 10, 254

// farMemory is how much memory would not be on the nodes themselves, in MiB times how much
// farther it is than theirs.
func (s *nodeSearch) farMemory(nodes []int) (far int64) {
	w := &s.want
	if w.Memory == 0 || w.MemoryLeft == nil {
		return 0
	}
	short := w.Memory
	for _, at := range nodes {
		short -= min(short, w.MemoryLeft[at])
	}
	if short == 0 {
		return 0
	}
	m := s.tree.machine
	var others []int
	for i := range m.Nodes {
		if w.MemoryLeft[i] > 0 && !slices.Contains(nodes, i) {
			others = append(others, i)
		}
	}
	slices.SortStableFunc(others, func(a, b int) int { return nearest(m, nodes, a) - nearest(m, nodes, b) })
	for _, i := range others {
		some := min(short, w.MemoryLeft[i])
		far += int64(some>>20) * int64(max(0, nearest(m, nodes, i)-localDistance))
		short -= some
	}
	return far + int64(short>>20)*(unreachable-localDistance)
}
