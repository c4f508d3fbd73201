package placement

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// Pool names a set of CPUs that containers share.
type Pool int

// The pools. Rest is where containers sit that nobody asked anything for: all
// CPUs but those others own. Own is not a pool: the container owns its CPUs.
const (
	Rest Pool = iota
	Shared
	Reclaimed
	System
	Own
)

// String returns the pool's name.
func (p Pool) String() string {
	return [...]string{"rest", "shared", "reclaimed", "system", "exclusive"}[p]
}

// Pools are the CPUs each pool is made of while nobody owns any.
type Pools struct {
	Online, Reserved, Shared, Reclaimed topology.Set
	// System is empty where containers of class system get no CPUs of
	// their own.
	System topology.Set
}

func (p *Pools) base(pool Pool) topology.Set {
	switch pool {
	case Shared:
		return p.Shared
	case Reclaimed:
		return p.Reclaimed
	case System:
		return p.System
	}
	return p.Online
}

// Seat is where a container sits. It is comparable: containers with equal
// seats have equal CPUs, whatever happens to the pools.
type Seat struct {
	Pool Pool
	// Near narrows the pool to these CPUs where that leaves any; Within bounds
	// it in any case (the pod's cgroup, or what the runtime was asked for).
	// Empty means no bound.
	Near, Within topology.Set
	// Owned are the CPUs of a seat in pool Own.
	Owned topology.Set
}

// CPUs returns the CPUs of a seat while the given CPUs are owned. It never
// returns an owned CPU for a shared seat; where the pool is used up, it falls
// back to all CPUs within the bound that nobody owns. ok is false where
// nothing is left at all.
func (p *Pools) CPUs(s Seat, owned topology.Set) (cpus topology.Set, ok bool) {
	if s.Pool == Own {
		return s.Owned, true
	}
	free := p.base(s.Pool).Minus(owned)
	all := p.Online.Minus(owned)
	for _, try := range []topology.Set{
		bound(bound(free, s.Near), s.Within), bound(free, s.Within), bound(all, s.Within),
	} {
		if !try.Empty() {
			return try, true
		}
	}
	return all, false
}

func bound(s, by topology.Set) topology.Set {
	if by.Empty() {
		return s
	}
	return s.And(by)
}
