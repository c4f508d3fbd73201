package choose

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// NodeWant asks for the NUMA node of a container that shares CPUs there.
type NodeWant struct {
	// Nodes are the nodes with room.
	Nodes []Room
	// Memory, MemoryLeft, Near and NearName mean the same as in NodeSetRequest.
	Memory     uint64
	MemoryLeft []uint64
	Near       topology.Set
	NearName   string
}

// Room is how many milli-CPUs of a NUMA node are left after the request.
type Room struct {
	Node int // its id
	Left int64
}

// PickNode chooses a NUMA node: by what is near, by memory, and then the one with the most
// left. ok is false if there is none.
func (t *Tree) PickNode(w NodeWant) (id int, why Reason, ok bool) {
	s := nodeSearch{tree: t, k: 1, want: &BindWant{Memory: w.Memory, MemoryLeft: w.MemoryLeft, Near: w.Near, NearName: w.NearName}}
	s.find(s.want)
	for _, room := range w.Nodes {
		i, _ := t.machine.NodeIndex(room.Node)
		c := nodeSet{nodes: 1 << i, left: int(room.Left)}
		c.rank[nearestMemory] = s.memory.far(c.nodes, math.MaxInt64)
		c.rank[mostNodesNear] = -int64(s.near >> i & 1)
		c.order(true)
		s.sets = append(s.sets, c)
	}
	if len(s.sets) == 0 {
		return 0, why, false
	}
	slices.SortFunc(s.sets, func(a, b nodeSet) int {
		return cmp.Or(slices.Compare(a.rank[:], b.rank[:]), cmp.Compare(a.nodes, b.nodes))
	})
	return s.named(s.sets[0].nodes), s.against(&s.sets[0]), true
}
