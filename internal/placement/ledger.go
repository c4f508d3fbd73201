package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Key names what can own a grant: a container of a pod by its name. A retry, a
// crash loop or a new attempt has the same key and so the same grant.
type Key struct{ PodUID, Container string }

// Grant is what a container owns.
type Grant struct {
	Key  Key
	Pod  string // namespace/name, for people
	CPUs topology.Set
	From string // the key it was asked with
	// Lent: reclaimed containers may use the CPUs while their owner does not.
	Lent bool
	// Alone: nobody else is given memory of the CPUs' NUMA nodes either.
	Alone bool
}

// Ledger is who owns which CPUs. Containers of one pod may own the same CPUs;
// no two pods do. The zero Ledger is not usable; see NewLedger.
type Ledger struct {
	grants map[Key]Grant
	owned  topology.Set
	lent   topology.Set // of owned
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{grants: map[Key]Grant{}} }

// Taken is a refusal: CPUs belong to another pod.
type Taken struct {
	CPUs  topology.Set
	Owner Grant
}

// Error names the owner.
func (t *Taken) Error() string {
	return fmt.Sprintf("%d CPUs are owned by %s", t.CPUs.Len(), t.Owner.Pod)
}

// Check returns a *Taken where some of the CPUs belong to another pod.
func (l *Ledger) Check(key Key, cpus topology.Set) error {
	if l.owned.And(cpus).Empty() {
		return nil
	}
	for _, g := range l.Grants() {
		if both := g.CPUs.And(cpus); g.Key.PodUID != key.PodUID && !both.Empty() {
			return &Taken{CPUs: both, Owner: g}
		}
	}
	return nil
}

// Put records a grant that Check allowed.
func (l *Ledger) Put(g Grant) {
	l.grants[g.Key] = g
	l.count()
}

// Drop ends a grant.
func (l *Ledger) Drop(key Key) {
	if _, ok := l.grants[key]; ok {
		delete(l.grants, key)
		l.count()
	}
}

func (l *Ledger) count() {
	var kept topology.Set
	l.owned, l.lent = topology.Set{}, topology.Set{}
	for _, g := range l.grants {
		l.owned = l.owned.Union(g.CPUs)
		if g.Lent {
			l.lent = l.lent.Union(g.CPUs)
		} else {
			kept = kept.Union(g.CPUs)
		}
	}
	l.lent = l.lent.Minus(kept)
}

// Of returns the grant of a key.
func (l *Ledger) Of(key Key) (Grant, bool) {
	g, ok := l.grants[key]
	return g, ok
}

// Exclusive returns all CPUs somebody owns.
func (l *Ledger) Exclusive() topology.Set { return l.owned }

// Lent returns the owned CPUs that reclaimed containers may use, too.
func (l *Ledger) Lent() topology.Set { return l.lent }

// OfPod returns the CPUs the containers of a pod own.
func (l *Ledger) OfPod(uid string) topology.Set {
	var s topology.Set
	for k, g := range l.grants {
		if k.PodUID == uid {
			s = s.Union(g.CPUs)
		}
	}
	return s
}

// Left returns the CPUs a pod owned before a restart that no container of it has
// come for since: those of the key without a container.
func (l *Ledger) Left(uid string) topology.Set {
	left := l.grants[Key{PodUID: uid}].CPUs
	if left.Empty() {
		return left
	}
	for k, g := range l.grants {
		if k.PodUID == uid && k.Container != "" {
			left = left.Minus(g.CPUs)
		}
	}
	return left
}

// ExclusiveWithout returns the CPUs that would be owned if the given keys'
// grants ended.
func (l *Ledger) ExclusiveWithout(gone func(Key) bool) topology.Set {
	var s topology.Set
	for k, g := range l.grants {
		if !gone(k) {
			s = s.Union(g.CPUs)
		}
	}
	return s
}

// Grants returns all grants in the order of their keys.
func (l *Ledger) Grants() []Grant {
	out := make([]Grant, 0, len(l.grants))
	for _, g := range l.grants {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Key.PodUID, b.Key.PodUID), cmp.Compare(a.Key.Container, b.Key.Container))
	})
	return out
}

// Clone returns a copy that can be changed on its own.
func (l *Ledger) Clone() *Ledger {
	return &Ledger{grants: maps.Clone(l.grants), owned: l.owned, lent: l.lent}
}
