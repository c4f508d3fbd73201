package placement

import (
	"cmp"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Demand is the input from which a policy computes the CPUs of pools, besides the configuration.
type Demand struct {
	// OwnedCPUs are the CPUs that containers own or that are reserved for them. LentCPUs are the owned CPUs that
	// reclaimed containers may also use.
	OwnedCPUs, LentCPUs topology.Set
	// Needs are the requests of containers, for pools that the policy sizes by requests.
	Needs Needs
	// Previous is the current layout. Balloons keep the CPUs that they have in it. DefaultLayout clears the
	// field, so that a layout does not keep all earlier layouts in memory.
	Previous *Layout
}

// Layout has the CPUs of the pools for one demand. Equal demands give equal layouts, so an agent that
// restarts computes the same layout from the records of containers. The earlier CPUs of balloons are a part
// of the demand.
type Layout struct {
	Pools  Pools
	Demand Demand
	// Shared has the CPUs of each shared pool; nil if only the configured shared pool exists.
	Shared    map[PoolID]topology.Set
	Reclaimed topology.Set
	// ReclaimedNear are CPUs on NUMA nodes where the reclaimed pool has none. Reclaimed containers that are
	// bound to such a node use them together with shared pools.
	ReclaimedNear topology.Set
	// Balloons are the balloons that exist; nil if the policy makes none. Idle are CPUs that balloons may get
	// and that no balloon has. OneThread returns one thread of each core of a set.
	Balloons  Balloons
	Idle      topology.Set
	OneThread func(topology.Set) topology.Set
	// CPUClasses returns the CPU classes that the agent should set with this layout. It is nil if the policy
	// has no CPU classes.
	CPUClasses func(*Layout) []ClassCPUs
	// Policy is the policy that made the layout, if it computes the next layout from this one; otherwise nil.
	Policy Policy
	// Tree has, for each part of the node, its CPUs without an owner. It is nil if the policy does not place
	// containers in parts of the node.
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

// DefaultLayout makes the layout in which pools have their configured CPUs, except owned ones.
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

// CPUsByBalloon returns the own CPUs of each balloon and of each component of a composite balloon, by name;
// nil if the policy makes no balloons.
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

// Matches reports whether the layout was made from these pools and an equal demand.
func (l *Layout) Matches(p *Pools, d Demand) bool {
	return l.Pools == *p && l.Demand.OwnedCPUs == d.OwnedCPUs && l.Demand.LentCPUs == d.LentCPUs && l.Demand.Needs.Equal(d.Needs)
}

// ChangedSince returns the balloons that may have other CPUs than in an older layout. known is false if the
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

// poolCPUs returns the CPUs of a group's pool. Only the reclaimed pool may have owned CPUs, those that are lent.
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
		return l.poolsWithPrefix(s.PoolID.Name)
	}
	return l.Pools.configuredCPUs(s.Pool).Minus(l.Demand.OwnedCPUs)
}

// limitThreads returns one thread of each core if the group uses only one, otherwise all CPUs.
func (l *Layout) limitThreads(s CPUGroup, cpus topology.Set) topology.Set {
	if s.Threads == OneThread && l.OneThread != nil {
		return l.OneThread(cpus)
	}
	return cpus
}

// balloonCPUs returns the CPUs on which a balloon's containers run. A balloon that could get no CPUs uses the
// idle CPUs, or the reserved CPUs if none is idle.
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

// poolsWithPrefix returns the CPUs of all shared pools whose name has the prefix.
func (l *Layout) poolsWithPrefix(name string) topology.Set {
	var cpus topology.Set
	for w, s := range l.Shared {
		if w.Name != "" && strings.HasPrefix(w.Name, name) {
			cpus = cpus.Union(s)
		}
	}
	return cpus
}

// CPUs returns the CPUs of a group. A group in a pool has no owned CPUs, except lent CPUs in the reclaimed
// pool. If the pool has no CPUs left, the group gets all allowed CPUs that have no owner, without reserved CPUs
// if these are kept for class system. ok is false if the group may use none of the CPUs that are left.
func (l *Layout) CPUs(s CPUGroup) (cpus topology.Set, ok bool) {
	if s.OwnsAndShares() {
		return l.limitThreads(s, s.Owned.Union(limitedTo(l.Tree[s.PoolID], s.AllowedCPUs))), true
	}
	if s.Pool == Exclusive {
		return l.limitThreads(s, s.Owned), true
	}
	free := l.poolCPUs(s)
	all := l.Pools.configuredCPUs(Unclassified).Minus(l.Demand.OwnedCPUs)
	var there topology.Set
	if s.Pool == Reclaimed {
		there = l.ReclaimedNear.And(s.Near)
	}
	for _, try := range []topology.Set{
		limitedTo(limitedTo(free, s.Near), s.AllowedCPUs), limitedTo(there, s.AllowedCPUs), limitedTo(free, s.AllowedCPUs), limitedTo(all, s.AllowedCPUs),
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

// Compare orders pools of one kind. Pools that are bound to no NUMA node come first. Then come the others by
// node, by name, and those with an exclusive node last.
func (w PoolID) Compare(o PoolID) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(flag(w.BoundToNodes)-flag(o.BoundToNodes), cmp.Compare(w.Node, o.Node), cmp.Compare(w.Nodes, o.Nodes), cmp.Compare(w.Name, o.Name), flag(w.ExclusiveNode)-flag(o.ExclusiveNode))
}
