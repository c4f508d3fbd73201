package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Pool names a kind of CPUs that containers share.
type Pool int

// The pools. Rest is where containers sit that nobody asked anything for: all
// CPUs but those others own. Own is not a pool: the container owns its CPUs.
const (
	Unclassified Pool = iota
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
	// Hard keeps everybody but containers of class system off reserved CPUs.
	Hard bool
	// UnlabelledShared puts pods without a class into the shared pool.
	UnlabelledShared bool
	// ReclaimedByNUMA applies NUMA nodes chosen for reclaimed pods.
	ReclaimedByNUMA bool
}

// ForAll are the CPUs that pods no pool is for may use.
func (p *Pools) ForAll() topology.Set { return p.base(Unclassified) }

func (p *Pools) base(pool Pool) topology.Set {
	switch {
	case pool == Shared:
		return p.Shared
	case pool == Reclaimed:
		return p.Reclaimed
	case pool == System:
		return p.System
	case p.Hard:
		return p.Online.Minus(p.Reserved)
	}
	return p.Online
}

// Which tells pools of one kind apart.
type Which struct {
	Name string // "" is the default one
	// Bound confines the pool to the NUMA node with id Node, or to several: Nodes lists them
	// then, and Node is the first. Alone lets no other pool onto its one node.
	Bound         bool
	Node          int
	Nodes         string
	ExclusiveNode bool
}

// BoundTo is the pool of a name that is bound to the NUMA nodes with some ids.
func BoundTo(name string, ids []int) Which {
	w := Which{Name: name, Bound: true, Node: slices.Min(ids)}
	if len(ids) > 1 {
		w.Nodes = topology.FormatList(slices.Sorted(slices.Values(ids)))
	}
	return w
}

// On returns the ids of the NUMA nodes that the pool is bound to.
func (w Which) On() []int {
	switch ids, err := topology.ParseList(w.Nodes); {
	case !w.Bound:
		return nil
	case w.Nodes == "" || err != nil:
		return []int{w.Node}
	default:
		return ids
	}
}

// IsOn reports whether the pool is bound to a NUMA node, or to several of which it is one.
func (w Which) IsOn(id int) bool {
	return w.Bound && (w.Node == id || w.Nodes != "" && slices.Contains(w.On(), id))
}

// String tells the pool from others of its kind, for people: "web of node 1".
func (w Which) String() string {
	text := w.Name
	switch {
	case w.Nodes != "":
		text = strings.TrimSpace(text + " of nodes " + w.Nodes)
	case w.Bound:
		text = strings.TrimSpace(fmt.Sprintf("%s of node %d", text, w.Node))
	}
	if w.ExclusiveNode {
		text += " alone"
	}
	return text
}

// ReservedPool is the name of the system pool that is made of the reserved CPUs.
const ReservedPool = "reserve"

// Seat is where a container sits. It is comparable: containers with equal
// seats have equal CPUs, whatever happens to the pools.
type CPUGroup struct {
	Pool  Pool
	Which Which
	// Near narrows the pool to these CPUs where that leaves any; Within bounds
	// it in any case (the pod's cgroup, or what the runtime was asked for).
	// Empty means no bound.
	Near, Within topology.Set
	// Owned are the CPUs of a seat in pool Own.
	Owned topology.Set
}

func bound(s, by topology.Set) topology.Set {
	if by.Empty() {
		return s
	}
	return s.And(by)
}
