package topologyaware

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// ownerChoice chooses the part of the node from which a container gets CPUs of its own.
type ownerChoice struct {
	p           *Policy
	n           int
	currentCPUs topology.Set // the CPUs that it already has
	// sharedMilli is how many milli-CPUs of the same part it shares in addition; 0 for none.
	sharedMilli int64
	supply      supply
	// affinity is how much each part attracts the container.
	affinity affinity
	rank     []criterion[ownerCandidate]
}

// ownerCandidate is a part from which an owner could get CPUs.
type ownerCandidate struct {
	o *ownerChoice
	i int
}

// ownerCriteria returns the criteria that compare parts for a container that owns CPUs, the most important
// first.
func ownerCriteria(h *hints) []criterion[ownerCandidate] {
	nearest := []criterion[ownerCandidate]{
		{"it is near the CPUs that the container has", func(c ownerCandidate) float64 { return c.o.nearness(c.i) }},
		{ruleNearContainers, func(c ownerCandidate) float64 { return c.o.affinity.weightOf(c.i) }},
	}
	return slices.Concat(nearest, hintCriteria(h, func(c ownerCandidate) int { return c.i }), []criterion[ownerCandidate]{
		{ruleSmallest, func(c ownerCandidate) float64 { return float64(c.o.p.tree[c.i].depth) }},
		{"it has the most free CPU time", func(c ownerCandidate) float64 {
			if c.o.sharedMilli == 0 {
				return 0
			}
			return float64(c.o.supply[c.i].leftMilli)
		}},
		{"it has the most CPUs that containers can own", func(c ownerCandidate) float64 {
			if c.o.sharedMilli > 0 { // the criterion before compares the free CPU time instead
				return 0
			}
			return float64(c.o.supply[c.i].ownable)
		}},
		{ruleFirst, func(c ownerCandidate) float64 { return float64(-c.i) }},
	})
}

// nearness returns how near part i is to the CPUs that the container already has.
func (o *ownerChoice) nearness(i int) float64 {
	if o.currentCPUs.Empty() {
		return 0
	}
	if levels, ok := o.p.tree.distance(i, o.p.tree.smallestAround(o.currentCPUs)); ok {
		return math.Pow(perLevel, float64(levels))
	}
	return 0
}

// best returns the index of the best part with enough CPUs, or -1 if no part has enough. It skips the part
// with the index without; -1 means that it skips none.
func (o *ownerChoice) best(without int) int {
	best := -1
	for i := range o.p.tree {
		if i == without || !o.fits(i) {
			continue
		}
		if best >= 0 {
			if d, _ := compareBy(o.rank, ownerCandidate{o, i}, ownerCandidate{o, best}); d < 0 {
				continue
			}
		}
		best = i
	}
	return best
}

// fits reports whether a container can own enough CPUs of part i, and whether the part then has enough CPU
// time left for the request that the container shares.
func (o *ownerChoice) fits(i int) bool {
	return o.supply[i].ownable >= o.n && (o.sharedMilli == 0 || o.supply[i].leftMilli-int64(o.n)*milliOfCPU >= o.sharedMilli)
}

// why returns a clause that says by which criterion the best part beat the next best part.
func (o *ownerChoice) why(best int) string {
	text := fmt.Sprintf("CPUs of %s, which has %d CPUs that containers can own", o.p.tree[best].name, o.supply[best].ownable)
	if next := o.best(best); next >= 0 {
		_, by := compareBy(o.rank, ownerCandidate{o, best}, ownerCandidate{o, next})
		text += ": " + by + ", compared with " + o.p.tree[next].name
	}
	return text
}
