package placement

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Key identifies the owner of a grant: a container of a pod, by name. A retry, a crash loop or
// a new attempt has the same key and so the same grant.
type Key struct{ PodUID, Container string }

// Grant is the CPUs that a container owns.
type Grant struct {
	Key  Key
	Pod  string // namespace/name, for users
	CPUs topology.Set
	From string // the key that asked for it
	// Lent reports whether reclaimed containers may use the CPUs while their owner does not.
	Lent bool
	// ExclusiveNodes reports whether no other pod may get memory of the CPUs' NUMA nodes.
	ExclusiveNodes bool
	// RefusedCPUs is the number of CPUs that its last resize requested and did not get; 0 if
	// the resize succeeded.
	RefusedCPUs int
}

// Ledger records who owns which CPUs. Containers of one pod may own the same CPUs; two pods
// never do. The zero Ledger is not usable; see NewLedger.
type Ledger struct {
	pods  map[string][]Grant // by pod UID; a list is replaced, never changed
	owned topology.Set
	lent  topology.Set // a part of owned
	// reserved are CPUs that their owners cannot use now.
	reserved map[Key]Grant
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{pods: map[string][]Grant{}, reserved: map[Key]Grant{}} }

// Taken is the error for CPUs that belong to another pod.
type Taken struct {
	CPUs  topology.Set
	Owner Grant
}

// Error names the owner.
func (t *Taken) Error() string {
	return fmt.Sprintf("%d CPUs are owned by %s", t.CPUs.Len(), t.Owner.Pod)
}

// Check returns a *Taken if some of the CPUs belong to another pod.
func (l *Ledger) Check(key Key, cpus topology.Set) error {
	if l.owned.And(cpus).Minus(l.OfPod(key.PodUID)).Empty() && len(l.reserved) == 0 {
		return nil
	}
	for _, g := range append(l.Grants(), l.AllReserved()...) {
		if both := g.CPUs.And(cpus); g.Key.PodUID != key.PodUID && !both.Empty() {
			return &Taken{CPUs: both, Owner: g}
		}
	}
	return nil
}

// Put records a grant that Check allowed.
func (l *Ledger) Put(g Grant) {
	l.put(g.Key.PodUID, append(without(l.pods[g.Key.PodUID], g.Key), g))
}

// Reserve records CPUs that a key owns in addition to its grant and cannot use now, because
// they are offline. No other key can get them. An empty set ends the reservation.
func (l *Ledger) Reserve(g Grant) {
	if g.CPUs.Empty() {
		delete(l.reserved, g.Key)
		return
	}
	l.reserved[g.Key] = g
}

// Reserved returns the CPUs that are reserved for a key.
func (l *Ledger) Reserved(key Key) topology.Set { return l.reserved[key].CPUs }

// ReservedForPod returns the CPUs that are reserved for the containers of a pod.
func (l *Ledger) ReservedForPod(uid string) topology.Set {
	return union(maps.Values(l.reserved), func(g Grant) bool { return g.Key.PodUID == uid })
}

// union returns all CPUs of the grants that match.
func union(grants iter.Seq[Grant], match func(Grant) bool) (cpus topology.Set) {
	for g := range grants {
		if match(g) {
			cpus = cpus.Union(g.CPUs)
		}
	}
	return cpus
}

// AllReserved returns all reservations, sorted by key.
func (l *Ledger) AllReserved() []Grant { return sorted(slices.Collect(maps.Values(l.reserved))) }

// Held returns the CPUs that have an owner or are reserved for an owner.
func (l *Ledger) Held() topology.Set {
	return l.owned.Union(union(maps.Values(l.reserved), func(Grant) bool { return true }))
}

// Drop ends a key's grant and reservation.
func (l *Ledger) Drop(key Key) {
	delete(l.reserved, key)
	if _, has := l.Of(key); has {
		l.put(key.PodUID, without(l.pods[key.PodUID], key))
	}
}

func without(grants []Grant, key Key) []Grant {
	return slices.DeleteFunc(slices.Clone(grants), func(g Grant) bool { return g.Key == key })
}

// put replaces the grants of a pod, and updates the totals.
func (l *Ledger) put(uid string, grants []Grant) {
	old := l.OfPod(uid)
	l.owned, l.lent = l.owned.Minus(old), l.lent.Minus(old)
	delete(l.pods, uid)
	if len(grants) == 0 {
		return
	}
	l.pods[uid] = grants
	lent := union(slices.Values(grants), func(g Grant) bool { return g.Lent })
	kept := union(slices.Values(grants), func(g Grant) bool { return !g.Lent })
	l.owned = l.owned.Union(lent).Union(kept)
	l.lent = l.lent.Union(lent.Minus(kept))
}

// Of returns the grant of a key.
func (l *Ledger) Of(key Key) (Grant, bool) {
	for _, g := range l.pods[key.PodUID] {
		if g.Key == key {
			return g, true
		}
	}
	return Grant{}, false
}

// Exclusive returns all owned CPUs.
func (l *Ledger) Exclusive() topology.Set { return l.owned }

// Lent returns the owned CPUs that reclaimed containers may use, too.
func (l *Ledger) Lent() topology.Set { return l.lent }

// OfPod returns the CPUs that the containers of a pod own.
func (l *Ledger) OfPod(uid string) topology.Set {
	return union(slices.Values(l.pods[uid]), func(Grant) bool { return true })
}

// OfPodByContainer returns the grants of a pod in order of arrival.
func (l *Ledger) OfPodByContainer(uid string) []Grant { return slices.Clone(l.pods[uid]) }

// HeldByPod returns for each key of a pod its grant and reservation, combined.
func (l *Ledger) HeldByPod(uid string) []Grant {
	out := l.OfPodByContainer(uid)
	for key, kept := range l.reserved {
		i := slices.IndexFunc(out, func(g Grant) bool { return g.Key == key })
		switch {
		case key.PodUID != uid:
		case i < 0:
			out = append(out, kept)
		default:
			out[i].CPUs = out[i].CPUs.Union(kept.CPUs)
		}
	}
	return sorted(out)
}

// WithoutContainer returns the CPUs that a pod owned before a restart and that none of its
// containers has claimed since: those of the key without a container name.
func (l *Ledger) WithoutContainer(uid string) topology.Set {
	left, _ := l.Of(Key{PodUID: uid})
	return left.CPUs.Minus(union(slices.Values(l.pods[uid]), func(g Grant) bool { return g.Key.Container != "" }))
}

// ExclusiveNodesOfOthers returns the CPUs of the NUMA nodes that other pods have exclusively.
func (l *Ledger) ExclusiveNodesOfOthers(uid string) topology.Set {
	var s topology.Set
	for other, grants := range l.pods {
		if other != uid {
			s = s.Union(union(slices.Values(grants), func(g Grant) bool { return g.ExclusiveNodes }))
		}
	}
	return s
}

// DropPod ends all grants of a pod, and reports whether there was one.
func (l *Ledger) DropPod(uid string) bool {
	had := l.Owns(uid)
	l.put(uid, nil)
	maps.DeleteFunc(l.reserved, func(key Key, _ Grant) bool { return key.PodUID == uid })
	return had
}

// Owns reports whether a pod owns CPUs, or some are reserved for it.
func (l *Ledger) Owns(uid string) bool { return len(l.pods[uid]) > 0 || !l.ReservedForPod(uid).Empty() }

// Grants returns all grants, sorted by key.
func (l *Ledger) Grants() []Grant {
	out := make([]Grant, 0, len(l.pods))
	for _, grants := range l.pods {
		out = append(out, grants...)
	}
	return sorted(out)
}

// sorted sorts grants by their keys.
func sorted(grants []Grant) []Grant {
	slices.SortFunc(grants, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Key.PodUID, b.Key.PodUID), cmp.Compare(a.Key.Container, b.Key.Container))
	})
	return grants
}

// Clone returns an independent copy.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.pods, c.reserved = maps.Clone(l.pods), maps.Clone(l.reserved)
	return &c
}
