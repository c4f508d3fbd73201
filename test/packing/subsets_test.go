package packing

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// small draws a machine with few CPUs: packages, NUMA nodes (one may have only memory), L3 caches, cores of one and of
// two threads, of one kind or of two.
func small(t *testing.T, rng *rand.Rand) *topology.Machine {
	t.Helper()
	hybrid, id := rng.IntN(3) == 0, 0
	var l topology.Layout
	core, cache := 0, 0
	for pkg := range 1 + rng.IntN(2) {
		for range 1 + rng.IntN(2) {
			node := len(l.Nodes)
			l.Nodes = append(l.Nodes, topology.Node{ID: node, Memory: 8 * gib})
			for range 1 + rng.IntN(2) {
				cache++
				for range 1 + rng.IntN(2) {
					core++
					c := topology.CPU{Core: core, Package: pkg, Node: node, L3: cache, L2: core}
					n := 2
					if hybrid {
						if c.Kind = topology.PerformanceCore; rng.IntN(2) == 0 {
							c.Kind, n = topology.EfficiencyCore, 1
						}
					}
					for range min(n, 13-id) {
						c.ID = id
						l.CPUs, id = append(l.CPUs, c), id+1
					}
				}
			}
		}
	}
	if rng.IntN(3) == 0 {
		l.Nodes = append(l.Nodes, topology.Node{ID: len(l.Nodes), Memory: 8 * gib, Kind: topology.PMEM})
	}
	for i := range l.Nodes {
		for j := range l.Nodes {
			far := 10
			if i != j {
				far = 12 + 10*((i+j)%2)
			}
			l.Nodes[i].Distance = append(l.Nodes[i].Distance, far)
		}
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// drawQuestion draws a question about a used machine.
func drawQuestion(m *topology.Machine, rng *rand.Rand) *question {
	q := &question{m: m, device: -1, kept: make([]int, len(m.Nodes)), left: make([]int, len(m.Nodes))}
	for cpu := range m.Online().All() {
		switch rng.IntN(5) {
		case 0:
			q.have.Add(cpu)
		case 1:
		default:
			q.free.Add(cpu)
		}
	}
	if rng.IntN(2) == 0 {
		q.have = topology.Set{}
	}
	if rng.IntN(4) == 0 {
		q.whole, q.have = true, topology.Set{}
	}
	q.more = 1 + rng.IntN(max(1, q.free.Len()))
	for i, n := range m.Nodes {
		q.left[i] = rng.IntN(4) * mebiOfGib
		if rng.IntN(4) == 0 {
			q.kept[i] = rng.IntN(3)
		}
		if !n.CPUs.Empty() && rng.IntN(4) == 0 {
			q.device = i
		}
	}
	q.mebi = rng.IntN(5) * mebiOfGib
	return q
}

// fits returns the costs of all fits, by trying every subset of the free CPUs.
func (q *question) fits() (prices []cost) {
	free := q.free.Members()
	for mask := range uint(1) << len(free) {
		if bits.OnesCount(mask) != q.more {
			continue
		}
		var more topology.Set
		for i, cpu := range free {
			if mask&(1<<i) != 0 {
				more.Add(cpu)
			}
		}
		if q.whole && q.splits(more) > 0 || q.robs(more) {
			continue
		}
		prices = append(prices, q.price(more.Union(q.have), nil))
	}
	return prices
}

// robs reports whether a choice leaves bound pools of a NUMA node fewer CPUs than they need.
func (q *question) robs(more topology.Set) bool {
	for i, n := range q.m.Nodes {
		if taken := more.And(n.CPUs).Len(); taken > 0 && q.free.And(n.CPUs).Len()-taken < q.kept[i] {
			return true
		}
	}
	return false
}

// bySubsets computes avoidable directly from its definition.
func bySubsets(prices []cost, got cost) (worse [criteria]bool, nearest int) {
	nearest = got[memory]
	for _, p := range prices {
		atNodes := true
		for c := packages; c <= memory; c++ {
			atNodes = atNodes && p[c] <= got[c]
		}
		if !atNodes {
			continue
		}
		nearest = min(nearest, p[memory])
		for c := packages; c <= memory; c++ {
			worse[c] = worse[c] || p[c] < got[c]
		}
		for c, inside := kinds, true; c < criteria && inside; c++ {
			worse[c] = worse[c] || p[c] < got[c]
			inside = p[c] <= got[c]
		}
	}
	return worse, nearest
}

// TestEverySubset compares avoidable with a search through all subsets of CPUs, on small used machines, for good and
// bad choices.
func TestEverySubset(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(17, 1))
	var seen [criteria]int
	for range 120 {
		m := small(t, rng)
		q := drawQuestion(m, rng)
		prices := q.fits()
		for range 4 {
			free := q.free.Members()
			rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
			if len(free) < q.more {
				break
			}
			got := q.price(topology.SetOf(free[:q.more]...).Union(q.have), nil)
			worse, nearest := q.avoidable(got)
			want, least := bySubsets(prices, got)
			if worse != want || nearest != least {
				t.Fatalf("%d of %s beside %s, whole %v, kept %v, at a cost of %v: avoidable %v, at best %d; all subsets say %v, %d",
					q.more, m.Format(q.free), m.Format(q.have), q.whole, q.kept, got, worse, nearest, want, least)
			}
			for c, yes := range worse {
				if yes {
					seen[c]++
				}
			}
		}
	}
	for c, n := range seen {
		if n == 0 {
			t.Errorf("no choice had an avoidable %s: the test needs some", criterionNames[c])
		}
	}
}
