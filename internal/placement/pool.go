package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Pool is a kind of CPUs that containers share.
type Pool int

// The pools. Containers that ask for nothing are in Unclassified: all CPUs without an owner.
// Own is not a pool: the container owns its CPUs. A Balloon is a set of CPUs that only its
// containers use. A TreePool is the CPUs of a part of the node, such as a NUMA node, that
// nobody owns.
const (
	Unclassified Pool = iota
	Shared
	Reclaimed
	System
	Own
	Balloon
	TreePool
)

// String returns the pool's name.
func (p Pool) String() string {
	return [...]string{"rest", "shared", "reclaimed", "system", "exclusive", "balloon", "tree"}[p]
}

// Named reports whether the policy names the pools of this kind, and the container's record
// has the name.
func (p Pool) Named() bool { return p == Balloon || p == TreePool }

// Pools are the CPUs of each pool while no CPU has an owner.
type Pools struct {
	Online, Reserved, Shared, Reclaimed topology.Set
	// System is empty if containers of class system have no pool.
	System topology.Set
	// Hard keeps all containers off reserved CPUs, except containers of class system.
	Hard bool
	// UnlabelledShared puts pods without a class into the shared pool.
	UnlabelledShared bool
	// ReclaimedByNUMA binds reclaimed pods to the NUMA nodes that a scheduler chose for them.
	ReclaimedByNUMA bool
}

// ForAll returns the CPUs for pods that belong to no pool.
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

// Which distinguishes pools of one kind.
type Which struct {
	Name string // "" is the default pool
	// Bound confines the pool to the NUMA node with id Node, or to several nodes: then Nodes
	// lists them, and Node is the first. ExclusiveNode keeps other pools off its single node.
	Bound         bool
	Node          int
	Nodes         string
	ExclusiveNode bool
}

// BoundTo returns the pool of a name that is bound to the NUMA nodes with some ids.
func BoundTo(name string, ids []int) Which {
	w := Which{Name: name, Bound: true, Node: slices.Min(ids)}
	if len(ids) > 1 {
		w.Nodes = topology.FormatList(slices.Sorted(slices.Values(ids)))
	}
	return w
}

// On returns the ids of the NUMA nodes to which the pool is bound.
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

// IsOn reports whether the pool is bound to a NUMA node, alone or among others.
func (w Which) IsOn(id int) bool {
	return w.Bound && (w.Node == id || w.Nodes != "" && slices.Contains(w.On(), id))
}

// String distinguishes the pool from others of its kind, for users: "web of node 1".
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

// ReservedPool is the name of the system pool that consists of the reserved CPUs.
const ReservedPool = "reserve"

// CPUGroup identifies the CPUs of a container: a pool with its limits, or the owned CPUs. It is
// comparable: containers with equal groups always have equal CPUs.
type CPUGroup struct {
	Pool  Pool
	Which Which
	// Near narrows the pool to these CPUs, if any of them are left. Within always limits it, to
	// the CPUs of the pod's cgroup or of the runtime's request. Empty means no limit.
	Near, Within topology.Set
	// Owned are the CPUs of a group in pool Own.
	Owned topology.Set
	// Threads says which threads of the CPUs of a balloon, of a part of the node or of an owner
	// the group has.
	Threads Threads
}

// Threads says which threads of its CPUs a container runs on.
type Threads uint8

// The threads: as the balloon's type says (all of other CPUs), one of each core, or all.
const (
	ThreadsOfType Threads = iota
	OneThread
	AllThreads
)

func bound(s, by topology.Set) topology.Set {
	if by.Empty() {
		return s
	}
	return s.And(by)
}
