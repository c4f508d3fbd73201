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
// Pools take CPUs in a fixed order, whole cores in turn from each NUMA node. Pools bound to one
// node come first, on their node, and then those bound to several. Then the default pool takes
// CPUs from the front of the order, and named pools from the back, sorted by name. The
// remaining CPUs are the reclaimed pool. So a growing pool keeps its CPUs, and CPUs in the
// middle can become owned without moving a pool. Pools that request less than one CPU use the
// default pool's (isGuest).
type Sizing struct {
	order []int
	nodes map[int]topology.Set
	// Expand lets shared pools grow over all CPUs without an owner; the reclaimed pool then
	// overlaps with them.
	Expand bool
	// ShareUnused lets all shared pools use CPUs that none of them needs, together with the
	// reclaimed pool. It has no effect with Expand.
	ShareUnused bool
	// MinReclaimed is the minimum number of CPUs of the reclaimed pool. If fewer are left over,
	// it overlaps with the default pool.
	MinReclaimed int
}

// NewSizing returns the sizing of a machine's pools. Isolated CPUs (isolcpus) belong to no
// pool, unless all CPUs are isolated.
func NewSizing(m *topology.Machine) *Sizing {
	s := &Sizing{nodes: map[int]topology.Set{}, MinReclaimed: 1}
	queues := make([][]topology.Set, len(m.Nodes))
	for i, n := range m.Nodes {
		s.nodes[n.ID] = n.CPUs
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
	s.order = slices.DeleteFunc(slices.Clone(all), func(cpu int) bool { return m.CPUs[cpu].Isolated })
	if len(s.order) == 0 {
		s.order = all
	}
	return s
}

// first returns up to n CPUs of a set in the order in which pools take them, or, if n is
// negative, in the opposite order.
func (s *Sizing) first(from topology.Set, n int) topology.Set {
	var out topology.Set
	for i := range s.order {
		cpu := s.order[i]
		if n < 0 {
			cpu = s.order[len(s.order)-1-i]
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

// on returns the CPUs of the NUMA nodes to which a pool is bound.
func (s *Sizing) on(w placement.Which) (cpus topology.Set) {
	for _, id := range w.On() {
		cpus = cpus.Union(s.nodes[id])
	}
	return cpus
}

// open returns the given NUMA nodes without the nodes that other pools have exclusively; all
// nodes if other pools have all of them.
func (s *Sizing) open(l *placement.Layout, w placement.Which) (cpus topology.Set) {
	for _, id := range w.On() {
		if !isExclusiveNode(l, id) {
			cpus = cpus.Union(s.nodes[id])
		}
	}
	if cpus.Empty() {
		return s.on(w)
	}
	return cpus
}

func (s *Sizing) usable() topology.Set { return topology.SetOf(s.order...) }

// lay makes the layout for a demand.
func (s *Sizing) lay(p *placement.Pools, d placement.Demand) *placement.Layout {
	l := p.Lay(d)
	s.size(l)
	return l
}

// size divides the CPUs without an owner among the pools.
func (s *Sizing) size(l *placement.Layout) {
	free := l.Pools.Shared.Minus(l.Demand.Owned).And(s.usable())
	l.Shared = make(map[placement.Which]topology.Set, len(l.Demand.Needs)+1)
	rest := free
	var open, wide, guests []placement.Which // pools that are unbound, bound to several nodes, and without CPUs of their own
	byNode := map[int][]placement.Which{}
	for w, milli := range l.Demand.Needs.All() {
		if isGuest(w, milli) {
			guests = append(guests, w)
		} else if w.Nodes != "" {
			wide = append(wide, w)
		} else if w.Bound {
			byNode[w.Node] = append(byNode[w.Node], w)
		} else {
			open = append(open, w)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		s.divide(l, rest.And(s.nodes[node]), byNode[node], s.Expand)
		for _, w := range byNode[node] {
			if w.ExclusiveNode {
				l.Shared[w] = rest.And(s.nodes[node])
			}
			rest = rest.Minus(l.Shared[w])
		}
	}
	for _, w := range wide {
		s.divide(l, rest.And(s.on(w)), []placement.Which{w}, s.Expand)
		if l.Shared[w].Empty() { // other pools have all CPUs of the node
			l.Shared[w] = free.And(s.open(l, w))
		}
		rest = rest.Minus(l.Shared[w])
	}
	if rest.Empty() { // bound pools have all CPUs
		rest = free
	}
	if len(open) == 0 || open[0] != (placement.Which{}) {
		open = append([]placement.Which{{}}, open...) // there is always a default pool
	}
	s.divide(l, rest, open, s.Expand)
	s.leave(l)
	if s.ShareUnused && !s.Expand {
		s.share(l, len(guests) > 0)
	}
	s.assignGuests(l, guests)
}

// share lets shared pools use CPUs that none of them needs, a bound pool only on its node. A
// default pool without containers needs none.
func (s *Sizing) share(l *placement.Layout, guests bool) {
	spare := l.Pools.Shared.Minus(l.Demand.Owned).And(s.usable())
	for w, cpus := range l.Shared {
		if _, used := l.Demand.Needs.Of(w); used || guests {
			spare = spare.Minus(cpus)
		}
	}
	for w, cpus := range l.Shared {
		more := spare
		if w.Bound {
			more = spare.And(s.on(w))
		}
		l.Shared[w] = cpus.Union(more)
	}
}

// isGuest reports whether a pool is a guest of the default pool: its containers request less
// than one CPU, given in milli-CPUs, so it takes none from others. Its requests count in the
// default pool, as they would without a name or a binding. So a name or a binding alone never
// gives a pool CPUs that its containers do not request. A pool with an exclusive node is never a
// guest; it needs its own authorization.
func isGuest(w placement.Which, milli int64) bool {
	return w != placement.Which{} && !w.ExclusiveNode && milli < milliOfCPU
}

const milliOfCPU = 1000

// assignGuests gives guests the CPUs of the default pool. A guest that is bound to a node gets
// the default pool's CPUs on its node. If there are none, it gets the unused CPUs of the node,
// then the CPUs of the pools that are bound to the node, then all other CPUs.
func (s *Sizing) assignGuests(l *placement.Layout, guests []placement.Which) {
	var bound, others topology.Set
	for o, cpus := range l.Shared {
		if others = others.Union(cpus); o.Bound && !o.ExclusiveNode {
			bound = bound.Union(cpus)
		}
	}
	for o, cpus := range l.Shared {
		if o.ExclusiveNode {
			others = others.Minus(cpus)
		}
	}
	left := l.Reclaimed.Minus(l.Demand.Owned)
	for _, w := range guests {
		cpus := l.Shared[placement.Which{}]
		near := cpus
		if s.ShareUnused && !s.Expand { // all pools may use what is left
			near = near.Union(left)
		}
		for _, from := range []topology.Set{near, left, bound, others} {
			if at := from.And(s.open(l, w)); !at.Empty() {
				cpus = at
				break
			}
		}
		l.Shared[w] = cpus
	}
}

// need returns what a pool's containers request, in milli-CPUs. The default pool's need
// includes its guests.
func need(l *placement.Layout, w placement.Which) int64 {
	of, _ := l.Demand.Needs.Of(w)
	sum := of.Milli
	if w != (placement.Which{}) {
		return sum
	}
	for guest, milli := range l.Demand.Needs.All() {
		if isGuest(guest, milli) {
			sum += milli
		}
	}
	return sum
}

// leave builds the reclaimed pool from the CPUs that no shared pool took.
func (s *Sizing) leave(l *placement.Layout) {
	free := l.Pools.Reclaimed.Minus(l.Demand.Owned).And(s.usable())
	left := free
	for w := range l.Shared {
		left = left.Minus(l.Shared[w])
	}
	// The back of the default pool is used last.
	for n := 1; left.Len() < s.MinReclaimed && n <= len(s.order) && !free.Minus(left).Empty(); n++ {
		left = left.Union(s.last(l, free.Minus(left), 1))
	}
	l.Reclaimed = left.Union(l.Demand.Lent.And(l.Pools.Reclaimed))
	for node, cpus := range s.nodes {
		if at := free.And(cpus); l.Reclaimed.And(cpus).Empty() && !at.Empty() && !isExclusiveNode(l, node) {
			l.ReclaimedNear = l.ReclaimedNear.Union(s.last(l, at, max(s.MinReclaimed, 1)))
		}
	}
}

// last returns up to n CPUs of shared pools, beginning with the last CPUs of the default pool.
func (s *Sizing) last(l *placement.Layout, from topology.Set, n int) topology.Set {
	if both := from.And(l.Shared[placement.Which{}]); !both.Empty() {
		from = both
	}
	return s.first(from, -n)
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

// divide gives each pool its part of some CPUs.
func (s *Sizing) divide(l *placement.Layout, from topology.Set, pools []placement.Which, expand bool) {
	needs := make([]int, len(pools))
	for i, w := range pools {
		needs[i] = max(1, int(min((need(l, w)+milliOfCPU-1)/milliOfCPU, topology.MaxCPUs)))
	}
	sizes, fits := Sizes(needs, from.Len(), expand)
	if !fits {
		for _, w := range pools {
			l.Shared[w] = from
		}
		return
	}
	for i, w := range pools {
		n := -sizes[i]
		if w.Name == "" {
			n = sizes[i]
		}
		l.Shared[w] = s.first(from, n)
		from = from.Minus(l.Shared[w])
	}
}

// Sizes divides a number of CPUs among pools by their needs, which are all above 0. Each pool
// gets what it needs if that fits, or a proportional part of all CPUs if pools expand. If it
// does not fit, the parts are proportional, with at least one CPU each. ok is false if there
// are fewer CPUs than pools (Katalyst 0.5, cpu region regulatePoolSizes).
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
			if sizes[i] > 1 && (most < 0 || moreCPUs(sizes[i], needs[i], sizes[most], needs[most])) {
				most = i
			}
		}
		sizes[most]--
	}
	return sizes, true
}

// moreCPUs reports whether a pool has more CPUs in relation to its need than another pool.
// If the relations are equal, the larger pool counts as more generous.
func moreCPUs(size, need, otherSize, otherNeed int) bool {
	return cmp.Or(cmp.Compare(size*otherNeed, otherSize*need), cmp.Compare(size, otherSize)) > 0
}
