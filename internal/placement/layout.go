package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Demand is what pools depend on beside the configuration.
type Demand struct {
	// Owned are the CPUs somebody owns; Lent those of them whose owner lets
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
	pools     *Pools
	demand    Demand
	shared    map[Which]topology.Set
	reclaimed topology.Set
}

// Lay makes the layout of a demand.
func (p *Pools) Lay(d Demand) *Layout {
	pools := *p
	l := &Layout{pools: &pools, demand: d, reclaimed: p.Reclaimed.Minus(d.Owned)}
	if p.Sizing != nil {
		l.size(p.Sizing)
	}
	return l
}

// Is reports whether this is the layout of a demand on some pools.
func (l *Layout) Is(p *Pools, d Demand) bool {
	return *l.pools == *p && l.demand.Owned == d.Owned && l.demand.Lent == d.Lent && maps.Equal(l.demand.Needs, d.Needs)
}

// pool returns the CPUs of the pool a seat is in. It has no owned CPU, but for
// those lent to the reclaimed pool.
func (l *Layout) pool(s Seat) topology.Set {
	switch {
	case s.Pool == Shared && l.shared != nil:
		return l.shared[s.Which]
	case s.Pool == Reclaimed:
		return l.reclaimed
	case s.Pool == System && s.Which.Name == ReservedPool:
		return l.pools.Reserved.Minus(l.demand.Owned)
	case s.Pool == System && s.Which.Name != "":
		return l.prefixed(s.Which.Name)
	}
	return l.pools.base(s.Pool).Minus(l.demand.Owned)
}

// prefixed returns the CPUs of all shared pools whose name starts so.
func (l *Layout) prefixed(name string) topology.Set {
	var cpus topology.Set
	for w, s := range l.shared {
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
func (l *Layout) CPUs(s Seat) (cpus topology.Set, ok bool) {
	if s.Pool == Own {
		return s.Owned, true
	}
	free := l.pool(s)
	all := l.pools.base(Rest).Minus(l.demand.Owned)
	for _, try := range []topology.Set{
		bound(bound(free, s.Near), s.Within), bound(free, s.Within), bound(all, s.Within),
	} {
		if !try.Empty() {
			return try, true
		}
	}
	if all.Empty() { // only where reserved CPUs are kept from all others
		all = l.pools.Online.Minus(l.demand.Owned)
	}
	return all, false
}

// Sizing makes shared pools as large as the requests of their containers.
//
// Pools take CPUs in a fixed order, whole cores in turn from each NUMA node:
// those bound to a node first, on their node; then the default pool from the
// front and pools with names from the back, by name. What nobody took is the
// reclaimed pool's. So a pool that grows keeps what it has, and CPUs that
// somebody comes to own in the middle move nobody. Pools that request less than a
// CPU have none of their own (Which.Guest).
type Sizing struct {
	order []int
	nodes map[int]topology.Set
	// Expand lets shared pools grow over all CPUs nobody owns; the reclaimed
	// pool then overlaps with them.
	Expand bool
	// Least is how many CPUs the reclaimed pool has at least. Where fewer are
	// left over it overlaps with the default pool.
	Least int
}

// NewSizing returns the sizing of a machine's pools. CPUs the kernel's scheduler
// leaves out (isolcpus) are in no pool, unless there are no others.
func NewSizing(m *topology.Machine) *Sizing {
	s := &Sizing{nodes: map[int]topology.Set{}, Least: 1}
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

// first returns up to n CPUs of a set in the order pools take them, or, where
// n is negative, in the opposite order.
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

func (s *Sizing) usable() topology.Set { return topology.SetOf(s.order...) }

// size divides the CPUs nobody owns among the pools.
func (l *Layout) size(s *Sizing) {
	free := l.pools.Shared.Minus(l.demand.Owned).And(s.usable())
	l.shared = make(map[Which]topology.Set, len(l.demand.Needs)+1)
	rest := free
	var open, guests []Which // pools that are not bound, and that have no CPUs of their own
	byNode := map[int][]Which{}
	for _, w := range slices.SortedFunc(maps.Keys(l.demand.Needs), Which.Compare) {
		if w.Guest(l.demand.Needs[w]) {
			guests = append(guests, w)
		} else if w.Bound {
			byNode[w.Node] = append(byNode[w.Node], w)
		} else {
			open = append(open, w)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		l.divide(s, rest.And(s.nodes[node]), byNode[node], s.Expand)
		for _, w := range byNode[node] {
			if w.Alone {
				l.shared[w] = rest.And(s.nodes[node])
			}
			rest = rest.Minus(l.shared[w])
		}
	}
	if rest.Empty() { // bound pools have everything
		rest = free
	}
	if len(open) == 0 || open[0] != (Which{}) {
		open = append([]Which{{}}, open...) // there always is a default pool
	}
	l.divide(s, rest, open, s.Expand)
	l.leave(s)
	l.seatGuests(s, byNode, guests)
}

// Guest reports whether a pool, of which the containers request so many milli-CPUs, is
// a guest of the default pool: with less than a CPU it takes none from others. Its
// requests count in the default pool, as they would without a name or a bond. So names
// and bonds cost nobody a CPU that is not paid for. A pool that lets no other onto its
// node is authorised by a kind of its own.
func (w Which) Guest(milli int64) bool { return w != Which{} && !w.Alone && milli < milliOfCPU }

const milliOfCPU = 1000

// seatGuests gives guests the CPUs of the default pool: one that is bound to a node
// those on its node, else what is left there, else those of the pools there.
func (l *Layout) seatGuests(s *Sizing, byNode map[int][]Which, guests []Which) {
	for _, w := range guests {
		cpus := l.shared[Which{}]
		if w.Bound {
			var others topology.Set
			for _, o := range byNode[w.Node] {
				if !o.Alone {
					others = others.Union(l.shared[o])
				}
			}
			for _, from := range []topology.Set{cpus, l.reclaimed.Minus(l.demand.Owned), others} {
				if at := from.And(s.nodes[w.Node]); !at.Empty() {
					cpus = at
					break
				}
			}
		}
		l.shared[w] = cpus
	}
}

// need is what a pool's containers request, in milli-CPUs; of the default pool with
// those of its guests.
func (l *Layout) need(w Which) int64 {
	sum := l.demand.Needs[w]
	if w != (Which{}) {
		return sum
	}
	for guest, milli := range l.demand.Needs {
		if guest.Guest(milli) {
			sum += milli
		}
	}
	return sum
}

// leave makes the reclaimed pool of what no shared pool took.
func (l *Layout) leave(s *Sizing) {
	free := l.pools.Reclaimed.Minus(l.demand.Owned).And(s.usable())
	left := free
	for w := range l.shared {
		left = left.Minus(l.shared[w])
	}
	// The back of the default pool is the last to be missed.
	for n := 1; left.Len() < s.Least && n <= len(s.order) && !free.Minus(left).Empty(); n++ {
		both := free.And(l.shared[Which{}]).Minus(left)
		if both.Empty() {
			both = free.Minus(left)
		}
		left = left.Union(s.first(both, -1))
	}
	l.reclaimed = left.Union(l.demand.Lent.And(l.pools.Reclaimed))
}

// divide gives each pool its part of some CPUs.
func (l *Layout) divide(s *Sizing, from topology.Set, pools []Which, expand bool) {
	needs := make([]int, len(pools))
	for i, w := range pools {
		needs[i] = max(1, int(min((l.need(w)+milliOfCPU-1)/milliOfCPU, topology.MaxCPUs)))
	}
	sizes, fits := Sizes(needs, from.Len(), expand)
	if !fits {
		for _, w := range pools {
			l.shared[w] = from
		}
		return
	}
	for i, w := range pools {
		n := -sizes[i]
		if w.Name == "" {
			n = sizes[i]
		}
		l.shared[w] = s.first(from, n)
		from = from.Minus(l.shared[w])
	}
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
	return cmp.Or(flag(w.Bound)-flag(o.Bound), cmp.Compare(w.Node, o.Node), cmp.Compare(w.Name, o.Name), flag(w.Alone)-flag(o.Alone))
}

// Sizes divides a number of CPUs among pools by what each needs, all above 0:
// as much as it needs where that fits, or in the same proportion over all CPUs
// where pools expand; in proportion and at least one each where it does not fit.
// ok is false where there is not even one for each (Katalyst 0.5, cpu region
// regulatePoolSizes).
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
			if sizes[i] > 1 && (most < 0 || moreGenerous(sizes[i], needs[i], sizes[most], needs[most])) {
				most = i
			}
		}
		sizes[most]--
	}
	return sizes, true
}

// moreGenerous reports whether a pool has more for what it needs than another,
// or as much and is larger.
func moreGenerous(size, need, otherSize, otherNeed int) bool {
	return cmp.Or(cmp.Compare(size*otherNeed, otherSize*need), cmp.Compare(size, otherSize)) > 0
}
