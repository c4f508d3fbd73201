package topologyaware

import (
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// ownerChoice chooses the part of the node from which a container gets CPUs of its own.
type ownerChoice struct {
	policy      *Policy
	cpuCount    int          // the number of CPUs that the container should get
	currentCPUs topology.Set // the CPUs that the container already has
	// sharedMilli is how many milli-CPUs the container also shares in the same part; 0 if it only owns CPUs.
	sharedMilli int64
	supply      supply
	// affinity is how much each part attracts the container.
	affinity affinity
	rank     []criterion[ownerCandidate] // the criteria of ownerCriteria
}

// ownerCandidate is a part of the node from which the container could get CPUs of its own.
type ownerCandidate struct {
	choice    *ownerChoice
	partIndex int
}

// ownerCriteria returns the criteria that compare parts for a container that owns CPUs, the most important
// first.
func ownerCriteria(h *hints) []criterion[ownerCandidate] {
	nearest := []criterion[ownerCandidate]{
		{"this part is nearer to the CPUs that the container has", func(c ownerCandidate) float64 { return c.choice.nearness(c.partIndex) }},
		{nearContainersReason, func(c ownerCandidate) float64 { return c.choice.affinity.weightOf(c.partIndex) }},
	}
	return slices.Concat(nearest, hintCriteria(h, func(c ownerCandidate) int { return c.partIndex }), []criterion[ownerCandidate]{
		{smallerPartReason, func(c ownerCandidate) float64 { return float64(c.choice.policy.tree[c.partIndex].depth) }},
		{"this part has more free CPU time", func(c ownerCandidate) float64 {
			if c.choice.sharedMilli == 0 {
				return 0
			}
			return float64(c.choice.supply[c.partIndex].leftMilli)
		}},
		{"this part has more CPUs that containers can own", func(c ownerCandidate) float64 {
			if c.choice.sharedMilli > 0 { // the criterion before this one compares the free CPU time
				return 0
			}
			return float64(c.choice.supply[c.partIndex].ownableCount)
		}},
		{firstPartReason, func(c ownerCandidate) float64 { return float64(-c.partIndex) }},
	})
}

// nearness returns how near part i is to the CPUs that the container already has.
func (o *ownerChoice) nearness(i int) float64 {
	if o.currentCPUs.Empty() {
		return 0
	}
	if levels, ok := o.policy.tree.distance(i, o.policy.tree.smallestAround(o.currentCPUs)); ok {
		return math.Pow(affinityPerLevel, float64(levels))
	}
	return 0
}

// best returns the index of the best part that has enough CPUs (fits), or -1 if no part has enough. It skips the part
// with the index skipped; -1 skips no part.
func (o *ownerChoice) best(skipped int) int {
	best := -1
	for i := range o.policy.tree {
		if i == skipped || !o.fits(i) {
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

// fits reports whether part i has enough CPUs that the container can own. If the container also shares CPUs, the part
// must then have enough CPU time left for sharedMilli.
func (o *ownerChoice) fits(i int) bool {
	return o.supply[i].ownableCount >= o.cpuCount && (o.sharedMilli == 0 || o.supply[i].leftMilli-int64(o.cpuCount)*milliOfCPU >= o.sharedMilli)
}

// why returns a text for users: the chosen part best, and the first criterion by which it is better than the second
// best part.
func (o *ownerChoice) why(best int) string {
	text := fmt.Sprintf("CPUs of %s, which has %d CPUs that containers can own", o.policy.tree[best].name, o.supply[best].ownableCount)
	if next := o.best(best); next >= 0 {
		_, by := compareBy(o.rank, ownerCandidate{o, best}, ownerCandidate{o, next})
		text += ": compared with " + o.policy.tree[next].name + ", " + by
	}
	return text
}
