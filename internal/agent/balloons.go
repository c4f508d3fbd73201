package agent

import (
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// picker chooses the CPUs of balloons.
type picker struct{ tree *choose.Tree }

// Pick chooses n CPUs out of from, near to the CPUs that they are used with, or all if there
// are fewer.
func (p picker) Pick(n int, from, with topology.Set, prefers balloons.Preference) topology.Set {
	w := choose.Want{N: min(n, from.Len()), From: from, UsedWith: with, PreferEmptiest: prefers.Emptiest}
	if prefers.SpreadCores {
		w.Cores = choose.SpreadThreads
	}
	got, err := p.tree.Choose(w)
	if err != nil { // there are as many, and any thread will do
		return topology.Set{}
	}
	return got.CPUs
}
