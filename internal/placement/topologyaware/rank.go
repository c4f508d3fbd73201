package topologyaware

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// request is the request of a container that shares CPUs, with all inputs to the choice of its part of the node.
type request struct {
	policy         *Policy
	requestedMilli int64 // the CPU time that the container requests from the shared CPUs, in milli-CPUs
	limit          int64 // the CPU limit in milli-CPUs; 0 for no limit
	qos            intent.QoS
	supply         supply
	affinity       affinity
	hints          hints
	rank           []criterion[candidate] // the criteria of sharingCriteria
	// unlimitedLevel is the level of the part in which a Burstable container without a CPU limit is placed.
	unlimitedLevel Level
	// ownedCPUs are the CPUs that the container owns. The chosen part must contain these CPUs.
	ownedCPUs topology.Set
}

// newRequest makes the request of the container s.
func (p *Policy) newRequest(v placement.View, s placement.Subject) *request {
	r := &request{policy: p, qos: s.Intent.QoS, supply: p.supply(v.Layout), unlimitedLevel: p.options.UnlimitedBurstable}
	if s.Requested != nil {
		r.requestedMilli, r.limit = intent.MilliFromShares(s.Requested.CPU.Shares.V), intent.LimitMilli(&s.Requested.CPU)
	}
	if r.ownedCPUs = s.OwnedByContainer; !r.ownedCPUs.Empty() {
		r.rank = sharingCriteria(&r.hints)
		r.requestedMilli = max(intent.LimitMilli(&s.Requested.CPU)-int64(r.ownedCPUs.Len())*milliOfCPU, 0)
		return r
	}
	r.affinity, r.hints = p.affinityOf(v, s), p.hintsOf(s)
	r.rank = sharingCriteria(&r.hints)
	if asked := s.Intent.UnlimitedLevel.V.Of(s.Name); asked.IsSet() {
		r.unlimitedLevel = Levels()[asked.V]
	}
	return r
}

// The values are those of affinityScore in nri-plugins 0.14, topology-aware.
const (
	colocationWeight = 10   // attraction between containers of a pod or namespace (colocatePods, colocateNamespaces)
	affinityPerLevel = 0.75 // the factor by which an affinity becomes smaller with each level of distance
)

// affinity is how much each part of the node attracts a container.
type affinity struct {
	tree    tree
	weights []float64 // by part; nil if all are 0
}

// attract adds weight to the part with the index center. It adds less weight to the parts that contain this part or are
// in it: the more levels between the parts, the less weight.
func (a *affinity) attract(center int, weight float64) {
	if center < 0 || weight == 0 {
		return
	}
	if a.weights == nil {
		a.weights = make([]float64, len(a.tree))
	}
	for i := range a.tree {
		if levels, ok := a.tree.distance(i, center); ok {
			a.weights[i] += weight * math.Pow(affinityPerLevel, float64(levels))
		}
	}
}

// weightOf returns how much part i attracts the container.
func (a *affinity) weightOf(i int) float64 {
	if a.weights == nil {
		return 0
	}
	return a.weights[i]
}

// candidate is a part whose CPUs a container could share.
type candidate struct {
	request   *request
	partIndex int
}

// supply returns the free CPUs and the free CPU time of the part.
func (c candidate) supply() *partSupply { return &c.request.supply[c.partIndex] }

// part returns the part itself.
func (c candidate) part() *nodePart { return &c.request.policy.tree[c.partIndex] }

// shortage is 0 if the part has as much free CPU time as the container requests. Otherwise it is the missing
// CPU time as a negative number.
func (c candidate) shortage() float64 {
	if c.supply().sharable.Empty() {
		return math.Inf(-1)
	}
	return float64(min(c.supply().leftMilli-c.request.requestedMilli, 0))
}

// hasEnough reports whether the part has as much free CPU time as the container requests.
func (c candidate) hasEnough() bool { return c.shortage() == 0 }

// criterion is a criterion by which candidates are compared. The candidate with the larger value is better.
type criterion[T any] struct {
	name  string // a clause for users that says why the better part is better
	value func(T) float64
}

// The names of criteria that sharingCriteria and ownerCriteria have in common.
const (
	nearContainersReason = "this part is nearer to containers with affinity, or farther from containers with anti-affinity"
	smallerPartReason    = "this part is smaller"
	firstPartReason      = "this part is the first of equal parts"
)

// compareBy compares two candidates by the first criterion in which they differ. The result better is positive if a is
// better than b, and negative if b is better. The result by is the name of the criterion.
func compareBy[T any](rank []criterion[T], a, b T) (better int, by string) {
	for _, c := range rank {
		if d := cmp.Compare(c.value(a), c.value(b)); d != 0 {
			return d, c.name
		}
	}
	return 0, ""
}

// sharingCriteria returns the criteria that compare parts for a container that shares CPUs, the most
// important first.
func sharingCriteria(h *hints) []criterion[candidate] {
	nearest := []criterion[candidate]{
		{"this part has enough free CPU time", candidate.shortage},
		{nearContainersReason, func(c candidate) float64 { return c.request.affinity.weightOf(c.partIndex) }},
	}
	return slices.Concat(nearest, hintCriteria(h, func(c candidate) int { return c.partIndex }), []criterion[candidate]{
		{"this part has enough free CPU time for the container's CPU limit", func(c candidate) float64 {
			return boolValue(c.request.burstable() && c.request.limit > 0 && c.supply().leftMilli >= c.request.limit)
		}},
		{"this part has the level for containers without a CPU limit", func(c candidate) float64 {
			return boolValue(c.request.unlimited() && c.part().level == c.request.level())
		}},
		{"this part has more free CPU time for a container without a CPU limit", func(c candidate) float64 {
			if !c.request.unlimited() {
				return 0
			}
			return float64(c.supply().leftMilli)
		}},
		{smallerPartReason, func(c candidate) float64 { return float64(c.part().depth) }},
		{"this part has fewer containers", func(c candidate) float64 { return float64(-c.supply().members) }},
		{"this part has more free CPU time", func(c candidate) float64 { return float64(c.supply().leftMilli) }},
		{firstPartReason, func(c candidate) float64 { return float64(-c.partIndex) }},
	})
}

// boolValue returns 1 for true and 0 for false, because a criterion needs a number.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// burstable reports whether the container's pod has the QoS class Burstable.
func (r *request) burstable() bool { return r.qos == intent.Burstable }

// unlimited reports whether the container is Burstable and has no CPU limit.
func (r *request) unlimited() bool { return r.burstable() && r.limit == 0 }

// level returns the level of the parts in which containers without a CPU limit are placed: the configured level, or the
// next larger level that the node has.
func (r *request) level() Level {
	for l := r.unlimitedLevel; l > System; l-- {
		if slices.ContainsFunc(r.policy.tree, func(p nodePart) bool { return p.level == l }) {
			return l
		}
	}
	return r.policy.tree[len(r.policy.tree)-1].level
}

// compare compares the parts with the indices a and b. The result better is positive if part a is better, and negative
// if part b is better. The result by is the name of the criterion that decides.
func (r *request) compare(a, b int) (better int, by string) {
	return compareBy(r.rank, candidate{r, a}, candidate{r, b})
}

// best returns the index of the best part among the parts that contain the container's own CPUs. It skips the part with
// the index skipped; -1 skips no part.
func (r *request) best(skipped int) int {
	best := -1
	for i := range r.policy.tree {
		if i == skipped || !r.policy.tree[i].cpus.Contains(r.ownedCPUs) {
			continue
		}
		if best >= 0 {
			if d, _ := r.compare(i, best); d < 0 {
				continue
			}
		}
		best = i
	}
	return best
}

// why returns a text for users: the chosen part best, and the first criterion by which it is better than the second
// best part.
func (r *request) why(best int) string {
	text := "shares the CPUs of " + r.policy.tree[best].name
	if next := r.best(best); next >= 0 {
		_, by := r.compare(best, next)
		text += ": compared with " + r.policy.tree[next].name + ", " + by
	}
	return text
}
