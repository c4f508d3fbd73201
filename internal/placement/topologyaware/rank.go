package topologyaware

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// request is a container that shares CPUs, and what the parts have for it.
type request struct {
	p        *Policy
	milli    int64
	limit    int64 // in milli-CPUs, 0 for none
	qos      intent.QoS
	supply   supply
	affinity affinity
	rank     []criterion
	// unlimitedLevel is the level for a Burstable container without CPU limit.
	unlimitedLevel Level
}

func (p *Policy) request(v placement.View, s placement.Subject) *request {
	r := &request{p: p, qos: s.Intent.QoS, supply: p.supply(v.Layout), rank: criteria(), unlimitedLevel: p.o.UnlimitedBurstable}
	if s.Requested != nil {
		r.milli, r.limit = intent.SharesMilli(s.Requested.CPU.Shares.V), intent.LimitMilli(&s.Requested.CPU)
	}
	r.affinity = p.affinityOf(s)
	if p.o.ColocateNamespaces && v.InBalloon != nil && s.Pod != nil {
		for i := range p.tree {
			r.affinity.attract(i, colocated*float64(v.InBalloon(placement.Mark{Balloon: p.tree[i].name, Namespace: s.Pod.Namespace})))
		}
	}
	if asked := s.Intent.Unlimited.V.Of(s.Name); asked.IsSet() {
		r.unlimitedLevel = Levels()[asked.V]
	}
	return r
}

// The weight of colocation, and how much of an affinity is left one level away (nri-plugins 0.14,
// topology-aware, affinityScore).
const (
	colocated = 10
	perLevel  = 0.75
)

// affinity is how much each part of the node attracts a container.
type affinity struct {
	tree tree
	of   []float64 // nil if none does
}

// attract adds the affinity for a container in a part.
func (a *affinity) attract(to int, weight float64) {
	if to < 0 || weight == 0 {
		return
	}
	if a.of == nil {
		a.of = make([]float64, len(a.tree))
	}
	for i := range a.tree {
		if levels, ok := a.tree.distance(i, to); ok {
			a.of[i] += weight * math.Pow(perLevel, float64(levels))
		}
	}
}

func (a *affinity) at(i int) float64 {
	if a.of == nil {
		return 0
	}
	return a.of[i]
}

// candidate is a part that a container could share.
type candidate struct {
	r *request
	i int
}

func (c candidate) offer() *offer { return &c.r.supply[c.i] }
func (c candidate) part() *part   { return &c.r.p.tree[c.i] }

// shortage is 0 if the part has the CPU time that the container requests, otherwise what it
// lacks, as a negative number.
func (c candidate) shortage() float64 {
	if c.offer().sharable.Empty() {
		return math.Inf(-1)
	}
	return float64(min(c.offer().left-c.r.milli, 0))
}

func (c candidate) enough() bool { return c.shortage() == 0 }

// criterion compares two parts for a container: the larger value is better.
type criterion struct {
	name  string
	value func(candidate) float64
}

// criteria are the ones for containers that share CPUs, the most important first.
func criteria() []criterion {
	return []criterion{
		{"it has enough free CPU time", candidate.shortage},
		{"it is near containers that it should be near, or far from others", func(c candidate) float64 { return c.r.affinity.at(c.i) }},
		{"the container's CPU limit fits", func(c candidate) float64 {
			return flag(c.r.burstable() && c.r.limit > 0 && c.offer().left >= c.r.limit)
		}},
		{"a container without a CPU limit is placed on this level", func(c candidate) float64 {
			return flag(c.r.unlimited() && c.part().level == c.r.level())
		}},
		{"it has the most free CPU time for a container without a limit", func(c candidate) float64 {
			if !c.r.unlimited() {
				return 0
			}
			return float64(c.offer().left)
		}},
		{"it is the smallest part of the node", func(c candidate) float64 { return float64(c.part().depth) }},
		{"it has the fewest containers", func(c candidate) float64 { return float64(-c.offer().members) }},
		{"it has the most free CPU time", func(c candidate) float64 { return float64(c.offer().left) }},
		{"it is the first one", func(c candidate) float64 { return float64(-c.i) }},
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (r *request) burstable() bool { return r.qos == intent.Burstable }
func (r *request) unlimited() bool { return r.burstable() && r.limit == 0 }

// level returns the level for containers without a CPU limit: the configured one, or the next
// larger one that the node has.
func (r *request) level() Level {
	for l := r.unlimitedLevel; l > System; l-- {
		if slices.ContainsFunc(r.p.tree, func(p part) bool { return p.level == l }) {
			return l
		}
	}
	return r.p.tree[len(r.p.tree)-1].level
}

// compare compares two parts: it is positive if a is better. by says why.
func (r *request) compare(a, b int) (better int, by string) {
	for _, c := range r.rank {
		if d := cmp.Compare(c.value(candidate{r, a}), c.value(candidate{r, b})); d != 0 {
			return d, c.name
		}
	}
	return 0, ""
}

// best returns the best of the parts without one of them; -1 for all.
func (r *request) best(without int) int {
	best := -1
	for i := range r.p.tree {
		if i == without {
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

// why says what distinguishes the best part from the next best.
func (r *request) why(best int) string {
	text := "shares the CPUs of " + r.p.tree[best].name
	if next := r.best(best); next >= 0 {
		_, by := r.compare(best, next)
		text += ": " + by + ", compared with " + r.p.tree[next].name
	}
	return text
}

// owning is a container that should own CPUs.
type owning struct {
	p      *Policy
	n      int
	near   topology.Set // CPUs that it has; empty for none
	supply supply
	// affinity is that for other containers of its pod.
	affinity affinity
}

// best returns the part to take CPUs of: the one nearest to the CPUs that it has, then the one with
// the highest affinity, then the smallest, then the one with the most CPUs to give away, then the first. It is -1 if no part
// has enough.
func (o owning) best() int {
	best := -1
	for i := range o.p.tree {
		if o.supply[i].ownable >= o.n && (best < 0 || o.compare(i, best) > 0) {
			best = i
		}
	}
	return best
}

// compare is positive if part a is better than part b.
func (o owning) compare(a, b int) int {
	near := func(i int) float64 {
		if o.near.Empty() {
			return 0
		}
		if levels, ok := o.p.tree.distance(i, o.p.tree.smallest(o.near)); ok {
			return math.Pow(perLevel, float64(levels))
		}
		return 0
	}
	return cmp.Or(cmp.Compare(near(a), near(b)), cmp.Compare(o.affinity.at(a), o.affinity.at(b)), o.p.tree[a].depth-o.p.tree[b].depth, o.supply[a].ownable-o.supply[b].ownable, b-a)
}
