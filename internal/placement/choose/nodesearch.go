package choose

import (
	"math"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodeSearch searches for sets of NUMA nodes. It compares properties of the nodes during the
// search, and keeps the first few of the best sets.
type nodeSearch struct {
	tree     *Tree
	picker   picker // computes the cost of CPUs on the nodes
	want     *BindWant
	holds    [topology.MaxNodes]int // the number of CPUs, by node
	from     [topology.MaxNodes]int // the nodes with CPUs
	nodes    int                    // their number
	near     uint64                 // the nodes near the requested CPUs
	memory   memoryNeed
	packages int // how many packages are allowed, if that is limited

	// For the number of nodes that is tried now:
	k        int
	some     []int                      // the nodes that can belong to a set
	maxHolds [topology.MaxNodes + 1]int // for each index of some: the largest number of CPUs of a node at or after it
	// sets are the best so far; worse are other single nodes. lost counts the sets that lost,
	// by criterion.
	sets, worse []nodeSet
	lost        [lowestNodes + 1]int
}

// maxSets limits the exhaustive search. With more sets, each node is tried as the first one,
// and the nearest or the emptiest ones are added.
const maxSets = 5000

// maxPriced limits for how many sets of several nodes the CPUs are ranked. Of equal sets, those
// with the fewest CPUs left over are ranked (the most, if that is preferred).
const maxPriced = 8

// nodesSoFar is a set of nodes that grows.
type nodesSoFar struct {
	nodes, packages uint64
	n, holds, far   int
}

// search finds the best sets of k nodes that have enough CPUs.
func (s *nodeSearch) search(k int) {
	s.k, s.sets, s.worse, s.lost = k, s.sets[:0], s.worse[:0], [lowestNodes + 1]int{}
	if !s.candidates() {
		return
	}
	if combinations(len(s.some), k) <= maxSets {
		s.every(nodesSoFar{}, 0)
		return
	}
	s.grow()
}

// candidates lists the nodes that can belong to a set; ok is false if there is none.
func (s *nodeSearch) candidates() (ok bool) {
	w := s.want
	each, even := w.N/s.k, w.Even
	if even && (each*s.k != w.N || each%s.picker.unit() != 0) {
		return false
	}
	s.some = s.from[:s.nodes]
	if even {
		s.some = slices.DeleteFunc(slices.Clone(s.some), func(at int) bool { return s.holds[at] < each })
	}
	s.maxHolds[len(s.some)] = 0
	for i := len(s.some) - 1; i >= 0; i-- {
		s.maxHolds[i] = max(s.maxHolds[i+1], s.holds[s.some[i]])
	}
	return len(s.some) >= s.k && s.maxHolds[0]*s.k >= w.N
}

// every offers all sets that begin with some nodes.
func (s *nodeSearch) every(set nodesSoFar, from int) {
	missing := s.k - set.n
	if missing == 0 {
		s.offer(&set)
		return
	}
	for i := from; i <= len(s.some)-missing && set.holds+missing*s.maxHolds[i] >= s.want.N; i++ {
		s.every(s.with(set, s.some[i]), i+1)
	}
}

// with adds a node to a set.
func (s *nodeSearch) with(set nodesSoFar, at int) nodesSoFar {
	for b := set.nodes; b != 0; b &= b - 1 {
		o := bits.TrailingZeros64(b)
		set.far += s.tree.machine.Distance(min(o, at), max(o, at))
	}
	set.nodes |= 1 << at
	set.n++
	set.holds += s.holds[at]
	if s.tree.packages != nil {
		set.packages |= s.tree.packages[at]
	}
	return set
}

// grow offers, for each node, the set of it and the nodes nearest to the set, the emptiest
// first among equals. It also offers the set of the emptiest nodes, since the nearest ones may
// be too full.
func (s *nodeSearch) grow() {
	seen := make([]uint64, 0, 2*topology.MaxNodes)
	for _, nearFirst := range [...]bool{true, false} {
		for _, seed := range s.some {
			set := s.grown(seed, nearFirst)
			if !slices.Contains(seen, set.nodes) {
				seen = append(seen, set.nodes)
				s.offer(&set)
			}
		}
	}
}

func (s *nodeSearch) grown(seed int, nearFirst bool) nodesSoFar {
	set := s.with(nodesSoFar{}, seed)
	var far [topology.MaxNodes]int
	for last := seed; set.n < s.k; {
		best := -1
		for _, i := range s.some {
			if set.nodes>>i&1 != 0 {
				continue
			}
			far[i] += s.tree.machine.Distance(last, i)
			if best < 0 {
				best = i
				continue
			}
			nearer, emptier := far[i]-far[best], s.holds[best]-s.holds[i]
			if first, second := nearer, emptier; nearFirst && (first < 0 || first == 0 && second < 0) ||
				!nearFirst && (second < 0 || second == 0 && first < 0) {
				best = i
			}
		}
		set, last = s.with(set, best), best
	}
	return set
}

// offer compares a set with the best one by the properties of its nodes.
func (s *nodeSearch) offer(set *nodesSoFar) {
	c := nodeSet{nodes: set.nodes, left: set.holds - s.want.N}
	if c.left < 0 {
		return
	}
	packages := s.packagesOf(set)
	if s.want.BySocket && packages > s.packages {
		return
	}
	c.rank[mostNodesNear] = -int64(bits.OnesCount64(set.nodes & s.near))
	c.rank[fewestPackages] = int64(packages)
	c.rank[shortestBetween] = int64(set.far)
	c.order(s.want.PreferEmptiest)
	if len(s.sets) == 0 {
		c.rank[nearestMemory] = s.memory.far(c.nodes, math.MaxInt64)
		s.sets = append(s.sets, c)
		return
	}
	best := &s.sets[0]
	way, by := compareNodes(&c, best, nearestMemory)
	if way <= 0 {
		limit := int64(math.MaxInt64)
		if way == 0 { // the exact difference does not matter
			limit = best.rank[nearestMemory]
		}
		c.rank[nearestMemory] = s.memory.far(c.nodes, limit)
		way, by = compareNodes(&c, best, mostPreferred)
	}
	switch {
	case way > 0:
		s.lose(&c, by, 1)
	case way == 0:
		s.keep(&c)
	default:
		s.replace(&c, by)
	}
}

// compareNodes compares two sets by the criteria before one, and returns the criterion that
// decided.
func compareNodes(a, b *nodeSet, before nodeCriterion) (way int, by nodeCriterion) {
	for by := range before {
		switch {
		case a.rank[by] < b.rank[by]:
			return -1, by
		case a.rank[by] > b.rank[by]:
			return 1, by
		}
	}
	return 0, before
}

// lose notes that n sets lost by a criterion. It keeps single nodes, so that the reason can name
// them.
func (s *nodeSearch) lose(c *nodeSet, by nodeCriterion, n int) {
	if s.k == 1 {
		s.worse = append(s.worse, *c)
	}
	s.lost[by] += n
}

// replace makes a set the only best one, because it beats all earlier sets by a criterion. Sets
// that had lost by a later criterion now lose by this criterion.
func (s *nodeSearch) replace(c *nodeSet, by nodeCriterion) {
	for i := range s.sets {
		s.lose(&s.sets[i], by, 1)
	}
	for later := by + 1; later <= lowestNodes; later++ {
		s.lost[by], s.lost[later] = s.lost[by]+s.lost[later], 0
	}
	s.sets = append(s.sets[:0], *c)
}

// keep adds another of the best sets; at most maxPriced sets of several nodes.
func (s *nodeSearch) keep(c *nodeSet) {
	s.sets = append(s.sets, *c)
	if s.k == 1 {
		return
	}
	for i := len(s.sets) - 1; i > 0; i-- {
		if yes, _ := s.sets[i].before(&s.sets[i-1]); !yes {
			break
		}
		s.sets[i-1], s.sets[i] = s.sets[i], s.sets[i-1]
	}
	if len(s.sets) > maxPriced {
		_, by := s.sets[maxPriced-1].before(&s.sets[maxPriced])
		s.sets = s.sets[:maxPriced]
		s.lose(nil, by, 1)
	}
}

// packagesOf returns the number of packages of a set.
func (s *nodeSearch) packagesOf(set *nodesSoFar) int {
	if s.tree.packages != nil {
		return bits.OnesCount64(set.packages)
	}
	var all topology.Set
	for b := set.nodes; b != 0; b &= b - 1 {
		all = all.Union(s.tree.machine.Nodes[bits.TrailingZeros64(b)].CPUs)
	}
	return s.tree.machine.Count(topology.PackageLevel, all)
}

// combinations returns the number of sets of k out of n. It stops counting above the limit of
// the exhaustive search.
func combinations(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > maxSets {
			break
		}
	}
	return c
}
