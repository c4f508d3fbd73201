package placement

import (
	"cmp"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Demand is the input from which a policy computes the CPUs of pools. The configuration is the only other input.
type Demand struct {
	// OwnedCPUs are the CPUs that containers own or that are reserved for them. LentCPUs are the owned CPUs that
	// containers of class reclaimed may also use.
	OwnedCPUs, LentCPUs topology.Set
	// Needs are the sums of the requests of each pool's containers. Pools whose size does not depend on requests are
	// not in Needs.
	Needs Needs
	// Previous is the current layout. Balloons keep the CPUs that they have in it as far as possible. In the Demand of
	// a new layout this field is nil (see DefaultLayout). Otherwise each layout would keep all earlier layouts in
	// memory.
	Previous *Layout
}

// Layout has the CPUs of the pools for one demand. Equal demands give equal layouts. So a restarted agent computes the
// same layout again, from the demand in the records of containers. For balloons the demand includes their earlier CPUs
// (Demand.Previous).
type Layout struct {
	Pools  Pools  // the configured pools from which the layout was made
	Demand Demand // the demand for which the layout was made
	// Shared has the CPUs of each shared pool; nil if only the configured shared pool exists.
	Shared    map[PoolID]topology.Set
	Reclaimed topology.Set // the CPUs of the reclaimed pool
	// ReclaimedNear are CPUs on NUMA nodes on which the reclaimed pool has no CPUs. A container of class reclaimed that
	// is bound to such a node uses the CPUs of ReclaimedNear on this node. Shared pools keep these CPUs, too.
	ReclaimedNear topology.Set
	// Balloons are the balloons that exist; nil if the policy makes none. Idle are the CPUs that no balloon has, but
	// that balloons can get. OneThread takes a set of CPUs, and returns one of them for each core. If the policy does
	// not limit containers to CPUs, OneThread returns the whole set.
	Balloons  Balloons
	Idle      topology.Set
	OneThread func(topology.Set) topology.Set
	// CPUClasses returns which CPUs should have which class (frequency and idle states) in a layout. It is nil if the
	// policy has no CPU classes.
	CPUClasses func(*Layout) []ClassCPUs
	// Policy is the policy that made the layout. It is set only by policies that reuse parts of this layout for the
	// next one.
	Policy Policy
	// CPUsByPart has, for each part of the node such as a NUMA node, the CPUs in this part that no container owns and
	// that containers share. It is nil if the policy does not place containers in parts of the node.
	CPUsByPart map[PoolID]topology.Set
}

// ClassCPUs are CPUs that should have the same CPU class. They are either the CPUs of balloons of one type, or the idle
// CPUs. No CPU has two classes.
type ClassCPUs struct {
	Class lifecycle.CPUClass
	Type  string // the type of the balloons that have the CPUs; "" if the CPUs are idle
	CPUs  topology.Set
	Idle  bool // no balloon and no owner has the CPUs
}

// DefaultLayout makes the layout in which each pool has the pool's configured CPUs, except owned CPUs.
func (p *Pools) DefaultLayout(d Demand) *Layout {
	d.Previous = nil
	return &Layout{Pools: *p, Demand: d, Reclaimed: p.Reclaimed.Minus(d.OwnedCPUs)}
}

// SizesSharedPools reports whether the policy sizes shared pools by the requests of their containers.
func (l *Layout) SizesSharedPools() bool { return l.Shared != nil }

// UsesRequestsOf reports whether the requests of a pool's containers affect the layout.
func (l *Layout) UsesRequestsOf(p PoolKind) bool {
	return p == Shared && l.Shared != nil || p == Balloon && l.Balloons != nil || p == TreePool && l.CPUsByPart != nil
}

// UsesRequests reports whether the requests of any pool's containers affect the layout.
func (l *Layout) UsesRequests() bool {
	return l.UsesRequestsOf(Shared) || l.UsesRequestsOf(Balloon) || l.UsesRequestsOf(TreePool)
}

// NamedPoolKind returns which kind of pools with names the policy makes: TreePool (parts of the node) or Balloon.
func (l *Layout) NamedPoolKind() PoolKind {
	if l.CPUsByPart != nil {
		return TreePool
	}
	return Balloon
}

// CPUsByBalloon returns the field OwnCPUs of each balloon, by the balloon's name. It also returns the CPUs of each
// component of a composite balloon, by the component's name. It returns nil if the policy makes no balloons.
func (l *Layout) CPUsByBalloon() map[string]topology.Set {
	if l.Balloons == nil {
		return nil
	}
	held := make(map[string]topology.Set, len(l.Balloons))
	for _, b := range l.Balloons {
		held[b.Need.PoolID.Name] = b.OwnCPUs
		for _, part := range b.Components {
			held[part.Name] = part.CPUs
		}
	}
	return held
}

// Matches reports whether the layout was made from the pools p and a demand that is equal to d.
func (l *Layout) Matches(p *Pools, d Demand) bool {
	return l.Pools == *p && l.Demand.OwnedCPUs == d.OwnedCPUs && l.Demand.LentCPUs == d.LentCPUs && l.Demand.Needs.Equal(d.Needs)
}

// ChangedSince returns the balloons whose containers possibly have other CPUs than in an older layout. If ChangedSince
// cannot say this, for example because the configuration differs, the result known is false. The CPUs of every pool can
// then differ.
func (l *Layout) ChangedSince(old *Layout) (changed []PoolID, known bool) {
	if l == old {
		return nil, true
	}
	if l.Balloons == nil || old.Balloons == nil || l.Pools != old.Pools || l.Demand.OwnedCPUs != old.Demand.OwnedCPUs || l.Policy == nil || l.Policy != old.Policy {
		return nil, false
	}
	for _, name := range l.Balloons.ChangedSince(old.Balloons) {
		changed = append(changed, PoolID{Name: name})
	}
	if l.Idle != old.Idle { // a balloon without own CPUs uses the idle CPUs
		for _, b := range l.Balloons {
			if b.OwnCPUs.Empty() {
				changed = append(changed, b.Need.PoolID)
			}
		}
	}
	return changed, true
}

// poolCPUs returns the CPUs of the pool of the group s. Owned CPUs are not among them, with one exception: the
// reclaimed pool has the owned CPUs that are lent to it.
func (l *Layout) poolCPUs(s CPUGroup) topology.Set {
	switch {
	case s.Pool == Shared && l.Shared != nil:
		return l.Shared[s.PoolID]
	case s.Pool == Balloon:
		return l.balloonCPUs(s)
	case s.Pool == TreePool:
		return l.limitThreads(s, l.CPUsByPart[s.PoolID])
	case s.Pool == Reclaimed:
		return l.Reclaimed
	case s.Pool == System && s.PoolID.Name == ReservedPool:
		return l.Pools.Reserved.Minus(l.Demand.OwnedCPUs)
	case s.Pool == System && s.PoolID.Name != "":
		return l.sharedCPUsByPrefix(s.PoolID.Name)
	}
	return l.Pools.configuredCPUs(s.Pool).Minus(l.Demand.OwnedCPUs)
}

// limitThreads returns one of the given CPUs for each core if the group s uses one thread of each core. Otherwise it
// returns all given CPUs.
func (l *Layout) limitThreads(s CPUGroup, cpus topology.Set) topology.Set {
	if s.Threads == OneThread && l.OneThread != nil {
		return l.OneThread(cpus)
	}
	return cpus
}

// balloonCPUs returns the CPUs on which a balloon's containers run. A balloon that could get no CPUs uses the idle
// CPUs, or the reserved CPUs if no CPU is idle.
func (l *Layout) balloonCPUs(s CPUGroup) (cpus topology.Set) {
	if b := l.Balloons.ByName(s.PoolID.Name); b != nil {
		if cpus = b.AllowedCPUs; s.Threads == OneThread || s.Threads == DefaultThreads && b.HidesThreads {
			cpus = l.OneThread(cpus)
		}
	}
	for _, other := range []topology.Set{l.Idle, l.Pools.Reserved} {
		if cpus.Empty() {
			cpus = other
		}
	}
	return cpus.Minus(l.Demand.OwnedCPUs)
}

// sharedCPUsByPrefix returns the CPUs of all shared pools whose name has the prefix.
func (l *Layout) sharedCPUsByPrefix(name string) topology.Set {
	var cpus topology.Set
	for w, s := range l.Shared {
		if w.Name != "" && strings.HasPrefix(w.Name, name) {
			cpus = cpus.Union(s)
		}
	}
	return cpus
}

// CPUs returns the CPUs of a group. If the group owns CPUs, these are the owned CPUs. For some groups they also include
// shared CPUs of a part of the node.
//
// A group without owned CPUs gets the CPUs of its pool that are in AllowedCPUs and, if possible, in Near. If there are
// none, the group gets all CPUs in AllowedCPUs that no container owns. Reserved CPUs are not among these CPUs if only
// containers of class system may use them. If there are none again, the result ok is false, and the group gets CPUs
// without the limit AllowedCPUs.
func (l *Layout) CPUs(s CPUGroup) (cpus topology.Set, ok bool) {
	if s.OwnsAndShares() {
		return l.limitThreads(s, s.Owned.Union(limitedTo(l.CPUsByPart[s.PoolID], s.AllowedCPUs))), true
	}
	if s.Pool == Exclusive {
		return l.limitThreads(s, s.Owned), true
	}
	free := l.poolCPUs(s)
	all := l.Pools.configuredCPUs(Unclassified).Minus(l.Demand.OwnedCPUs)
	var nearReclaimed topology.Set
	if s.Pool == Reclaimed {
		nearReclaimed = l.ReclaimedNear.And(s.Near)
	}
	for _, try := range []topology.Set{
		limitedTo(limitedTo(free, s.Near), s.AllowedCPUs), limitedTo(nearReclaimed, s.AllowedCPUs), limitedTo(free, s.AllowedCPUs), limitedTo(all, s.AllowedCPUs),
	} {
		if !try.Empty() {
			return try, true
		}
	}
	if all.Empty() { // all CPUs that are not reserved have an owner
		all = l.Pools.Online.Minus(l.Demand.OwnedCPUs)
	}
	return all, false
}

// Compare orders pools of one kind. Pools that are not bound to NUMA nodes come first. The other pools are ordered by
// NUMA nodes and then by name. If these are equal, a pool that has its NUMA node exclusively comes last.
func (w PoolID) Compare(o PoolID) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(flag(w.BoundToNodes)-flag(o.BoundToNodes), cmp.Compare(w.Node, o.Node), cmp.Compare(w.Nodes, o.Nodes), cmp.Compare(w.Name, o.Name), flag(w.ExclusiveNode)-flag(o.ExclusiveNode))
}
