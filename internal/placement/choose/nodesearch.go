package choose

import (
	"math"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodeSearch searches for the best sets of NUMA nodes. During the search it compares sets by the criteria about nodes,
// and keeps the best sets, but at most maxRanked sets of several nodes. chooseBest then compares the kept sets by their
// CPUs.
type nodeSearch struct {
	tree          *Tree
	picker        picker // finds the usable CPUs of nodes, and compares how well they fit the request
	request       *NodeSetRequest
	availableCPUs [topology.MaxNodes]int // the number of CPUs that may be taken, by node
	nodesWithCPUs [topology.MaxNodes]int // the indices of the nodes with CPUs that may be taken
	nodeCount     int                    // the length of nodesWithCPUs
	nearNodes     uint64                 // the nodes with CPUs of request.Near, as a bit set
	memory        memoryNeed
	packageLimit  int // the largest number of packages that a set may use, if the request has FewestPackages

	// The following fields belong to the search for sets of setSize nodes.
	setSize      int
	usableNodes  []int                      // the indices of the nodes that can belong to a set
	maxAvailable [topology.MaxNodes + 1]int // for each index of usableNodes: the largest number of CPUs on a node at or after it
	// sets are the best sets so far. losers are the sets that lost, if setSize is 1. lostByCriterion has, for each
	// criterion, the number of sets that lost by it.
	sets, losers    []nodeSet
	lostByCriterion [lowestNodes + 1]int
}

// maxSets is the largest number of sets for which the search tries all sets. With more sets, considerGrown grows
// two sets from each node.
const maxSets = 5000

// maxRanked is the largest number of sets of several nodes for which rankByCost compares the CPUs that would be chosen.
// If there are more sets, only the sets that leave the fewest CPUs unused are compared. With PreferEmptiest, these are
// the sets that leave the most CPUs unused.
const maxRanked = 8

// partialSet is a set of NUMA nodes to which nodes are still added. nodes and packages are bit sets of indices. n is
// the number of nodes, availableCPUs is the number of their CPUs that may be taken, and distances is the sum of the
// distances between the nodes.
type partialSet struct {
	nodes, packages             uint64
	n, availableCPUs, distances int
}

// search finds the best sets of k nodes that have enough CPUs.
func (s *nodeSearch) search(k int) {
	s.setSize, s.sets, s.losers, s.lostByCriterion = k, s.sets[:0], s.losers[:0], [lowestNodes + 1]int{}
	if !s.listUsable() {
		return
	}
	if combinations(len(s.usableNodes), k) <= maxSets {
		s.considerAll(partialSet{}, 0)
		return
	}
	s.considerGrown()
}

// listUsable lists the nodes that can belong to a set. The result ok is false if no set of setSize nodes can have
// enough CPUs. It is also false if the request has Even and N cannot be divided evenly over setSize nodes.
func (s *nodeSearch) listUsable() (ok bool) {
	w := s.request
	each, even := w.N/s.setSize, w.Even
	if even && (each*s.setSize != w.N || each%s.picker.unit() != 0) {
		return false
	}
	s.usableNodes = s.nodesWithCPUs[:s.nodeCount]
	if even {
		s.usableNodes = slices.DeleteFunc(slices.Clone(s.usableNodes), func(at int) bool { return s.availableCPUs[at] < each })
	}
	s.maxAvailable[len(s.usableNodes)] = 0
	for i := len(s.usableNodes) - 1; i >= 0; i-- {
		s.maxAvailable[i] = max(s.maxAvailable[i+1], s.availableCPUs[s.usableNodes[i]])
	}
	return len(s.usableNodes) >= s.setSize && s.maxAvailable[0]*s.setSize >= w.N
}

// considerAll calls considerSet for each set of setSize nodes that has enough CPUs. It adds nodes of usableNodes to the
// given set, beginning at the index from.
func (s *nodeSearch) considerAll(set partialSet, from int) {
	missing := s.setSize - set.n
	if missing == 0 {
		s.considerSet(&set)
		return
	}
	for i := from; i <= len(s.usableNodes)-missing && set.availableCPUs+missing*s.maxAvailable[i] >= s.request.N; i++ {
		s.considerAll(s.withNode(set, s.usableNodes[i]), i+1)
	}
}

// withNode returns the set with one more node.
func (s *nodeSearch) withNode(set partialSet, at int) partialSet {
	for b := set.nodes; b != 0; b &= b - 1 {
		o := bits.TrailingZeros64(b)
		set.distances += s.tree.machine.Distance(min(o, at), max(o, at))
	}
	set.nodes |= 1 << at
	set.n++
	set.availableCPUs += s.availableCPUs[at]
	if s.tree.packages != nil {
		set.packages |= s.tree.packages[at]
	}
	return set
}

// considerGrown calls considerSet for two sets for each node. One set consists of the node and the nearest nodes; of
// equally near nodes, the emptiest comes first. The other set consists of the node and the emptiest nodes, because the
// nearest nodes may have too few CPUs.
func (s *nodeSearch) considerGrown() {
	seen := make([]uint64, 0, 2*topology.MaxNodes)
	for _, nearFirst := range [...]bool{true, false} {
		for _, seed := range s.usableNodes {
			set := s.growSet(seed, nearFirst)
			if !slices.Contains(seen, set.nodes) {
				seen = append(seen, set.nodes)
				s.considerSet(&set)
			}
		}
	}
}

// growSet returns a set of setSize nodes that contains the node seed. If nearFirst is true, growSet adds the nearest
// nodes, and otherwise the emptiest nodes.
func (s *nodeSearch) growSet(seed int, nearFirst bool) partialSet {
	set := s.withNode(partialSet{}, seed)
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
			nearer, emptier := far[i]-far[best], s.availableCPUs[best]-s.availableCPUs[i]
			if first, second := nearer, emptier; nearFirst && (first < 0 || first == 0 && second < 0) ||
				!nearFirst && (second < 0 || second == 0 && first < 0) {
				best = i
			}
		}
		set, last = s.withNode(set, best), best
	}
	return set
}

// considerSet compares a set with the best sets by the criteria about nodes, and keeps it if it is as good or
// better.
func (s *nodeSearch) considerSet(set *partialSet) {
	c := nodeSet{nodes: set.nodes, left: set.availableCPUs - s.request.N}
	if c.left < 0 {
		return
	}
	packages := s.packagesOf(set)
	if s.request.FewestPackages && packages > s.packageLimit {
		return
	}
	c.rank[mostNodesNear] = -int64(bits.OnesCount64(set.nodes & s.nearNodes))
	c.rank[fewestPackages] = int64(packages)
	c.rank[shortestDistanceBetween] = int64(set.distances)
	c.rankByLeft(s.request.PreferEmptiest)
	if len(s.sets) == 0 {
		c.rank[nearestMemory] = s.memory.farMemory(c.nodes, math.MaxInt64)
		s.sets = append(s.sets, c)
		return
	}
	best := &s.sets[0]
	order, by := compareNodes(&c, best, nearestMemory)
	if order <= 0 {
		limit := int64(math.MaxInt64)
		if order == 0 { // if the value of c is above that of the best set, c loses, and its exact value does not matter
			limit = best.rank[nearestMemory]
		}
		c.rank[nearestMemory] = s.memory.farMemory(c.nodes, limit)
		order, by = compareNodes(&c, best, mostPreferredCPUs)
	}
	switch {
	case order > 0:
		s.countLoss(&c, by, 1)
	case order == 0:
		s.addBest(&c)
	default:
		s.replace(&c, by)
	}
}

// compareNodes compares two sets by the criteria that come before the criterion end. The result order is negative if a
// is better, positive if b is better, and 0 if the sets are equal. The result decisive is the criterion that decides.
func compareNodes(a, b *nodeSet, end nodeCriterion) (order int, decisive nodeCriterion) {
	for by := range end {
		switch {
		case a.rank[by] < b.rank[by]:
			return -1, by
		case a.rank[by] > b.rank[by]:
			return 1, by
		}
	}
	return 0, end
}

// countLoss counts n sets that lost by a criterion. If setSize is 1, it also stores the set c, so that the reason can
// name the node.
func (s *nodeSearch) countLoss(c *nodeSet, by nodeCriterion, n int) {
	if s.setSize == 1 {
		s.losers = append(s.losers, *c)
	}
	s.lostByCriterion[by] += n
}

// replace makes c the only best set, because c is better than all earlier sets by the criterion decisive. The earlier
// best sets count as lost by decisive. So do all sets that lost before by a less important criterion than decisive.
func (s *nodeSearch) replace(c *nodeSet, decisive nodeCriterion) {
	for i := range s.sets {
		s.countLoss(&s.sets[i], decisive, 1)
	}
	for later := decisive + 1; later <= lowestNodes; later++ {
		s.lostByCriterion[decisive], s.lostByCriterion[later] = s.lostByCriterion[decisive]+s.lostByCriterion[later], 0
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
		s.countLoss(nil, by, 1)
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
	return s.tree.machine.CountGroups(topology.PackageLevel, all)
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
