package pools

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// chooseNodesAndCPUs chooses NUMA nodes for a pod, and then CPUs of these nodes.
func (p *Policy) chooseNodesAndCPUs(v placement.View, s placement.Subject, w choose.Request, memory placement.Memory) (topology.Set, []choose.Reason, error) {
	numa := s.Intent.NUMA.V
	if err := checkNodesExist(v.Machine, numa.IDs); err != nil {
		return topology.Set{}, nil, err
	}
	q := choose.NodeSetRequest{
		N: w.N, From: w.From, AllowedNodes: p.allowedNodes(v, s), Count: numa.Count, Even: numa.Even, Cores: w.Cores, WholeNodes: numa.Exclusive, FewestPackages: numa.BySocket, PreferEmptiest: w.PreferEmptiest,
		Efficient: w.Efficient, Preferences: w.Preferences, Shared: w.Shared, Reserve: w.Reserve, Memory: memory.Bytes, FreeMemory: memory.FreeByNode,
	}
	q.Near, q.NearName = p.devices(v, s).near()
	q.Count = cmp.Or(q.Count, len(numa.IDs), len(s.Intent.Nodes.V))
	ids, why, err := p.chooseNodesWithReserve(q)
	if err != nil {
		return topology.Set{}, nil, err
	}
	var on topology.Set
	for _, id := range ids {
		node, _ := v.Machine.Node(id)
		on = on.Union(node.CPUs)
	}
	if numa.Exclusive {
		return w.From.And(on), why, nil
	}
	w.From = w.From.And(on)
	if numa.Even {
		w.Spread, w.Even = []topology.Level{topology.NodeLevel}, true
	}
	chosen, err := p.Tree.Choose(w)
	if err == nil && q.Count > 1 && !numa.Even && w.N >= q.Count && v.Machine.CountGroups(topology.NodeLevel, chosen.CPUs) < len(ids) {
		// The pod requested several nodes, and the chosen CPUs are on fewer nodes. The memory of the pod is only
		// on the nodes of its CPUs, so choose CPUs of all requested nodes.
		w.Spread = []topology.Level{topology.NodeLevel}
		if over, err := p.Tree.Choose(w); err == nil {
			chosen = over
		}
	}
	return chosen.CPUs, append(why, chosen.Why...), err
}

// chooseNodesWithReserve chooses NUMA nodes. q.Reserve has the free CPUs that pools need on the nodes to which these
// pools are bound. If possible, chooseNodesWithReserve leaves as many CPUs free as the pools need. But it does not choose
// more nodes than without q.Reserve: the CPUs of pools can change later, whereas a container keeps the CPUs that it owns.
func (p *Policy) chooseNodesWithReserve(q choose.NodeSetRequest) (ids []int, why []choose.Reason, err error) {
	ids, why, err = p.Tree.ChooseNodeSet(q)
	if len(q.Reserve) == 0 || err == nil && len(ids) == 1 {
		return ids, why, err
	}
	q.Reserve = nil
	all, reason, errAll := p.Tree.ChooseNodeSet(q)
	if errAll == nil && err == nil && len(all) >= len(ids) {
		return ids, why, nil
	}
	return all, reason, errAll
}

// checkNodesExist returns an error if the machine lacks one of the NUMA nodes.
func checkNodesExist(m *topology.Machine, ids []int) error {
	var all []int
	for _, n := range m.Nodes {
		all = append(all, n.ID)
	}
	none := slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return slices.Contains(all, id) })
	if len(none) == 0 {
		return nil
	}
	return fmt.Errorf("the requested NUMA nodes are %s, the machine has %s and lacks %s",
		topology.FormatList(ids), topology.FormatList(all), topology.FormatList(none))
}

// allowedNodes returns the ids of the NUMA nodes to which a pod may be bound.
func (p *Policy) allowedNodes(v placement.View, s placement.Subject) []int {
	numa, chosen := s.Intent.NUMA.V, s.Intent.Nodes
	out := []int{} // not nil, because nil means that all nodes are allowed
	for _, n := range v.Machine.Nodes {
		switch {
		case len(numa.IDs) > 0 && !slices.Contains(numa.IDs, n.ID):
		case len(numa.IDs) == 0 && chosen.IsSet() && !slices.Contains(chosen.V, n.ID):
		case numa.Exclusive && !isUnused(v, n):
		default:
			out = append(out, n.ID)
		}
	}
	return out
}

// isUnused reports whether one pod can have a NUMA node exclusively: no container owns a CPU of the node, and no pool
// is bound to the node. Small pools do not count, because they use the CPUs of the default pool. A pool is small if its
// containers together request less than one CPU.
func isUnused(v placement.View, n topology.Node) bool {
	if n.CPUs.Empty() || !v.FreeCPUs.Contains(n.CPUs.Minus(v.Pools.Reserved)) {
		return false
	}
	for w, milli := range v.Layout.Demand.Needs.All() {
		if w.IsBoundTo(n.ID) && !isSmallPool(w, milli) {
			return false
		}
	}
	return true
}
