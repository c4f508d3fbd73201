package placement

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Key identifies the owner of a grant: a container of a pod, by the container's name. A container that is created again
// has the same key. So it has the same grant.
type Key struct{ PodUID, Container string }

// Grant is the CPUs that a container owns.
type Grant struct {
	Key  Key
	Pod  string // namespace/name, for users
	CPUs topology.Set
	From string // the annotation or configuration key that requested the CPUs
	// Lent reports whether containers of class reclaimed may also use the CPUs.
	Lent bool
	// ExclusiveNodes means that no other pod may get memory of the NUMA nodes of the CPUs.
	ExclusiveNodes bool
	// Claims has the CPUs that resource claims gave, by the UID of the claim. It is nil for grants without claims.
	Claims map[string]topology.Set
	// RefusedCPUs is the number of CPUs that the container requested at its last resize, if the agent refused this
	// resize; otherwise 0.
	RefusedCPUs int
}

// Ledger records who owns which CPUs. Containers of one pod may own the same CPUs. Two pods own the
// same CPUs only if they share a resource claim. The zero Ledger is not usable; see NewLedger.
type Ledger struct {
	grantsByPod map[string][]Grant // by pod UID; code replaces a list and never changes it
	ownedCPUs   topology.Set       // the CPUs of all grants
	lentCPUs    topology.Set       // the owned CPUs that containers of class reclaimed may also use
	// exclusiveNodeGrants counts the grants with ExclusiveNodes.
	exclusiveNodeGrants int
	// reservations has the CPUs that are kept for an owner who cannot use them now, by owner.
	reservations map[Key]Grant
	// devicesByOwner has the names of the CDI devices that a container has exclusively, by the container's key. Code
	// never changes the map or its lists, but makes new ones.
	devicesByOwner map[Key][]string
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{grantsByPod: map[string][]Grant{}, reservations: map[Key]Grant{}}
}

// OwnedError is the error for CPUs that another pod or container owns.
type OwnedError struct {
	CPUs  topology.Set
	Owner Grant
}

// Error returns a text with the number of CPUs and the pod that owns them.
func (t *OwnedError) Error() string {
	return fmt.Sprintf("%d CPUs are owned by pod %s", t.CPUs.Len(), t.Owner.Pod)
}

// Check returns an *OwnedError if another pod owns some of the CPUs, or if some are reserved for another pod.
func (l *Ledger) Check(key Key, cpus topology.Set) error {
	if l.ownedCPUs.And(cpus).Minus(l.CPUsOfPod(key.PodUID)).Empty() && len(l.reservations) == 0 {
		return nil
	}
	for _, g := range append(l.Grants(), l.Reservations()...) {
		if both := g.CPUs.And(cpus); g.Key.PodUID != key.PodUID && !both.Empty() {
			return &OwnedError{CPUs: both, Owner: g}
		}
	}
	return nil
}

// CheckClaims returns an *OwnedError if another container owns some of the grant's CPUs, or if some are reserved for
// another container. CPUs that both have from the same resource claim are allowed.
func (l *Ledger) CheckClaims(grant Grant) error {
	for _, g := range append(l.Grants(), l.Reservations()...) {
		both := g.CPUs.And(grant.CPUs)
		for uid, cpus := range grant.Claims {
			both = both.Minus(cpus.And(g.Claims[uid]))
		}
		if g.Key != grant.Key && !both.Empty() {
			return &OwnedError{CPUs: both, Owner: g}
		}
	}
	return nil
}

// Put records a grant, for which Check or CheckClaims returned no error. It replaces an earlier grant of the same key.
func (l *Ledger) Put(g Grant) {
	l.put(g.Key.PodUID, append(withoutKey(l.grantsByPod[g.Key.PodUID], g.Key), g))
}

// Reserve records CPUs that a container owns in addition to its grant, but cannot use now, for example because the CPUs
// are offline. Other pods cannot get these CPUs. An empty set of CPUs ends the reservation.
func (l *Ledger) Reserve(g Grant) {
	if g.CPUs.Empty() {
		delete(l.reservations, g.Key)
		return
	}
	l.reservations[g.Key] = g
}

// ReservedCPUs returns the CPUs that are reserved for a key.
func (l *Ledger) ReservedCPUs(key Key) topology.Set { return l.reservations[key].CPUs }

// ReservedForPod returns the CPUs that are reserved for the containers of a pod.
func (l *Ledger) ReservedForPod(uid string) topology.Set {
	return union(maps.Values(l.reservations), func(g Grant) bool { return g.Key.PodUID == uid })
}

// union returns all CPUs of the grants for which the function match returns true.
func union(grants iter.Seq[Grant], match func(Grant) bool) (cpus topology.Set) {
	for g := range grants {
		if match(g) {
			cpus = cpus.Union(g.CPUs)
		}
	}
	return cpus
}

// Reservations returns all reservations, sorted by key.
func (l *Ledger) Reservations() []Grant {
	return sortGrants(slices.Collect(maps.Values(l.reservations)))
}

// OwnedOrReservedCPUs returns the CPUs that have an owner or are reserved for an owner.
func (l *Ledger) OwnedOrReservedCPUs() topology.Set {
	return l.ownedCPUs.Union(union(maps.Values(l.reservations), func(Grant) bool { return true }))
}

// Drop ends a key's grant and reservation.
func (l *Ledger) Drop(key Key) {
	delete(l.reservations, key)
	if _, has := l.GrantOf(key); has {
		l.put(key.PodUID, withoutKey(l.grantsByPod[key.PodUID], key))
	}
}

// withoutKey returns a copy of the list without the grant of a key.
func withoutKey(grants []Grant, key Key) []Grant {
	return slices.DeleteFunc(slices.Clone(grants), func(g Grant) bool { return g.Key == key })
}

// put replaces the grants of a pod. It also updates ownedCPUs, lentCPUs and exclusiveNodeGrants.
func (l *Ledger) put(uid string, grants []Grant) {
	old, oldGrants := l.CPUsOfPod(uid), l.grantsByPod[uid]
	l.ownedCPUs, l.lentCPUs = l.ownedCPUs.Minus(old), l.lentCPUs.Minus(old)
	l.exclusiveNodeGrants += countExclusiveNodeGrants(grants) - countExclusiveNodeGrants(oldGrants)
	delete(l.grantsByPod, uid)
	if slices.ContainsFunc(oldGrants, func(g Grant) bool { return g.Claims != nil }) { // containers of other pods may share these CPUs
		for _, others := range l.grantsByPod {
			l.ownedCPUs = l.ownedCPUs.Union(union(slices.Values(others), func(g Grant) bool { return g.Claims != nil }))
		}
	}
	if len(grants) == 0 {
		return
	}
	l.grantsByPod[uid] = grants
	lent := union(slices.Values(grants), func(g Grant) bool { return g.Lent })
	notLent := union(slices.Values(grants), func(g Grant) bool { return !g.Lent })
	l.ownedCPUs = l.ownedCPUs.Union(lent).Union(notLent)
	l.lentCPUs = l.lentCPUs.Union(lent.Minus(notLent))
}

// countExclusiveNodeGrants returns the number of grants with ExclusiveNodes.
func countExclusiveNodeGrants(grants []Grant) (n int) {
	for i := range grants {
		if grants[i].ExclusiveNodes {
			n++
		}
	}
	return n
}

// GrantOf returns the grant of a key.
func (l *Ledger) GrantOf(key Key) (Grant, bool) {
	for _, g := range l.grantsByPod[key.PodUID] {
		if g.Key == key {
			return g, true
		}
	}
	return Grant{}, false
}

// OwnedCPUs returns all CPUs that containers own.
func (l *Ledger) OwnedCPUs() topology.Set { return l.ownedCPUs }

// LentCPUs returns the owned CPUs that containers of class reclaimed may also use.
func (l *Ledger) LentCPUs() topology.Set { return l.lentCPUs }

// CPUsOfPod returns the CPUs that the containers of a pod own.
func (l *Ledger) CPUsOfPod(uid string) topology.Set {
	return union(slices.Values(l.grantsByPod[uid]), func(Grant) bool { return true })
}

// GrantsOfPod returns the grants of a pod. The grant that Put recorded last is the last one.
func (l *Ledger) GrantsOfPod(uid string) []Grant { return slices.Clone(l.grantsByPod[uid]) }

// CombinedGrants returns one grant for each key of a pod. The CPUs of each grant are the CPUs that the key owns, and
// the CPUs that are reserved for the key.
func (l *Ledger) CombinedGrants(uid string) []Grant {
	out := l.GrantsOfPod(uid)
	for key, kept := range l.reservations {
		i := slices.IndexFunc(out, func(g Grant) bool { return g.Key == key })
		switch {
		case key.PodUID != uid:
		case i < 0:
			out = append(out, kept)
		default:
			out[i].CPUs = out[i].CPUs.Union(kept.CPUs)
		}
	}
	return sortGrants(out)
}

// UnassignedCPUs returns the CPUs that a pod owned before a restart of the agent and that none of its
// containers owns now. The ledger has them under a key without a container name.
func (l *Ledger) UnassignedCPUs(uid string) topology.Set {
	left, _ := l.GrantOf(Key{PodUID: uid})
	return left.CPUs.Minus(union(slices.Values(l.grantsByPod[uid]), func(g Grant) bool { return g.Key.Container != "" }))
}

// ExclusiveNodeCPUsOfOthers returns the CPUs of the grants with ExclusiveNodes of all pods except the given pod. The
// given pod must not use memory of the NUMA nodes of these CPUs.
func (l *Ledger) ExclusiveNodeCPUsOfOthers(uid string) topology.Set {
	var s topology.Set
	if l.exclusiveNodeGrants == 0 {
		return s
	}
	for other, grants := range l.grantsByPod {
		if other != uid {
			s = s.Union(union(slices.Values(grants), func(g Grant) bool { return g.ExclusiveNodes }))
		}
	}
	return s
}

// DropPod ends all grants and reservations of a pod, and reports whether the pod had any.
func (l *Ledger) DropPod(uid string) bool {
	had := l.HasCPUs(uid)
	l.put(uid, nil)
	maps.DeleteFunc(l.reservations, func(key Key, _ Grant) bool { return key.PodUID == uid })
	return had
}

// SetDevices replaces the list of CDI devices that a container has exclusively. With an empty list, the container has
// no devices exclusively.
func (l *Ledger) SetDevices(key Key, names []string) {
	l.devicesByOwner = maps.Clone(l.devicesByOwner)
	if len(names) == 0 {
		delete(l.devicesByOwner, key)
		return
	}
	if l.devicesByOwner == nil {
		l.devicesByOwner = map[Key][]string{}
	}
	l.devicesByOwner[key] = names
}

// Devices returns the names of the CDI devices that each key has exclusively. Callers must not change the
// map.
func (l *Ledger) Devices() map[Key][]string { return l.devicesByOwner }

// KeysWithDevices returns the keys of the containers of a pod that have CDI devices exclusively, sorted.
func (l *Ledger) KeysWithDevices(uid string) (keys []Key) {
	for key := range l.devicesByOwner {
		if key.PodUID == uid {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Compare(a.Container, b.Container) })
	return keys
}

// HasCPUs reports whether a pod owns CPUs, or whether CPUs are reserved for the pod.
func (l *Ledger) HasCPUs(uid string) bool {
	return len(l.grantsByPod[uid]) > 0 || !l.ReservedForPod(uid).Empty()
}

// Grants returns all grants, sorted by key.
func (l *Ledger) Grants() []Grant {
	out := make([]Grant, 0, len(l.grantsByPod))
	for _, grants := range l.grantsByPod {
		out = append(out, grants...)
	}
	return sortGrants(out)
}

// sortGrants sorts grants by their keys.
func sortGrants(grants []Grant) []Grant {
	slices.SortFunc(grants, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Key.PodUID, b.Key.PodUID), cmp.Compare(a.Key.Container, b.Key.Container))
	})
	return grants
}

// Clone returns a copy. A change of the ledger or the copy does not change the other one.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.grantsByPod, c.reservations = maps.Clone(l.grantsByPod), maps.Clone(l.reservations)
	return &c
}
