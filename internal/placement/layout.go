package placement

import (
	"cmp"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Demand is what the layout of pools depends on besides the configuration.
type Demand struct {
	// Owned are the CPUs that containers own. Lent are those of them that reclaimed containers
	// may use, too.
	Owned, Lent topology.Set
	// Needs are the requests of the containers of pools that the policy sizes by requests.
	Needs Needs
	// Before is the layout in force: balloons keep the CPUs that they have in it. A layout does
	// not keep the one before it.
	Before *Layout
}

// Layout is the CPUs of the pools for one demand. The same demand always gives the same layout,
// whatever came before. So a restart computes the same layout from the records of containers.
// What balloons had before is a part of the demand.
type Layout struct {
	Pools  Pools
	Demand Demand
	// Shared has the CPUs of each shared pool; nil if there is only the configured one.
	Shared    map[Which]topology.Set
	Reclaimed topology.Set
	// ReclaimedNear are CPUs on NUMA nodes without reclaimed CPUs, for reclaimed containers
	// that are bound there. Shared pools have these CPUs, too.
	ReclaimedNear topology.Set
	// Balloons are the balloons that exist; nil if the policy makes none. Idle are the CPUs of
	// none of them that they may get, and OneThread returns one thread of each core.
	Balloons  Balloons
	Idle      topology.Set
	OneThread func(topology.Set) topology.Set
	// By is the policy that made the layout, if it makes the next one from it.
	By Policy
	// Tree has the CPUs of each part of the node that nobody owns; nil if the policy does not
	// place containers in parts of the node.
	Tree map[Which]topology.Set
}

// Lay makes the layout of the pools as configured.
func (p *Pools) Lay(d Demand) *Layout {
	d.Before = nil
	return &Layout{Pools: *p, Demand: d, Reclaimed: p.Reclaimed.Minus(d.Owned)}
}

// Sized reports whether the requests of containers affect the layout.
func (l *Layout) Sized() bool { return l.Shared != nil }

// Counts reports whether the layout depends on the requests of the containers of a pool.
func (l *Layout) Counts(p Pool) bool {
	return p == Shared && l.Shared != nil || p == Balloon && l.Balloons != nil || p == TreePool && l.Tree != nil
}

// CountsRequests reports whether the policy needs the requests of some pools' containers.
func (l *Layout) CountsRequests() bool {
	return l.Counts(Shared) || l.Counts(Balloon) || l.Counts(TreePool)
}

// NamedPool returns the kind of the pools that the policy names.
func (l *Layout) NamedPool() Pool {
	if l.Tree != nil {
		return TreePool
	}
	return Balloon
}

// Held returns the CPUs that each balloon, and each part of a composite one, has for itself, by
// name; nil if the policy makes none.
func (l *Layout) Held() map[string]topology.Set {
	if l.Balloons == nil {
		return nil
	}
	held := make(map[string]topology.Set, len(l.Balloons))
	for _, b := range l.Balloons {
		held[b.Need.Which.Name] = b.Own
		for _, part := range b.Parts {
			held[part.Name] = part.CPUs
		}
	}
	return held
}

// Matches reports whether this is the layout of some pools for a demand.
func (l *Layout) Matches(p *Pools, d Demand) bool {
	return l.Pools == *p && l.Demand.Owned == d.Owned && l.Demand.Lent == d.Lent && l.Demand.Needs.Equal(d.Needs)
}

// Since returns the pools that the policy names and that may have other CPUs than in an older
// layout. known is false if every pool may.
func (l *Layout) Since(old *Layout) (changed []Which, known bool) {
	if l == old {
		return nil, true
	}
	if l.Balloons == nil || old.Balloons == nil || l.Pools != old.Pools || l.Demand.Owned != old.Demand.Owned || l.By == nil || l.By != old.By {
		return nil, false
	}
	for _, name := range l.Balloons.Since(old.Balloons) {
		changed = append(changed, Which{Name: name})
	}
	if l.Idle != old.Idle { // a balloon without CPUs of its own has these
		for _, b := range l.Balloons {
			if b.Own.Empty() {
				changed = append(changed, b.Need.Which)
			}
		}
	}
	return changed, true
}

// pool returns the CPUs of a group's pool. It has no owned CPUs, except those lent to the
// reclaimed pool.
func (l *Layout) pool(s CPUGroup) topology.Set {
	switch {
	case s.Pool == Shared && l.Shared != nil:
		return l.Shared[s.Which]
	case s.Pool == Balloon:
		return l.balloon(s)
	case s.Pool == TreePool:
		return l.threads(s, l.Tree[s.Which])
	case s.Pool == Reclaimed:
		return l.Reclaimed
	case s.Pool == System && s.Which.Name == ReservedPool:
		return l.Pools.Reserved.Minus(l.Demand.Owned)
	case s.Pool == System && s.Which.Name != "":
		return l.prefixed(s.Which.Name)
	}
	return l.Pools.base(s.Pool).Minus(l.Demand.Owned)
}

// threads returns one thread of each core, if a group has only these.
func (l *Layout) threads(s CPUGroup, cpus topology.Set) topology.Set {
	if s.Threads == OneThread && l.OneThread != nil {
		return l.OneThread(cpus)
	}
	return cpus
}

// balloon returns the CPUs of a balloon. One that could get none has those of no balloon, or
// else the reserved ones.
func (l *Layout) balloon(s CPUGroup) (cpus topology.Set) {
	if b := l.Balloons.Of(s.Which.Name); b != nil {
		if cpus = b.All; s.Threads == OneThread || s.Threads == ThreadsOfType && b.HidesThreads {
			cpus = l.OneThread(cpus)
		}
	}
	for _, other := range []topology.Set{l.Idle, l.Pools.Reserved} {
		if cpus.Empty() {
			cpus = other
		}
	}
	return cpus.Minus(l.Demand.Owned)
}

// prefixed returns the CPUs of all shared pools whose name has the prefix.
func (l *Layout) prefixed(name string) topology.Set {
	var cpus topology.Set
	for w, s := range l.Shared {
		if w.Name != "" && strings.HasPrefix(w.Name, name) {
			cpus = cpus.Union(s)
		}
	}
	return cpus
}

// CPUs returns the CPUs of a group. A shared group has no owned CPU, except lent ones in the
// reclaimed pool. If its pool has no CPU left, it gets all CPUs within its bound that have no
// owner. ok is false if none is left.
func (l *Layout) CPUs(s CPUGroup) (cpus topology.Set, ok bool) {
	if s.Pool == Own {
		return l.threads(s, s.Owned), true
	}
	free := l.pool(s)
	all := l.Pools.base(Unclassified).Minus(l.Demand.Owned)
	var there topology.Set
	if s.Pool == Reclaimed {
		there = l.ReclaimedNear.And(s.Near)
	}
	for _, try := range []topology.Set{
		bound(bound(free, s.Near), s.Within), bound(there, s.Within), bound(free, s.Within), bound(all, s.Within),
	} {
		if !try.Empty() {
			return try, true
		}
	}
	if all.Empty() { // only if reserved CPUs are kept from all others
		all = l.Pools.Online.Minus(l.Demand.Owned)
	}
	return all, false
}

// Compare orders pools of one kind: unbound pools first, then by node, then by name; pools with
// an exclusive node last.
func (w Which) Compare(o Which) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(flag(w.Bound)-flag(o.Bound), cmp.Compare(w.Node, o.Node), cmp.Compare(w.Nodes, o.Nodes), cmp.Compare(w.Name, o.Name), flag(w.ExclusiveNode)-flag(o.ExclusiveNode))
}
