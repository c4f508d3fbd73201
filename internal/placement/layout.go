package placement

import (
	"cmp"
	"maps"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Demand is what pools depend on beside the configuration.
type Demand struct {
	// Owned are the CPUs that containers own; Lent those of them whose owner lets
	// reclaimed containers use them, too.
	Owned, Lent topology.Set
	// Needs are the requests of each shared pool's containers, in milli-CPUs. A
	// pool that has containers has an entry.
	Needs map[Which]int64
}

// Layout is what the pools have, for one demand. The same demand always has the
// same layout, whatever was before: so a restart finds what it left, from what
// containers' records say alone.
type Layout struct {
	Pools  Pools
	Demand Demand
	// Shared are the shared pools by what they are asked for; nil where there is one,
	// as it is configured.
	Shared    map[Which]topology.Set
	Reclaimed topology.Set
	// ReclaimedNear are CPUs of NUMA nodes where the reclaimed pool has none: for
	// reclaimed containers that are bound there. Shared pools have them, too.
	ReclaimedNear topology.Set
}

// Lay makes the layout of pools that are as they are configured.
func (p *Pools) Lay(d Demand) *Layout {
	return &Layout{Pools: *p, Demand: d, Reclaimed: p.Reclaimed.Minus(d.Owned)}
}

// Sized reports whether what containers ask for counts in the layout.
func (l *Layout) Sized() bool { return l.Shared != nil }

// Is reports whether this is the layout of a demand on some pools.
func (l *Layout) Matches(p *Pools, d Demand) bool {
	return l.Pools == *p && l.Demand.Owned == d.Owned && l.Demand.Lent == d.Lent && maps.Equal(l.Demand.Needs, d.Needs)
}

// pool returns the CPUs of the pool a seat is in. It has no owned CPU, but for
// those lent to the reclaimed pool.
func (l *Layout) pool(s CPUGroup) topology.Set {
	switch {
	case s.Pool == Shared && l.Shared != nil:
		return l.Shared[s.Which]
	case s.Pool == Reclaimed:
		return l.Reclaimed
	case s.Pool == System && s.Which.Name == ReservedPool:
		return l.Pools.Reserved.Minus(l.Demand.Owned)
	case s.Pool == System && s.Which.Name != "":
		return l.prefixed(s.Which.Name)
	}
	return l.Pools.base(s.Pool).Minus(l.Demand.Owned)
}

// prefixed returns the CPUs of all shared pools whose name starts so.
func (l *Layout) prefixed(name string) topology.Set {
	var cpus topology.Set
	for w, s := range l.Shared {
		if w.Name != "" && strings.HasPrefix(w.Name, name) {
			cpus = cpus.Union(s)
		}
	}
	return cpus
}

// CPUs returns the CPUs of a seat. It never returns an owned CPU for a shared
// seat, but for lent ones in the reclaimed pool; where the pool is used up, it
// falls back to all CPUs within the bound that nobody owns. ok is false where
// nothing is left at all.
func (l *Layout) CPUs(s CPUGroup) (cpus topology.Set, ok bool) {
	if s.Pool == Own {
		return s.Owned, true
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
	if all.Empty() { // only where reserved CPUs are kept from all others
		all = l.Pools.Online.Minus(l.Demand.Owned)
	}
	return all, false
}

// Compare orders pools of one kind: those bound to no node first, then by node, by
// name, and those that let no other onto their node last.
func (w Which) Compare(o Which) int {
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(flag(w.Bound)-flag(o.Bound), cmp.Compare(w.Node, o.Node), cmp.Compare(w.Nodes, o.Nodes), cmp.Compare(w.Name, o.Name), flag(w.ExclusiveNode)-flag(o.ExclusiveNode))
}
