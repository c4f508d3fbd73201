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
	policy   *Policy
	milli    int64
	limit    int64 // in milli-CPUs, 0 for none
	qos      intent.QoS
	supply   supply
	affinity affinity
	hints    hints
	rank     []criterion[candidate]
	// unlimitedLevel is the level of the part for a Burstable container without a CPU limit.
	unlimitedLevel Level
	// owns are the CPUs that the container owns. Its part must contain them.
	owns topology.Set
}

// request makes the request of a subject.
func (p *Policy) request(v placement.View, s placement.Subject) *request {
	r := &request{policy: p, qos: s.Intent.QoS, supply: p.supply(v.Layout), unlimitedLevel: p.options.UnlimitedBurstable}
	if s.Requested != nil {
		r.milli, r.limit = intent.SharesMilli(s.Requested.CPU.Shares.V), intent.LimitMilli(&s.Requested.CPU)
	}
	if r.owns = s.OwnedByContainer; !r.owns.Empty() {
		r.rank = sharingCriteria(&r.hints)
		r.milli = max(intent.LimitMilli(&s.Requested.CPU)-int64(r.owns.Len())*milliOfCPU, 0)
		return r
	}
	r.affinity, r.hints = p.affinityOf(v, s), p.hintsOf(s)
	r.rank = sharingCriteria(&r.hints)
	if asked := s.Intent.UnlimitedLevel.V.Of(s.Name); asked.IsSet() {
		r.unlimitedLevel = Levels()[asked.V]
	}
	return r
}

// colocationWeight is the weight of one container with which another should be placed. affinityPerLevel is the factor
// for an affinity per level of distance (nri-plugins 0.14, topology-aware, affinityScore).
const (
	colocationWeight = 10
	affinityPerLevel = 0.75
)

// affinity is how much each part of the node attracts a container.
type affinity struct {
	tree    tree
	weights []float64 // by part; nil if all are 0
}

// attract adds the weight of a container in the part to, and less for parts above or below it.
func (a *affinity) attract(to int, weight float64) {
	if to < 0 || weight == 0 {
		return
	}
	if a.weights == nil {
		a.weights = make([]float64, len(a.tree))
	}
	for i := range a.tree {
		if levels, ok := a.tree.distance(i, to); ok {
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

func (c candidate) supply() *partSupply { return &c.request.supply[c.partIndex] }
func (c candidate) part() *nodePart     { return &c.request.policy.tree[c.partIndex] }

// shortage is 0 if the part has as much free CPU time as the container requests. Otherwise it is the missing
// CPU time as a negative number.
func (c candidate) shortage() float64 {
	if c.supply().sharable.Empty() {
		return math.Inf(-1)
	}
	return float64(min(c.supply().leftMilli-c.request.milli, 0))
}

func (c candidate) hasEnough() bool { return c.shortage() == 0 }

// criterion is a criterion by which candidates are compared. The candidate with the larger value is better.
type criterion[T any] struct {
	name  string
	value func(T) float64
}

// The names of criteria that sharingCriteria and ownerCriteria have in common.
const (
	ruleNearContainers = "it is near containers that it should be near, or far from others"
	ruleSmallest       = "it is the smallest part of the node"
	ruleFirst          = "it is the first one"
)

// compareBy compares two candidates by the first criterion in which they differ. better is positive if a is
// better than b. by is the name of the criterion.
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
		{"it has enough free CPU time", candidate.shortage},
		{ruleNearContainers, func(c candidate) float64 { return c.request.affinity.weightOf(c.partIndex) }},
	}
	return slices.Concat(nearest, hintCriteria(h, func(c candidate) int { return c.partIndex }), []criterion[candidate]{
		{"the container's CPU limit fits", func(c candidate) float64 {
			return boolValue(c.request.burstable() && c.request.limit > 0 && c.supply().leftMilli >= c.request.limit)
		}},
		{"a container without a CPU limit is placed on this level", func(c candidate) float64 {
			return boolValue(c.request.unlimited() && c.part().level == c.request.level())
		}},
		{"it has the most free CPU time for a container without a limit", func(c candidate) float64 {
			if !c.request.unlimited() {
				return 0
			}
			return float64(c.supply().leftMilli)
		}},
		{ruleSmallest, func(c candidate) float64 { return float64(c.part().depth) }},
		{"it has the fewest containers", func(c candidate) float64 { return float64(-c.supply().members) }},
		{"it has the most free CPU time", func(c candidate) float64 { return float64(c.supply().leftMilli) }},
		{ruleFirst, func(c candidate) float64 { return float64(-c.partIndex) }},
	})
}

// boolValue returns 1 for true, because a criterion needs a number.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (r *request) burstable() bool { return r.qos == intent.Burstable }
func (r *request) unlimited() bool { return r.burstable() && r.limit == 0 }

// level returns the level of the part for containers without a CPU limit: the configured level, or the next
// larger level that the node has.
func (r *request) level() Level {
	for l := r.unlimitedLevel; l > System; l-- {
		if slices.ContainsFunc(r.policy.tree, func(p nodePart) bool { return p.level == l }) {
			return l
		}
	}
	return r.policy.tree[len(r.policy.tree)-1].level
}

// compare compares the parts with indices a and b. better is positive if a is better. by is the name of the
// criterion that decides.
func (r *request) compare(a, b int) (better int, by string) {
	return compareBy(r.rank, candidate{r, a}, candidate{r, b})
}

// best returns the index of the best part. It skips the part with the index without; -1 means that
// it skips none.
func (r *request) best(without int) int {
	best := -1
	for i := range r.policy.tree {
		if i == without || !r.policy.tree[i].cpus.Contains(r.owns) {
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

// why returns a clause that says by which criterion the best part beat the next best part.
func (r *request) why(best int) string {
	text := "shares the CPUs of " + r.policy.tree[best].name
	if next := r.best(best); next >= 0 {
		_, by := r.compare(best, next)
		text += ": " + by + ", compared with " + r.policy.tree[next].name
	}
	return text
}
