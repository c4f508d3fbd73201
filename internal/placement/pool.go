package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// PoolKind is a kind of pool. The containers of a pool share the pool's CPUs.
type PoolKind int

// The kinds of pools. Shared, Reclaimed and System are the pools of the classes with these names. Unclassified is for
// containers that request no pool. It has all CPUs without an owner, but no reserved CPUs if Pools.HardReserved is set.
// Exclusive is no pool: the container owns its CPUs. A Balloon is a set of CPUs that only the balloon's containers use.
// A TreePool belongs to a part of the node, such as a NUMA node. It has the CPUs of this part that no container owns.
const (
	Unclassified PoolKind = iota
	Shared
	Reclaimed
	System
	Exclusive
	Balloon
	TreePool
)

// String returns the name of the kind.
func (p PoolKind) String() string {
	return [...]string{"rest", "shared", "reclaimed", "system", "exclusive", "balloon", "tree"}[p]
}

// Named reports whether the policy gives names to pools of this kind. The record of a container has the name
// of its pool.
func (p PoolKind) Named() bool { return p == Balloon || p == TreePool }

// Pools are the online CPUs, the reserved CPUs, and the configured CPUs of each pool. A pool has its configured CPUs
// while no CPU has an owner.
type Pools struct {
	Online, Reserved, Shared, Reclaimed topology.Set
	// System is empty if containers of class system have no pool.
	System topology.Set
	// HardReserved means that only containers of class system may use reserved CPUs.
	HardReserved bool
	// UnlabelledShared means that pods without a class use the shared pool. BestEffort pods are excepted.
	UnlabelledShared bool
	// ReclaimedByNUMA means that a pod of class reclaimed uses only reclaimed CPUs of the NUMA nodes that a scheduler
	// chose for the pod.
	ReclaimedByNUMA bool
}

// UnclassifiedCPUs returns the configured CPUs of the pool Unclassified, for containers that request no pool.
func (p *Pools) UnclassifiedCPUs() topology.Set { return p.configuredCPUs(Unclassified) }

// configuredCPUs returns the CPUs of a pool while no CPU has an owner.
func (p *Pools) configuredCPUs(pool PoolKind) topology.Set {
	switch {
	case pool == Shared:
		return p.Shared
	case pool == Reclaimed:
		return p.Reclaimed
	case pool == System:
		return p.System
	case p.HardReserved:
		return p.Online.Minus(p.Reserved)
	}
	return p.Online
}

// PoolID identifies a pool among the pools of one kind.
type PoolID struct {
	Name string // "" is the default pool
	// BoundToNodes means that the pool has only CPUs of the NUMA node with id Node. If the pool is bound to several
	// nodes, Nodes lists their ids, and Node is the lowest. ExclusiveNode means that no other pool uses the single NUMA
	// node of this pool.
	BoundToNodes  bool `json:"Bound"`
	Node          int
	Nodes         string
	ExclusiveNode bool
}

// BoundPool returns the pool with the given name that is bound to the NUMA nodes with the given ids.
func BoundPool(name string, ids []int) PoolID {
	w := PoolID{Name: name, BoundToNodes: true, Node: slices.Min(ids)}
	if len(ids) > 1 {
		w.Nodes = topology.FormatList(slices.Sorted(slices.Values(ids)))
	}
	return w
}

// NodeIDs returns the ids of the NUMA nodes to which the pool is bound.
func (w PoolID) NodeIDs() []int {
	switch ids, err := topology.ParseList(w.Nodes); {
	case !w.BoundToNodes:
		return nil
	case w.Nodes == "" || err != nil:
		return []int{w.Node}
	default:
		return ids
	}
}

// IsBoundTo reports whether the pool is bound to a NUMA node, possibly together with other NUMA nodes.
func (w PoolID) IsBoundTo(id int) bool {
	return w.BoundToNodes && (w.Node == id || w.Nodes != "" && slices.Contains(w.NodeIDs(), id))
}

// String describes the pool for users, such as "web of node 1".
func (w PoolID) String() string {
	text := w.Name
	switch {
	case w.Nodes != "":
		text = strings.TrimSpace(text + " of nodes " + w.Nodes)
	case w.BoundToNodes:
		text = strings.TrimSpace(fmt.Sprintf("%s of node %d", text, w.Node))
	}
	if w.ExclusiveNode {
		text += " alone"
	}
	return text
}

// ReservedPool is the name of the system pool that consists of the reserved CPUs.
const ReservedPool = "reserve"

// CPUGroup says which CPUs a container has: CPUs of a pool, possibly with limits, or CPUs that it owns. Containers with
// equal groups always have the same CPUs.
type CPUGroup struct {
	Pool   PoolKind
	PoolID PoolID `json:"which"`
	// Near limits the group to these CPUs. The limit does not apply if the pool has none of them. AllowedCPUs are the
	// CPUs of the pod's cgroup, or of the runtime's request, and limit the group always. An empty set means no limit.
	Near        topology.Set
	AllowedCPUs topology.Set `json:"Within"`
	// Owned are the CPUs that the containers of the group own, if Pool is Exclusive. If PoolID also has a name, the
	// group also uses the CPUs of the TreePool with this name.
	Owned topology.Set
	// Threads says which threads of each core the group uses. It applies to groups in a balloon or in a part of the
	// node, and to groups with owned CPUs.
	Threads Threads
}

// Threads says on which threads of the cores of its CPUs a container runs.
type Threads uint8

// DefaultThreads means that the type of the container's balloon decides (BalloonCPUs.HidesThreads). For a container in
// no balloon, it means all threads. OneThread means one thread of each core.
const (
	DefaultThreads Threads = iota
	OneThread
	AllThreads
)

// OwnsAndShares reports whether the group owns CPUs and also shares CPUs of a pool.
func (s CPUGroup) OwnsAndShares() bool { return s.Pool == Exclusive && s.PoolID.Name != "" }

// limitedTo returns the CPUs of s that are also in limit. An empty limit means no limit.
func limitedTo(s, limit topology.Set) topology.Set {
	if limit.Empty() {
		return s
	}
	return s.And(limit)
}
