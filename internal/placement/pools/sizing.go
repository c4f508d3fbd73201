package pools

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Sizing makes shared pools as large as the requests of their containers.
//
// All pools take CPUs from one list with a fixed order: whole cores, from each NUMA node in turn. Pools that are bound
// to one node take CPUs first, then pools that are bound to several nodes. Then the default pool takes CPUs from the
// front of the list, and named pools, sorted by name, take CPUs from the back. The CPUs in the middle of the list
// remain for the reclaimed pool. A pool that grows keeps its CPUs, because it takes more CPUs from the middle. If a
// container gets CPUs from the middle as its own, the shared pools also keep their CPUs. A small pool, whose containers
// together request less than one CPU, uses the CPUs of the default pool.
type Sizing struct {
	cpuOrder   []int                // the CPUs in the order in which pools take them
	cpusByNode map[int]topology.Set // by the id of the NUMA node
	// Expand means that shared pools together use all CPUs without an owner. The reclaimed pool then overlaps with the
	// shared pools.
	Expand bool
	// ShareUnused means that all shared pools also use the CPUs that no shared pool needs. These CPUs belong to the
	// reclaimed pool, too. ShareUnused has no effect if Expand is set.
	ShareUnused bool
	// MinReclaimed is the smallest number of CPUs of the reclaimed pool. If fewer CPUs remain, the reclaimed
	// pool overlaps with the default pool.
	MinReclaimed int
}

// NewSizing returns the sizing of a machine's pools. Isolated CPUs (isolcpus) belong to no
// pool, unless all CPUs are isolated.
func NewSizing(m *topology.Machine) *Sizing {
	s := &Sizing{cpusByNode: map[int]topology.Set{}, MinReclaimed: 1}
	queues := make([][]topology.Set, len(m.Nodes))
	for i, n := range m.Nodes {
		s.cpusByNode[n.ID] = n.CPUs
		for _, core := range m.Groups(topology.CoreLevel) {
			if at := core.And(n.CPUs); !at.Empty() {
				queues[i] = append(queues[i], at)
			}
		}
	}
	var all []int
	for round := 0; len(all) < m.Online().Len(); round++ {
		for _, q := range queues {
			if round < len(q) {
				all = append(all, q[round].Members()...)
			}
		}
	}
	s.cpuOrder = slices.DeleteFunc(slices.Clone(all), func(cpu int) bool { return m.CPUs[cpu].Isolated })
	if len(s.cpuOrder) == 0 {
		s.cpuOrder = all
	}
	return s
}

// firstCPUs returns up to n CPUs of a set, the first ones in the order in which pools take CPUs. If n is
// negative, it returns up to -n CPUs from the end of the order.
func (s *Sizing) firstCPUs(from topology.Set, n int) topology.Set {
	var out topology.Set
	for i := range s.cpuOrder {
		cpu := s.cpuOrder[i]
		if n < 0 {
			cpu = s.cpuOrder[len(s.cpuOrder)-1-i]
		}
		if n == 0 {
			break
		}
		if from.Has(cpu) {
			out.Add(cpu)
			n -= cmp.Compare(n, 0)
		}
	}
	return out
}

// nodeCPUs returns the CPUs of the NUMA nodes to which a pool is bound.
func (s *Sizing) nodeCPUs(w placement.PoolID) (cpus topology.Set) {
	for _, id := range w.NodeIDs() {
		cpus = cpus.Union(s.cpusByNode[id])
	}
	return cpus
}

// openNodeCPUs returns the CPUs of the NUMA nodes to which pool w is bound. It leaves out each node that a pool has
// exclusively. If pools have all nodes of w exclusively, openNodeCPUs returns the CPUs of all nodes of w.
func (s *Sizing) openNodeCPUs(l *placement.Layout, w placement.PoolID) (cpus topology.Set) {
	for _, id := range w.NodeIDs() {
		if !isExclusiveNode(l, id) {
			cpus = cpus.Union(s.cpusByNode[id])
		}
	}
	if cpus.Empty() {
		return s.nodeCPUs(w)
	}
	return cpus
}

// usableCPUs returns the CPUs that pools may have.
func (s *Sizing) usableCPUs() topology.Set { return topology.SetOf(s.cpuOrder...) }

// layout makes the layout for a demand.
func (s *Sizing) layout(p *placement.Pools, d placement.Demand) *placement.Layout {
	l := p.DefaultLayout(d)
	s.sizePools(l)
	return l
}

// sizePools divides the CPUs without an owner among the pools.
func (s *Sizing) sizePools(l *placement.Layout) {
	free := l.Pools.Shared.Minus(l.Demand.OwnedCPUs).And(s.usableCPUs())
	l.Shared = make(map[placement.PoolID]topology.Set, len(l.Demand.Needs)+1)
	rest := free
	var open, wide, smallPools []placement.PoolID // pools bound to no node, pools bound to several nodes, and small pools
	byNode := map[int][]placement.PoolID{}
	for w, milli := range l.Demand.Needs.All() {
		if isSmallPool(w, milli) {
			smallPools = append(smallPools, w)
		} else if w.Nodes != "" {
			wide = append(wide, w)
		} else if w.BoundToNodes {
			byNode[w.Node] = append(byNode[w.Node], w)
		} else {
			open = append(open, w)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		s.divide(l, rest.And(s.cpusByNode[node]), byNode[node], s.Expand)
		for _, w := range byNode[node] {
			if w.ExclusiveNode {
				l.Shared[w] = rest.And(s.cpusByNode[node])
			}
			rest = rest.Minus(l.Shared[w])
		}
	}
	for _, w := range wide {
		s.divide(l, rest.And(s.nodeCPUs(w)), []placement.PoolID{w}, s.Expand)
		if l.Shared[w].Empty() { // other pools have all CPUs of the nodes of w
			l.Shared[w] = free.And(s.openNodeCPUs(l, w))
		}
		rest = rest.Minus(l.Shared[w])
	}
	if rest.Empty() { // bound pools have all CPUs
		rest = free
	}
	if len(open) == 0 || open[0] != (placement.PoolID{}) {
		open = append([]placement.PoolID{{}}, open...) // there is always a default pool
	}
	s.divide(l, rest, open, s.Expand)
	s.buildReclaimed(l)
	if s.ShareUnused && !s.Expand {
		s.shareUnused(l, len(smallPools) > 0)
	}
	s.assignSmallPools(l, smallPools)
}

// shareUnused adds the CPUs that no shared pool needs to every shared pool. A pool that is bound to NUMA nodes gets
// only those of the CPUs that are on its nodes. If a pool has no containers, it needs no CPUs. But if hasSmallPools is
// set, the default pool needs its CPUs even without containers, because small pools use them.
func (s *Sizing) shareUnused(l *placement.Layout, hasSmallPools bool) {
	spare := l.Pools.Shared.Minus(l.Demand.OwnedCPUs).And(s.usableCPUs())
	for w, cpus := range l.Shared {
		if _, used := l.Demand.Needs.OfPool(w); used || hasSmallPools {
			spare = spare.Minus(cpus)
		}
	}
	for w, cpus := range l.Shared {
		more := spare
		if w.BoundToNodes {
			more = spare.And(s.nodeCPUs(w))
		}
		l.Shared[w] = cpus.Union(more)
	}
}

// isSmallPool reports whether a pool is small: its containers together request less than one CPU. The parameter milli
// is the sum of these requests in milli-CPUs. A small pool uses the CPUs of the default pool, and the default pool is
// sized as if its own containers made these requests. A pool therefore gets no CPUs of its own only because it has a
// name or is bound to nodes. A pool with an exclusive node is never a small pool; it needs its own authorization.
func isSmallPool(w placement.PoolID, milli int64) bool {
	return w != placement.PoolID{} && !w.ExclusiveNode && milli < milliOfCPU
}

// milliOfCPU is the number of milli-CPUs in one CPU.
const milliOfCPU = 1000

// assignSmallPools gives small pools the CPUs of the default pool. If a small pool is bound to NUMA nodes, it gets only
// CPUs of these nodes. They come from the first of these pools that has CPUs of the nodes: the default pool, the
// reclaimed pool, the other pools that are bound to nodes, or all shared pools without an exclusive node.
func (s *Sizing) assignSmallPools(l *placement.Layout, smallPools []placement.PoolID) {
	var bound, others topology.Set
	for o, cpus := range l.Shared {
		if others = others.Union(cpus); o.BoundToNodes && !o.ExclusiveNode {
			bound = bound.Union(cpus)
		}
	}
	for o, cpus := range l.Shared {
		if o.ExclusiveNode {
			others = others.Minus(cpus)
		}
	}
	left := l.Reclaimed.Minus(l.Demand.OwnedCPUs)
	for _, w := range smallPools {
		cpus := l.Shared[placement.PoolID{}]
		near := cpus
		if s.ShareUnused && !s.Expand { // all pools may use unused CPUs
			near = near.Union(left)
		}
		for _, from := range []topology.Set{near, left, bound, others} {
			if at := from.And(s.openNodeCPUs(l, w)); !at.Empty() {
				cpus = at
				break
			}
		}
		l.Shared[w] = cpus
	}
}

// poolNeed returns the sum of the requests of a pool's containers, in milli-CPUs. The sum of the default pool
// includes the requests in small pools.
func poolNeed(l *placement.Layout, w placement.PoolID) int64 {
	of, _ := l.Demand.Needs.OfPool(w)
	sum := of.MilliCPUs
	if w != (placement.PoolID{}) {
		return sum
	}
	for small, milli := range l.Demand.Needs.All() {
		if isSmallPool(small, milli) {
			sum += milli
		}
	}
	return sum
}

// buildReclaimed builds the reclaimed pool from the CPUs that no shared pool took.
func (s *Sizing) buildReclaimed(l *placement.Layout) {
	free := l.Pools.Reclaimed.Minus(l.Demand.OwnedCPUs).And(s.usableCPUs())
	left := free
	for w := range l.Shared {
		left = left.Minus(l.Shared[w])
	}
	// If too few CPUs are left, the reclaimed pool also uses CPUs of shared pools, which keep these CPUs. It first uses
	// the CPUs that the default pool took last.
	for n := 1; left.Len() < s.MinReclaimed && n <= len(s.cpuOrder) && !free.Minus(left).Empty(); n++ {
		left = left.Union(s.lastCPUs(l, free.Minus(left), 1))
	}
	l.Reclaimed = left.Union(l.Demand.LentCPUs.And(l.Pools.Reclaimed))
	for node, cpus := range s.cpusByNode {
		if at := free.And(cpus); l.Reclaimed.And(cpus).Empty() && !at.Empty() && !isExclusiveNode(l, node) {
			l.ReclaimedNear = l.ReclaimedNear.Union(s.lastCPUs(l, at, max(s.MinReclaimed, 1)))
		}
	}
}

// lastCPUs returns up to n of the given CPUs. If the default pool has some of them, lastCPUs returns the CPUs that the
// default pool took last. Otherwise it returns the CPUs at the end of the order in which pools take CPUs.
func (s *Sizing) lastCPUs(l *placement.Layout, cpus topology.Set, n int) topology.Set {
	if both := cpus.And(l.Shared[placement.PoolID{}]); !both.Empty() {
		cpus = both
	}
	return s.firstCPUs(cpus, -n)
}

// isExclusiveNode reports whether a pool has a NUMA node exclusively.
func isExclusiveNode(l *placement.Layout, node int) bool {
	for w := range l.Demand.Needs.All() {
		if w.ExclusiveNode && w.Node == node {
			return true
		}
	}
	return false
}

// divide divides CPUs among pools by the needs of the pools. If there are fewer CPUs than pools, each pool gets all
// CPUs.
func (s *Sizing) divide(l *placement.Layout, cpus topology.Set, pools []placement.PoolID, expand bool) {
	needs := make([]int, len(pools))
	for i, w := range pools {
		needs[i] = max(1, int(min((poolNeed(l, w)+milliOfCPU-1)/milliOfCPU, topology.MaxCPUs)))
	}
	sizes, fits := Sizes(needs, cpus.Len(), expand)
	if !fits {
		for _, w := range pools {
			l.Shared[w] = cpus
		}
		return
	}
	for i, w := range pools {
		n := -sizes[i]
		if w.Name == "" {
			n = sizes[i]
		}
		l.Shared[w] = s.firstCPUs(cpus, n)
		cpus = cpus.Minus(l.Shared[w])
	}
}

// Sizes divides a number of CPUs among pools by their needs, which are all above 0. If enough CPUs are available,
// each pool gets the CPUs that it needs. Otherwise, or with expand, each pool gets a share of all CPUs that is
// proportional to its need, and at least one CPU. ok is false if there are fewer CPUs than pools. The algorithm is
// that of Katalyst 0.5 (cpu region regulatePoolSizes).
func Sizes(needs []int, available int, expand bool) (sizes []int, ok bool) {
	sum := 0
	for _, n := range needs {
		sum += n
	}
	if available < len(needs) {
		return nil, false
	}
	if sum <= available && !expand || sum == 0 {
		return slices.Clone(needs), true
	}
	sizes, total := make([]int, len(needs)), 0
	for i, n := range needs {
		sizes[i] = (n*available + sum - 1) / sum
		total += sizes[i]
	}
	for ; total > available; total-- {
		most := -1
		for i := range sizes {
			if sizes[i] > 1 && (most < 0 || isLargerForNeed(sizes[i], needs[i], sizes[most], needs[most])) {
				most = i
			}
		}
		sizes[most]--
	}
	return sizes, true
}

// isLargerForNeed reports whether a pool has more CPUs per needed CPU than another pool. If both have equally many, it
// reports whether the pool has more CPUs.
func isLargerForNeed(size, need, otherSize, otherNeed int) bool {
	return cmp.Or(cmp.Compare(size*otherNeed, otherSize*need), cmp.Compare(size, otherSize)) > 0
}
