package placement

import (
	"iter"
	"slices"
)

// Need is what the containers of a pool request.
type Need struct {
	Which   Which
	Milli   int64 // milli-CPUs
	Members int   // number of containers
}

// Needs are the needs of pools that have containers, sorted by pool. A list is never changed:
// With makes a new one. So a layout keeps its list, and two lists are compared quickly.
type Needs []*Need

// NeedsOf returns needs by their milli-CPUs, with one container each.
func NeedsOf(milli map[Which]int64) (n Needs) {
	for w, of := range milli {
		n = n.With(w, of, 1)
	}
	return n
}

func (n Needs) find(w Which) (at int, found bool) {
	return slices.BinarySearchFunc(n, w, func(a *Need, w Which) int { return a.Which.Compare(w) })
}

// Of returns the need of a pool; used is false if it has no containers.
func (n Needs) Of(w Which) (of Need, used bool) {
	if at, found := n.find(w); found {
		return *n[at], true
	}
	return Need{Which: w}, false
}

// With returns the needs with more milli-CPUs and containers for a pool, or less.
func (n Needs) With(w Which, milli int64, members int) Needs {
	at, found := n.find(w)
	sum := Need{w, milli, members}
	if found {
		sum.Milli, sum.Members = sum.Milli+n[at].Milli, sum.Members+n[at].Members
	}
	out := make(Needs, 0, len(n)+1)
	out = append(out, n[:at]...)
	if sum.Members != 0 {
		out = append(out, &sum)
	}
	if found {
		at++
	}
	return append(out, n[at:]...)
}

// All iterates over the pools and their milli-CPUs.
func (n Needs) All() iter.Seq2[Which, int64] {
	return func(yield func(Which, int64) bool) {
		for _, of := range n {
			if !yield(of.Which, of.Milli) {
				return
			}
		}
	}
}

// Equal reports whether two lists have the same needs.
func (n Needs) Equal(o Needs) bool {
	return slices.EqualFunc(n, o, func(a, b *Need) bool { return a == b || *a == *b })
}

// Since lists the pools whose needs differ from those of an older list, sorted.
func (n Needs) Since(old Needs) (changed []Which) {
	for len(n) > 0 || len(old) > 0 {
		switch {
		case len(n) > 0 && len(old) > 0 && n[0] == old[0]:
			n, old = n[1:], old[1:]
		case len(old) == 0 || len(n) > 0 && n[0].Which.Compare(old[0].Which) < 0:
			changed, n = append(changed, n[0].Which), n[1:]
		case len(n) == 0 || n[0].Which.Compare(old[0].Which) > 0:
			changed, old = append(changed, old[0].Which), old[1:]
		default:
			if *n[0] != *old[0] {
				changed = append(changed, n[0].Which)
			}
			n, old = n[1:], old[1:]
		}
	}
	return changed
}
