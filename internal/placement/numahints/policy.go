package numahints

// Policy says which sets of nodes a container may have.
type Policy string

// The policies. Numeric is Katalyst's.
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
	// PreferClosest prefers sets of nodes with a small average distance to others of their size
	// (the kubelet's prefer-closest-numa-nodes).
	PreferClosest bool
	// Distance returns the distance of two nodes, by index; needed with PreferClosest.
	Distance func(a, b int) int
	// Align names the resources that the policy numeric puts on equal sets of nodes.
	Align []string
	// Work limits the number of sets that a merge tries; 0 means DefaultWork. At the limit the
	// result is the best set found so far. With up to 8 nodes, only the policy numeric has this
	// limit.
	Work int

	// enumerate is the highest number of nodes for which counts are expanded into lists; 0 means
	// 8. Tests lower it.
	enumerate int
}

// few is the highest number of nodes for which all sets are tried.
const few = 8

// DefaultWork takes about half a millisecond of one CPU for most requests, and several
// milliseconds at worst (BenchmarkMerge64Nodes8Resources).
const DefaultWork = 10_000

// Result is the choice of a policy.
type Result struct {
	// Nodes are the nodes that the container should use. Any reports that the nodes do not
	// matter.
	Nodes Mask
	Any   bool
	// Preferred: each resource is on as few nodes as possible, and all resources are on the same
	// nodes.
	Preferred bool
	// Admitted: the policy admits the container.
	Admitted bool
	// Exact is false if the limit of work ended the search, so that a better set may exist.
	Exact bool
	// Each has the hint of each resource, in order. Only the policy numeric fills it.
	Each []Hint
}

// Hint is the result as a hint.
func (r Result) Hint() Hint { return Hint{Nodes: r.Nodes, Any: r.Any, Preferred: r.Preferred} }

// Merge chooses the nodes of a container with these resources on a machine of n nodes. The same
// arguments give the same result. n is at most MaxNodes.
func Merge(n int, resources []Resource, o Options) Result {
	if o.Work == 0 {
		o.Work = DefaultWork
	}
	if o.enumerate == 0 {
		o.enumerate = few
	}
	s := &search{n: n, all: All(n), o: o, left: o.Work}
	var r Result
	switch o.Policy {
	case SingleNode:
		r = s.single(resources)
		r.Admitted = r.Preferred
	case Numeric:
		r = s.numeric(resources)
	case BestEffort, Restricted:
		best := s.merge(resources)
		r = Result{Nodes: best.Nodes, Preferred: best.Preferred, Admitted: best.Preferred || o.Policy == BestEffort}
	case None:
		fallthrough
	default:
		return Result{Any: true, Preferred: true, Admitted: true, Exact: true}
	}
	r.Exact = s.left > 0 && !s.cut
	return r
}

// search is one merge.
type search struct {
	n    int
	all  Mask
	o    Options
	left int  // work that may still be done
	cut  bool // a part of the search ended early
}

// work consumes a part of the limit; it returns false if nothing is left.
func (s *search) work(n int) bool {
	s.left -= n
	return s.left > 0
}

// narrower reports whether a set of nodes is better than another: fewer nodes, with PreferClosest
// nearer ones, then the lower value.
func (s *search) narrower(a, b Mask) bool {
	if a.Len() != b.Len() {
		return a.Len() < b.Len()
	}
	if s.o.PreferClosest {
		if da, db := s.distance(a), s.distance(b); da != db {
			return da < db
		}
	}
	return a < b
}

// distance sums the distances between all pairs of nodes. For two sets of one size, the smaller
// sum also means the smaller average.
func (s *search) distance(m Mask) (sum int) {
	in := m.Indices()
	for _, a := range in {
		for _, b := range in {
			sum += s.o.Distance(a, b)
		}
	}
	return sum
}

// better reports whether a candidate replaces the current best hint. target is the best size for
// sets that are not preferred (bestNonPreferred of the kubelet).
func (s *search) better(target int, current *Hint, candidate Hint) bool {
	switch {
	case candidate.Nodes == 0:
		return false
	case current == nil:
		return true
	case current.Preferred != candidate.Preferred:
		return candidate.Preferred
	case current.Preferred:
		return s.narrower(candidate.Nodes, current.Nodes)
	}
	if a, b := rank(target, candidate.Nodes.Len()), rank(target, current.Nodes.Len()); a != b {
		return a < b
	}
	return s.narrower(candidate.Nodes, current.Nodes)
}

// rank orders sizes of sets: first the target, then smaller sizes in descending order, then
// larger sizes.
func rank(target, size int) int {
	if size <= target {
		return target - size
	}
	return MaxNodes + size
}

// target returns the smallest size of a set on which each resource fits: the largest of the
// resources' smallest sets.
func (s *search) target(resources []Resource) (most int) {
	for _, r := range resources {
		if r.Counts != nil {
			most = max(most, smallest(r.Counts.Free, r.Counts.Need, s.n))
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
