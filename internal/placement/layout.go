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
	// Needs are the sums of the requests of each pool's containers, for pools that the policy sizes by requests.
	Needs Needs
	// Previous is the current layout. Balloons keep the CPUs that they have in this layout. DefaultLayout clears the
	// field. Otherwise each layout would keep all earlier layouts in memory.
	Previous *Layout
}

// Layout has the CPUs of the pools for one demand. Equal demands give equal layouts. So a restarted agent computes the
// same layout from the records of containers. The demand includes the earlier CPUs of balloons (Demand.Previous).
type Layout struct {
	Pools  Pools
	Demand Demand
	// Shared has the CPUs of each shared pool; nil if only the configured shared pool exists.
	Shared    map[PoolID]topology.Set
	Reclaimed topology.Set // the CPUs of the reclaimed pool
	// ReclaimedNear are CPUs on NUMA nodes where the reclaimed pool has no CPUs. Containers of class reclaimed that are
	// bound to such a NUMA node use these CPUs together with shared pools.
	ReclaimedNear topology.Set
	// Balloons are the balloons that exist; nil if the policy makes none. Idle are the CPUs that no balloon has and
	// that balloons may get. OneThread returns one thread of each core that has CPUs in a set.
	Balloons  Balloons
	Idle      topology.Set
	OneThread func(topology.Set) topology.Set
	// CPUClasses returns the CPU classes that the agent should set with this layout. It is nil if the policy
	// has no CPU classes.
	CPUClasses func(*Layout) []ClassCPUs
	// Policy is the policy that made the layout, if this policy computes the next layout from this layout; otherwise
	// nil.
	Policy Policy
	// Tree has the CPUs without an owner of each part of the node, such as a NUMA node. It is nil if the policy does
	// not place containers in parts of the node.
	Tree map[PoolID]topology.Set
}

// ClassCPUs are CPUs that should have a CPU class, because balloons of one type have them or because they are
// idle. No CPU has two classes.
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
	return p == Shared && l.Shared != nil || p == Balloon && l.Balloons != nil || p == TreePool && l.Tree != nil
}

// UsesRequests reports whether the requests of any pool's containers affect the layout.
func (l *Layout) UsesRequests() bool {
	return l.UsesRequestsOf(Shared) || l.UsesRequestsOf(Balloon) || l.UsesRequestsOf(TreePool)
}

// NamedPoolKind returns the kind of the pools to which the policy gives names: parts of the node, or
// balloons.
func (l *Layout) NamedPoolKind() PoolKind {
	if l.Tree != nil {
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

// ChangedSince returns the balloons that may have other CPUs than in an older layout. The result known is false if the
// CPUs of any pool may differ.
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

// poolCPUs returns the CPUs of a group's pool. Only the reclaimed pool may have owned CPUs: the lent CPUs.
func (l *Layout) poolCPUs(s CPUGroup) topology.Set {
	switch {
	case s.Pool == Shared && l.Shared != nil:
		return l.Shared[s.PoolID]
	case s.Pool == Balloon:
		return l.balloonCPUs(s)
	case s.Pool == TreePool:
		return l.limitThreads(s, l.Tree[s.PoolID])
	case s.Pool == Reclaimed:
		return l.Reclaimed
	case s.Pool == System && s.PoolID.Name == ReservedPool:
		return l.Pools.Reserved.Minus(l.Demand.OwnedCPUs)
	case s.Pool == System && s.PoolID.Name != "":
		return l.sharedCPUsByPrefix(s.PoolID.Name)
	}
	return l.Pools.configuredCPUs(s.Pool).Minus(l.Demand.OwnedCPUs)
}

// limitThreads returns one of the CPUs of each core if the group uses one thread of each core. Otherwise it returns all
// CPUs.
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

// CPUs returns the CPUs of a group. A group in a pool gets no owned CPUs, except lent CPUs in the reclaimed pool. If
// the pool has no allowed CPUs for the group, the group gets all allowed CPUs that have no owner. Reserved CPUs are not
// among them if only containers of class system may use reserved CPUs. If the group may use none of these CPUs, the
// result ok is false, and the group gets CPUs outside of its allowed CPUs.
func (l *Layout) CPUs(s CPUGroup) (cpus topology.Set, ok bool) {
	if s.OwnsAndShares() {
		return l.limitThreads(s, s.Owned.Union(limitedTo(l.Tree[s.PoolID], s.AllowedCPUs))), true
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
// NUMA nodes and then by name. Of two pools with equal nodes and names, the pool with the exclusive node comes last.
func (w PoolID) Compare(o PoolID) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(flag(w.BoundToNodes)-flag(o.BoundToNodes), cmp.Compare(w.Node, o.Node), cmp.Compare(w.Nodes, o.Nodes), cmp.Compare(w.Name, o.Name), flag(w.ExclusiveNode)-flag(o.ExclusiveNode))
}
