package packing

import (
	"math"
	"math/bits"

	"github.com/trimtab/trimtab/internal/topology"
)

// fit is everything that is possible on one set of NUMA nodes, with cores of some kinds.
type fit struct {
	cost  cost
	split int // of the owner's present CPUs
	more  int
	nodes []*offer
}

// offer is what one NUMA node can give: the least number of split cores, by the number of L3 caches and of CPUs. A core
// of which the owner has one thread and gets the other counts as -1.
type offer struct {
	caches, cpus int // the most of each
	least        []int
}

const impossible = math.MaxInt32

func newOffer(caches, cpus int) *offer {
	t := &offer{caches: caches, cpus: cpus, least: make([]int, (caches+1)*(cpus+1))}
	for i := range t.least {
		t.least[i] = impossible
	}
	return t
}

func (t *offer) at(caches, cpus int) *int { return &t.least[caches*(t.cpus+1)+cpus] }

// among returns what is possible on a set of NUMA nodes; nil if they have too few CPUs.
func (q *question) among(mask int, of kindSet) *fit {
	f := &fit{split: q.splits(q.have), more: q.more}
	var all topology.Set
	room := 0
	for i := range q.m.Nodes {
		if mask&(1<<i) == 0 {
			continue
		}
		t := q.offer(i, of)
		if t == nil {
			return nil
		}
		f.nodes, room = append(f.nodes, t), room+t.cpus
		all = all.Union(q.m.Nodes[i].CPUs)
	}
	if room < q.more {
		return nil
	}
	f.cost[packages], f.cost[nodes] = q.m.CountGroups(topology.PackageLevel, all), bits.OnesCount(uint(mask))
	f.cost[device], f.cost[kinds] = q.missed(mask), of.n
	return f
}

// offer returns what a NUMA node can give with cores of some kinds; nil for nothing. It is computed once per question.
func (q *question) offer(node int, of kindSet) *offer {
	key := offerKey{node, of.cpus}
	t, known := q.offers[key]
	if !known {
		t = q.newOffer(q.m.Nodes[node].CPUs, q.kept[node], of.cpus)
		if q.offers == nil {
			q.offers = map[offerKey]*offer{}
		}
		q.offers[key] = t
	}
	return t
}

type offerKey struct {
	node int
	of   topology.Set
}

func (q *question) newOffer(node topology.Set, kept int, of topology.Set) *offer {
	free, have := q.free.And(node), q.have.And(node)
	room := free.Len() - kept
	if free = free.And(of); q.whole {
		free = q.wholeCores(free)
	}
	room = max(0, min(room, free.Len(), q.more))
	if room == 0 && have.Empty() {
		return nil
	}
	var groups []cache
	owned := 0 // caches at which the owner has CPUs
	for _, g := range q.m.Groups(topology.L3Level) {
		switch c := q.cacheOf(g, free, have); {
		case g.And(node).Empty():
		case c.owned:
			groups, owned = append([]cache{c}, groups...), owned+1
		case !free.And(g).Empty():
			groups = append(groups, c)
		}
	}
	t := newOffer(len(groups), room)
	for subset := range 1 << (len(groups) - owned) {
		var sum cache
		for i, c := range groups {
			if i < owned || subset&(1<<(i-owned)) != 0 {
				sum = sum.plus(c)
			}
		}
		for n := range min(room, sum.cpus()) + 1 {
			if n == 0 && have.Empty() { // a node of the set that gives nothing
				continue
			}
			least := t.at(owned+bits.OnesCount(uint(subset)), n)
			*least = min(*least, sum.split(n, q.whole))
		}
	}
	return t
}

// wholeCores returns the CPUs of a set whose cores are in it with all threads.
func (q *question) wholeCores(of topology.Set) topology.Set {
	var out topology.Set
	for left := of; !left.Empty(); {
		core := q.m.Groups(topology.CoreLevel)[q.m.GroupOf(topology.CoreLevel, left.First())]
		if of.Contains(core) {
			out = out.Union(core)
		}
		left = left.Minus(core)
	}
	return out
}

// cache counts what is free at one or several L3 caches: cores of two threads and of one, threads whose siblings the
// owner has, and threads whose siblings another owner has.
type cache struct {
	whole, single, mine, others int
	owned                       bool // the owner has a CPU there
}

func (q *question) cacheOf(g, free, have topology.Set) cache {
	c := cache{owned: !have.And(g).Empty()}
	for left := free.And(g); !left.Empty(); {
		core := q.m.Groups(topology.CoreLevel)[q.m.GroupOf(topology.CoreLevel, left.First())]
		switch {
		case core.Len() > 2:
			panic("cores of more than two threads are not supported")
		case core.Len() == 1:
			c.single++
		case free.Contains(core):
			c.whole++
		case !have.And(core).Empty():
			c.mine++
		default:
			c.others++
		}
		left = left.Minus(core)
	}
	return c
}

func (c cache) plus(o cache) cache {
	return cache{whole: c.whole + o.whole, single: c.single + o.single, mine: c.mine + o.mine, others: c.others + o.others}
}

func (c cache) cpus() int { return 2*c.whole + c.single + c.mine + c.others }

// split returns the least number by which split cores increase if n of these CPUs are taken.
//
// A thread that completes a core of the owner reduces the number by one, so these come first: using another thread
// instead never splits fewer cores. The others cost nothing in pairs of one core or on cores of one thread, and one
// each otherwise. A core of one thread also completes an odd number. Without one, an odd number splits a core.
func (c cache) split(n int, whole bool) int {
	completed := min(c.mine, n)
	rest := n - completed
	apart := rest - 2*min(c.whole, rest/2)
	if c.single > 0 {
		apart = max(0, rest-2*c.whole-c.single)
	}
	if whole && apart > 0 {
		return impossible
	}
	return apart - completed
}

// best returns the least number of split cores over all nodes, by the number of L3 caches.
func (f *fit) best() []int {
	sum := newOffer(0, f.more)
	*sum.at(0, 0) = f.split
	for _, t := range f.nodes {
		next := newOffer(sum.caches+t.caches, f.more)
		for i := range sum.caches + 1 {
			for n := range f.more + 1 {
				if base := *sum.at(i, n); base != impossible {
					next.merge(t, i, n, base)
				}
			}
		}
		sum = next
	}
	out := make([]int, sum.caches+1)
	for i := range out {
		out[i] = *sum.at(i, f.more)
	}
	return out
}

// merge adds what one node can give to an offer of that many CPUs at that many caches.
func (t *offer) merge(node *offer, caches, cpus, base int) {
	for j := range node.caches + 1 {
		for n := range min(node.cpus, t.cpus-cpus) + 1 {
			if add := *node.at(j, n); add != impossible {
				into := t.at(caches+j, cpus+n)
				*into = min(*into, base+add)
			}
		}
	}
}
