package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// candidate is a group that holds all that is wanted of it, and what that would
// cost.
type candidate struct {
	group  int
	cost   cost
	far    int // from the groups already filled, and those beside
	beside int // how many CPUs it has that the chosen ones are used with
	left   int // how many of its CPUs are free
}

// cost is what a choice uses up: how many groups of each level it is in, of how
// many kinds the cores are in each NUMA node, and how many CPUs are of efficient
// ones; how many cores it breaks that were whole; how many of its CPUs are near, and
// on how many others run.
type cost struct {
	spans            [topology.CoreLevel + 1]int16
	kinds, efficient int16
	broken           int16
	near, shared     int16
}

func (c cost) plus(d cost) cost {
	for l := range c.spans {
		c.spans[l] += d.spans[l]
	}
	c.kinds, c.efficient = c.kinds+d.kinds, c.efficient+d.efficient
	c.broken += d.broken
	c.near, c.shared = c.near+d.near, c.shared+d.shared
	return c
}

// criterion compares two candidates: negative where a is better.
type criterion struct {
	name    string
	compare func(p *picker, a, b *candidate) int
}

// ranking lists the criteria, the most important first. The first that tells
// two candidates apart decides; where none does, the lowest CPU.
var ranking = [...]criterion{
	{"the most CPUs beside those it works with", func(_ *picker, a, b *candidate) int { return b.beside - a.beside }},
	{"the fewest dies", spans(topology.DieLevel)},
	{"the fewest NUMA nodes", spans(topology.NodeLevel)},
	{mostCPUsNear, func(_ *picker, a, b *candidate) int { return int(b.cost.near) - int(a.cost.near) }},
	{"the shortest way to the others chosen", func(_ *picker, a, b *candidate) int { return a.far - b.far }},
	{"the fewest kinds of cores", func(_ *picker, a, b *candidate) int { return int(a.cost.kinds) - int(b.cost.kinds) }},
	{"the fewest efficient cores", func(_ *picker, a, b *candidate) int {
		return int(a.cost.efficient) - int(b.cost.efficient)
	}},
	{"the fewest L3 caches", spans(topology.L3Level)},
	{"the fewest clusters", spans(topology.ClusterLevel)},
	{"the fewest L2 caches", spans(topology.L2Level)},
	{"the most cores", func(p *picker, a, b *candidate) int {
		if p.want.Cores != SpreadThreads {
			return 0
		}
		return int(b.cost.spans[topology.CoreLevel]) - int(a.cost.spans[topology.CoreLevel])
	}},
	{"the fewest cores", func(p *picker, a, b *candidate) int {
		if p.want.Cores == SpreadThreads {
			return 0
		}
		return int(a.cost.spans[topology.CoreLevel]) - int(b.cost.spans[topology.CoreLevel])
	}},
	{"the fewest whole cores broken", func(_ *picker, a, b *candidate) int {
		return int(a.cost.broken) - int(b.cost.broken)
	}},
	{"the fewest CPUs of shared pools", func(_ *picker, a, b *candidate) int {
		return int(a.cost.shared) - int(b.cost.shared)
	}},
	{"the most left over", func(p *picker, a, b *candidate) int {
		if !p.want.Roomy {
			return 0
		}
		return b.left - a.left
	}},
	{"the least left over", func(p *picker, a, b *candidate) int {
		if p.want.Roomy {
			return 0
		}
		return a.left - b.left
	}},
}

// mostCPUsNear is the criterion of a preference that all cannot have; its name says
// what is near.
const mostCPUsNear = "the most CPUs near "

// lowest is what decides where the ranking does not.
const lowest = "the lowest CPU"

func spans(l topology.Level) func(*picker, *candidate, *candidate) int {
	return func(_ *picker, a, b *candidate) int { return int(a.cost.spans[l]) - int(b.cost.spans[l]) }
}

// better reports whether a is better than b, and by which criterion. b comes
// first in the order of the lowest CPU.
func (p *picker) better(a, b *candidate) (yes bool, rule string) {
	for i := range ranking {
		if c := ranking[i].compare(p, a, b); c != 0 {
			return c < 0, ranking[i].name
		}
	}
	return false, lowest
}
