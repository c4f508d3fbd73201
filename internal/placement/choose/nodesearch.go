package choose

import (
	"math"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodeSearch searches for the best sets of NUMA nodes. During the search it compares sets by the criteria
// about nodes, and keeps the best ones, but at most maxRanked sets of several nodes. chooseBest then compares
// these by their CPUs.
type nodeSearch struct {
	tree          *Tree
	picker        picker // computes the cost of taking CPUs of the nodes
	want          *BindRequest
	holds         [topology.MaxNodes]int // the number of CPUs that may be taken, by node
	nodesWithCPUs [topology.MaxNodes]int // the indices of the nodes with CPUs that may be taken
	nodeCount     int                    // the length of nodesWithCPUs
	near          uint64                 // the nodes with CPUs of want.Near, as a bit set
	memory        memoryNeed
	packageLimit  int // the largest number of packages, with FewestPackages

	// The following fields belong to the search for sets of setSize nodes.
	setSize     int
	usableNodes []int                      // the indices of the nodes that can belong to a set
	maxHolds    [topology.MaxNodes + 1]int // for each index of usableNodes: the largest number of CPUs on a node at or after it
	// sets are the best sets so far. losers are the single nodes that lost. lostByCriterion counts the sets that
	// lost.
	sets, losers    []nodeSet
	lostByCriterion [lowestNodes + 1]int
}

// maxSets is the largest number of sets for which the search tries all sets. With more sets, offerGrown grows
// two sets from each node.
const maxSets = 5000

// maxRanked is the largest number of sets of several nodes that are ranked by their CPUs. Of more sets, those
// that leave the fewest CPUs unused are ranked, or the most with PreferEmptiest.
const maxRanked = 8

// partialSet is a set of NUMA nodes to which nodes are still added. n is the number of nodes, holds the
// number of their CPUs, and far the sum of the distances between them.
type partialSet struct {
	nodes, packages uint64
	n, holds, far   int
}

// search finds the best sets of k nodes that have enough CPUs.
func (s *nodeSearch) search(k int) {
	s.setSize, s.sets, s.losers, s.lostByCriterion = k, s.sets[:0], s.losers[:0], [lowestNodes + 1]int{}
	if !s.listUsable() {
		return
	}
	if combinations(len(s.usableNodes), k) <= maxSets {
		s.offerAll(partialSet{}, 0)
		return
	}
	s.offerGrown()
}

// listUsable lists the nodes that can belong to a set. ok is false if no set of setSize nodes can have enough
// CPUs, or if N cannot be divided evenly over them with Even.
func (s *nodeSearch) listUsable() (ok bool) {
	w := s.want
	each, even := w.N/s.setSize, w.Even
	if even && (each*s.setSize != w.N || each%s.picker.unit() != 0) {
		return false
	}
	s.usableNodes = s.nodesWithCPUs[:s.nodeCount]
	if even {
		s.usableNodes = slices.DeleteFunc(slices.Clone(s.usableNodes), func(at int) bool { return s.holds[at] < each })
	}
	s.maxHolds[len(s.usableNodes)] = 0
	for i := len(s.usableNodes) - 1; i >= 0; i-- {
		s.maxHolds[i] = max(s.maxHolds[i+1], s.holds[s.usableNodes[i]])
	}
	return len(s.usableNodes) >= s.setSize && s.maxHolds[0]*s.setSize >= w.N
}

// offerAll offers all sets with enough CPUs that have the nodes of set and further ones from usableNodes[from:].
func (s *nodeSearch) offerAll(set partialSet, from int) {
	missing := s.setSize - set.n
	if missing == 0 {
		s.offer(&set)
		return
	}
	for i := from; i <= len(s.usableNodes)-missing && set.holds+missing*s.maxHolds[i] >= s.want.N; i++ {
		s.offerAll(s.with(set, s.usableNodes[i]), i+1)
	}
}

// with returns the set with one more node.
func (s *nodeSearch) with(set partialSet, at int) partialSet {
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

// offerGrown offers two sets for each node. One grows from the node by adding the nearest nodes, the emptiest
// of equally near ones first. The other grows by adding the emptiest nodes, because the nearest nodes may
// have too few CPUs.
func (s *nodeSearch) offerGrown() {
	seen := make([]uint64, 0, 2*topology.MaxNodes)
	for _, nearFirst := range [...]bool{true, false} {
		for _, seed := range s.usableNodes {
			set := s.grown(seed, nearFirst)
			if !slices.Contains(seen, set.nodes) {
				seen = append(seen, set.nodes)
				s.offer(&set)
			}
		}
	}
}

// grown returns a set of setSize nodes that grows from the node seed, as offerGrown says.
func (s *nodeSearch) grown(seed int, nearFirst bool) partialSet {
	set := s.with(partialSet{}, seed)
	var far [topology.MaxNodes]int
	for last := seed; set.n < s.setSize; {
		best := -1
		for _, i := range s.usableNodes {
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

// offer compares a set with the best sets by the criteria about nodes, and keeps it if it is as good or
// better.
func (s *nodeSearch) offer(set *partialSet) {
	c := nodeSet{nodes: set.nodes, left: set.holds - s.want.N}
	if c.left < 0 {
		return
	}
	packages := s.packagesOf(set)
	if s.want.FewestPackages && packages > s.packageLimit {
		return
	}
	c.rank[mostNodesNear] = -int64(bits.OnesCount64(set.nodes & s.near))
	c.rank[fewestPackages] = int64(packages)
	c.rank[shortestBetween] = int64(set.far)
	c.rankByLeft(s.want.PreferEmptiest)
	if len(s.sets) == 0 {
		c.rank[nearestMemory] = s.memory.farMemory(c.nodes, math.MaxInt64)
		s.sets = append(s.sets, c)
		return
	}
	best := &s.sets[0]
	way, by := compareNodes(&c, best, nearestMemory)
	if way <= 0 {
		limit := int64(math.MaxInt64)
		if way == 0 { // above the best set's value, c loses, and its exact value does not matter
			limit = best.rank[nearestMemory]
		}
		c.rank[nearestMemory] = s.memory.farMemory(c.nodes, limit)
		way, by = compareNodes(&c, best, mostPreferred)
	}
	switch {
	case way > 0:
		s.noteLoss(&c, by, 1)
	case way == 0:
		s.addBest(&c)
	default:
		s.replace(&c, by)
	}
}

// compareNodes compares two sets by the criteria that come before a given one. way is negative if a is
// better. by is the criterion that decides.
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

// noteLoss notes that n sets lost by a criterion. If sets have one node, it also stores the set, so that the
// reason can name the node.
func (s *nodeSearch) noteLoss(c *nodeSet, by nodeCriterion, n int) {
	if s.setSize == 1 {
		s.losers = append(s.losers, *c)
	}
	s.lostByCriterion[by] += n
}

// replace makes c the only best set, because it beats all earlier sets by a criterion. Sets that lost by a
// later criterion before now count as lost by this one.
func (s *nodeSearch) replace(c *nodeSet, by nodeCriterion) {
	for i := range s.sets {
		s.noteLoss(&s.sets[i], by, 1)
	}
	for later := by + 1; later <= lowestNodes; later++ {
		s.lostByCriterion[by], s.lostByCriterion[later] = s.lostByCriterion[by]+s.lostByCriterion[later], 0
	}
	s.sets = append(s.sets[:0], *c)
}

// addBest adds a set that is as good as the best sets. It keeps at most maxRanked sets of several nodes.
func (s *nodeSearch) addBest(c *nodeSet) {
	s.sets = append(s.sets, *c)
	if s.setSize == 1 {
		return
	}
	for i := len(s.sets) - 1; i > 0; i-- {
		if yes, _ := s.sets[i].isBetter(&s.sets[i-1]); !yes {
			break
		}
		s.sets[i-1], s.sets[i] = s.sets[i], s.sets[i-1]
	}
	if len(s.sets) > maxRanked {
		_, by := s.sets[maxRanked-1].isBetter(&s.sets[maxRanked])
		s.sets = s.sets[:maxRanked]
		s.noteLoss(nil, by, 1)
	}
}

// packagesOf returns the number of packages that have nodes of a set.
func (s *nodeSearch) packagesOf(set *partialSet) int {
	if s.tree.packages != nil {
		return bits.OnesCount64(set.packages)
	}
	var all topology.Set
	for b := set.nodes; b != 0; b &= b - 1 {
		all = all.Union(s.tree.machine.Nodes[bits.TrailingZeros64(b)].CPUs)
	}
	return s.tree.machine.Count(topology.PackageLevel, all)
}

// combinations returns the number of sets of k out of n nodes. If it exceeds maxSets, the result is some
// number above maxSets.
func combinations(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > maxSets {
			break
		}
	}
	return c
}
