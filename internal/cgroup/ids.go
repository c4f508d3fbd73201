package cgroup

import "github.com/trimtab/trimtab/internal/topology"

// IDs is a set of CPUs or memory nodes by kernel id. Unlike topology.Set it can hold every id that a kernel file may
// name, also ids of offline CPUs. IDs can be compared with ==. The zero IDs is empty.
type IDs topology.Bits

// ParseIDs reads a kernel list. Empty text is the empty set.
func ParseIDs(list string) (IDs, error) {
	ids, err := topology.ParseBits(list)
	return IDs(ids), err
}

// And returns the members of both sets.
func (s IDs) And(o IDs) IDs {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// Union returns the members of either set.
func (s IDs) Union(o IDs) IDs {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Minus returns the members of s that are not in o.
func (s IDs) Minus(o IDs) IDs {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

// Empty reports whether the set has no member.
func (s IDs) Empty() bool { return s == IDs{} }

// Contains reports whether every member of o is in s.
func (s IDs) Contains(o IDs) bool { return o.Minus(s).Empty() }

// String writes the set as a kernel list.
func (s IDs) String() string {
	return topology.FormatList((*topology.Bits)(&s).Members())
}
