package choose

import (
	"cmp"
	"math"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// NodeRequest is a request for the NUMA node on which a container should share CPUs.
type NodeRequest struct {
	// Nodes are the nodes with enough free CPU time.
	Nodes []NodeRoom
	// Memory is the number of bytes that should be near the CPUs. FreeMemory is the free memory of each node in bytes,
	// in the order of Machine.Nodes; nil if unknown.
	Memory     uint64
	FreeMemory []uint64
	// Near are CPUs whose nodes are preferred to all other nodes. NearName is the text in messages for what these CPUs
	// are near, such as "its devices".
	Near     topology.Set
	NearName string
}

// NodeRoom is the number of milli-CPUs that are left on a NUMA node after the request.
type NodeRoom struct {
	Node      int // the id of the node
	LeftMilli int64
}

// PickNode chooses a NUMA node. Nodes with CPUs of w.Near come first, then the nodes with the nearest memory,
// then the node with the most milli-CPUs left. ok is false if w.Nodes is empty.
func (t *Tree) PickNode(w NodeRequest) (id int, why Reason, ok bool) {
	s := nodeSearch{tree: t, setSize: 1, request: &NodeSetRequest{Memory: w.Memory, FreeMemory: w.FreeMemory, Near: w.Near, NearName: w.NearName}}
	s.prepareNodes(s.request)
	for _, one := range w.Nodes {
		i, _ := t.machine.NodeIndex(one.Node)
		c := nodeSet{nodes: 1 << i, left: int(one.LeftMilli)}
		c.rank[nearestMemory] = s.memory.farMemory(c.nodes, math.MaxInt64)
		c.rank[mostNodesNear] = -int64(s.nearNodes >> i & 1)
		c.rankByLeft(true)
		s.sets = append(s.sets, c)
	}
	if len(s.sets) == 0 {
		return 0, why, false
	}
	slices.SortFunc(s.sets, func(a, b nodeSet) int {
		return cmp.Or(slices.Compare(a.rank[:], b.rank[:]), cmp.Compare(a.nodes, b.nodes))
	})
	return s.firstID(s.sets[0].nodes), s.explain(&s.sets[0]), true
}
