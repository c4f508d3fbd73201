// Package pick chooses the CPUs of balloons with the allocator of package choose. It is separate from package balloons,
// because kubectl trimtab imports package balloons for its options, and should not contain the allocator.
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

// Pick chooses n CPUs out of candidates, or all of them if there are fewer than n. It prefers CPUs near the CPUs in
// usedWith.
func (p Picker) Pick(n int, candidates, usedWith topology.Set, prefers balloons.Preference) topology.Set {
	w := choose.Request{N: min(n, candidates.Len()), From: candidates, UsedWith: usedWith, PreferEmptiest: prefers.Emptiest}
	if prefers.SpreadCores {
		w.Cores = choose.SpreadThreads
	}
	got, err := p.tree.Choose(w)
	if err != nil { // impossible: candidates has enough CPUs, and every thread is acceptable
		return topology.Set{}
	}
	return got.CPUs
}
