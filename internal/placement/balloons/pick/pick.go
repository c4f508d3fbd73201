// Package pick chooses the CPUs of balloons with the allocator of package choose. It is separate
// from package balloons because kubectl trimtab imports the options of balloons, and should not
// contain the allocator.
package pick

import (
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// Picker is a balloons.Picker that uses the allocator.
type Picker struct{ tree *choose.Tree }

// New returns the picker for a machine.
func New(m *topology.Machine) Picker { return Picker{choose.NewTree(m)} }

// Pick chooses n CPUs out of from, or all CPUs if from has fewer. It prefers CPUs near those in with.
func (p Picker) Pick(n int, from, with topology.Set, prefers balloons.Preference) topology.Set {
	w := choose.Request{N: min(n, from.Len()), From: from, UsedWith: with, PreferEmptiest: prefers.Emptiest}
	if prefers.SpreadCores {
		w.Cores = choose.SpreadThreads
	}
	got, err := p.tree.Choose(w)
	if err != nil { // impossible: from has enough CPUs, and every thread is acceptable
		return topology.Set{}
	}
	return got.CPUs
}
