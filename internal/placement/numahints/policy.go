package numahints

// Policy is the name of a topology manager policy. A policy decides which sets of NUMA nodes a container may have.
type Policy string

// The policies of the kubelet, and Katalyst's policy Numeric.
const (
	None       Policy = "none"
	BestEffort Policy = "best-effort"
	Restricted Policy = "restricted"
	SingleNode Policy = "single-numa-node"
	Numeric    Policy = "numeric"
)

// Options are the options of a merge.
type Options struct {
	Policy Policy
	// PreferClosest prefers, of sets with equally many nodes, the set with the smallest average distance
	// between its nodes (the kubelet's prefer-closest-numa-nodes).
	PreferClosest bool
	// Distance returns the distance between two nodes, by index. PreferClosest needs this function.
	Distance func(a, b int) int
	// AlignedResources has the names of the resources that get the same set of nodes under the policy numeric.
	AlignedResources []string
	// MaxWork limits the number of sets that a merge tries; 0 means DefaultWork. At the limit the result is the best
	// set found so far. On machines with up to 8 nodes, the limit affects only the policy numeric.
	MaxWork int

	// maxListedNodes is the largest number of nodes of a machine for which a merge converts Counts to lists of hints; 0
	// means 8. Tests set a lower number.
	maxListedNodes int
}

// exhaustiveNodes is the largest number of nodes of a machine on which a merge tries all sets.
const exhaustiveNodes = 8

// DefaultWork is the default of Options.MaxWork. A merge then takes about half a millisecond of CPU time in most cases,
// and several milliseconds in the worst case (BenchmarkMerge64Nodes8Resources).
const DefaultWork = 10_000

// Result is the choice of a policy.
type Result struct {
	// Nodes are the nodes that the container should use. Any reports that the nodes do not
	// matter.
	Nodes Mask
	Any   bool
	// Preferred means that each resource is on as few nodes as possible. Except under the policy numeric, all resources
	// are then on the same nodes.
	Preferred bool
	// Admitted means that the policy admits the container.
	Admitted bool
	// Exact is false if the search did not try all sets, so that a better set may exist. The reason is MaxWork, or a
	// large number of nodes or hints.
	Exact bool
	// ResourceHints has the chosen hint of each resource, in the order of the resources. Only the policy numeric sets
	// it.
	ResourceHints []Hint
}

// Hint returns the result as a hint.
func (r Result) Hint() Hint { return Hint{Nodes: r.Nodes, Any: r.Any, Preferred: r.Preferred} }

// Merge chooses the nodes of a container with these resources on a machine with n nodes, at most MaxNodes.
// Equal arguments give equal results.
func Merge(n int, resources []Resource, o Options) Result {
	if o.MaxWork == 0 {
		o.MaxWork = DefaultWork
	}
	if o.maxListedNodes == 0 {
		o.maxListedNodes = exhaustiveNodes
	}
	s := &search{nodeCount: n, allNodes: AllNodes(n), options: o, workLeft: o.MaxWork}
	var r Result
	switch o.Policy {
	case SingleNode:
		r = s.applySingleNode(resources)
		r.Admitted = r.Preferred
	case Numeric:
		r = s.applyNumeric(resources)
	case BestEffort, Restricted:
		best := s.merge(resources)
		r = Result{Nodes: best.Nodes, Preferred: best.Preferred, Admitted: best.Preferred || o.Policy == BestEffort}
	case None:
		fallthrough
	default:
		return Result{Any: true, Preferred: true, Admitted: true, Exact: true}
	}
	r.Exact = s.workLeft > 0 && !s.incomplete
	return r
}

// search is the state of one merge.
type search struct {
	nodeCount  int
	allNodes   Mask
	options    Options
	workLeft   int  // the number of sets that may still be tried
	incomplete bool // the search did not try all sets
}

// spendWork subtracts n from workLeft. It returns false if no work is left, so that the search must end.
func (s *search) spendWork(n int) bool {
	s.workLeft -= n
	return s.workLeft > 0
}

// isBetterSet reports whether set a is better than set b. A set with fewer nodes is better. With PreferClosest, of two
// sets with equally many nodes, the one whose nodes are nearer to each other is better. Otherwise the lower Mask is
// better.
func (s *search) isBetterSet(a, b Mask) bool {
	if a.Len() != b.Len() {
		return a.Len() < b.Len()
	}
	if s.options.PreferClosest {
		if da, db := s.distance(a), s.distance(b); da != db {
			return da < db
		}
	}
	return a < b
}

// distance returns the sum of the distances between all pairs of nodes. Of two sets with equally many nodes,
// the set with the smaller sum also has the smaller average.
func (s *search) distance(m Mask) (sum int) {
	in := m.Indices()
	for _, a := range in {
		for _, b := range in {
			sum += s.options.Distance(a, b)
		}
	}
	return sum
}

// isBetterHint reports whether a candidate is better than the current best hint. target is the best size for sets
// that are not preferred (bestNonPreferred of the kubelet).
func (s *search) isBetterHint(target int, current *Hint, candidate Hint) bool {
	switch {
	case candidate.Nodes == 0:
		return false
	case current == nil:
		return true
	case current.Preferred != candidate.Preferred:
		return candidate.Preferred
	case current.Preferred:
		return s.isBetterSet(candidate.Nodes, current.Nodes)
	}
	if a, b := sizeRank(target, candidate.Nodes.Len()), sizeRank(target, current.Nodes.Len()); a != b {
		return a < b
	}
	return s.isBetterSet(candidate.Nodes, current.Nodes)
}

// sizeRank orders the sizes of sets, the best first: the target, then smaller sizes in descending order, then
// larger sizes.
func sizeRank(target, size int) int {
	if size <= target {
		return target - size
	}
	return MaxNodes + size
}

// targetSize returns the smallest number of nodes that is enough for each single resource. It is the largest of the
// minimum numbers of nodes of the resources.
func (s *search) targetSize(resources []Resource) (most int) {
	for _, r := range resources {
		if r.Counts != nil {
			most = max(most, smallestSetSize(r.Counts.Free, r.Counts.Need, s.nodeCount))
			continue
		}
		least := 0
		for _, h := range r.Hints {
			if !h.Any && (least == 0 || h.Nodes.Len() < least) {
				least = h.Nodes.Len()
			}
		}
		most = max(most, least)
	}
	return most
}
