package packing

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// cost is the cost of a choice of CPUs by criterion; less is better.
type cost [criteria]int

// The criteria. Those before kinds compare NUMA nodes. A criterion matters only among choices that are equal in all
// earlier ones.
const (
	packages = iota
	nodes
	device // 1 where no CPU is at the NUMA node of the owner's card
	memory // MiB times the distance from the owner's nearest CPU, less the least
	kinds  // of cores
	caches // L3
	split  // cores of which a part is taken
	criteria
)

// question is a request to an allocator with the free resources at that moment.
type question struct {
	m *topology.Machine
	// free are the CPUs without an owner; have are the CPUs that the owner keeps.
	free, have topology.Set
	// more is the number of CPUs to add to these.
	more int
	// whole: only whole cores may be taken
	whole bool
	// device is the NUMA node of the owner's card, by index; -1 for none.
	device int
	// mebi is the memory that the owner gets now, left the free memory of each node, by index
	mebi int
	left []int
	// kept is the number of CPUs of each node that pools bound to it need. A fit leaves them free.
	kept []int

	offers map[offerKey]*offer
}

// price returns the cost of a choice. reach has the NUMA nodes on which its memory may be, by index; nil for all.
func (q *question) price(cpus topology.Set, reach []bool) cost {
	c := cost{
		packages: q.m.CountGroups(topology.PackageLevel, cpus), nodes: bits.OnesCount(uint(q.touched(cpus))),
		caches: q.m.CountGroups(topology.L3Level, cpus), split: q.splits(cpus),
	}
	for k := topology.PlainCore; k <= topology.EfficiencyCore; k++ {
		if !cpus.And(q.m.CPUsOfKind(k)).Empty() {
			c[kinds]++
		}
	}
	c[device] = q.missed(q.touched(cpus))
	c[memory] = spill(q.fill(q.touched(cpus), reach))
	return c
}

// touched returns the NUMA nodes of CPUs, one bit for each.
func (q *question) touched(cpus topology.Set) int {
	mask := 0
	for i := range q.m.Nodes {
		if !q.m.Nodes[i].CPUs.And(cpus).Empty() {
			mask |= 1 << i
		}
	}
	return mask
}

func (q *question) missed(mask int) int {
	if q.device >= 0 && mask&(1<<q.device) == 0 {
		return 1
	}
	return 0
}

// splits counts the cores of which only some threads are taken.
func (q *question) splits(cpus topology.Set) int {
	n := 0
	for left := cpus; !left.Empty(); {
		core := q.m.Groups(topology.CoreLevel)[q.m.GroupOf(topology.CoreLevel, left.First())]
		if !cpus.Contains(core) {
			n++
		}
		left = left.Minus(core)
	}
	return n
}

// part is memory of one NUMA node.
type part struct{ node, mebi, far int }

// fill places the owner's memory as the kernel would: evenly on the NUMA nodes of its CPUs while they have free memory,
// and the rest on the nearest other nodes. Memory that fits nowhere counts as placed on the farthest node.
func (q *question) fill(mask int, reach []bool) (parts []part) {
	rest, all := q.mebi, make([]part, 0, len(q.m.Nodes))
	for i, left := range q.left {
		if left > 0 && (reach == nil || reach[i]) {
			all = append(all, part{i, left, q.distance(mask, i)})
		}
	}
	// Of equally near nodes the fullest comes first: the others share what it cannot hold.
	slices.SortFunc(all, func(a, b part) int { return cmp.Or(a.far-b.far, a.mebi-b.mebi, a.node-b.node) })
	for i, p := range all {
		alike := 0
		for _, o := range all[i:] {
			if o.far == p.far {
				alike++
			}
		}
		if p.mebi = min(p.mebi, (rest+alike-1)/alike); p.mebi > 0 {
			rest -= p.mebi
			parts = append(parts, p)
		}
	}
	if rest > 0 {
		parts = append(parts, part{-1, rest, q.farthest()})
	}
	return parts
}

// distance returns the distance from a node to the nearest of others.
func (q *question) distance(mask, node int) int {
	near := math.MaxInt
	for i := range q.m.Nodes {
		if mask&(1<<i) != 0 {
			near = min(near, q.m.Distance(i, node))
		}
	}
	return near
}

func (q *question) farthest() int {
	far := 0
	for i := range q.m.Nodes {
		for j := range q.m.Nodes {
			far = max(far, q.m.Distance(i, j))
		}
	}
	return far
}

// spill returns the cost of memory beyond that of all memory at distance 10.
func spill(parts []part) int {
	sum := 0
	for _, p := range parts {
		sum += p.mebi * (p.far - 10)
	}
	return sum
}

// avoidable returns the criteria by which a choice was worse than necessary: there was a fit that is better by that
// criterion and not worse by any wider one. For a criterion of NUMA nodes, that fit is not worse by any other such
// criterion. nearest is the least memory cost of fits that are not worse by another criterion of NUMA nodes.
//
// It tries all sets of NUMA nodes that can hold the CPUs, each node with at least one, with all sets of kinds of cores.
// A fit has exactly what is possible in one such set, so nothing is estimated. TestEverySubset compares the answers
// with a search through all subsets of CPUs.
func (q *question) avoidable(got cost) (worse [criteria]bool, nearest int) {
	nearest = got[memory]
	base := q.touched(q.have)
	for mask := 1; mask < 1<<len(q.m.Nodes); mask++ {
		if mask&base != base || bits.OnesCount(uint(mask)) > got[nodes] || q.missed(mask) > got[device] {
			continue
		}
		far := spill(q.fill(mask, nil))
		if far > got[memory] {
			continue
		}
		for _, of := range q.kindSets(got[kinds]) {
			f := q.among(mask, of)
			if f == nil || f.cost[packages] > got[packages] {
				continue
			}
			f.cost[memory] = far
			if f.charge(got, &worse) {
				nearest = min(nearest, far)
			}
		}
	}
	return worse, nearest
}

// charge notes the criteria by which a fit is better than the choice, if it is not worse by the criteria of NUMA nodes.
// It reports whether there is such a fit.
func (f *fit) charge(got cost, worse *[criteria]bool) bool {
	there := false
	for n, least := range f.best() {
		if least == impossible {
			continue
		}
		there = true
		worse[caches] = worse[caches] || n < got[caches]
		worse[split] = worse[split] || n <= got[caches] && least < got[split]
	}
	for c := packages; there && c <= kinds; c++ {
		worse[c] = worse[c] || f.cost[c] < got[c]
	}
	return there
}

// kindSets returns the CPUs of each set of at most that many kinds of cores that includes the CPUs that the owner
// keeps.
func (q *question) kindSets(most int) []kindSet {
	var out []kindSet
	for mask := 1; mask < 8; mask++ {
		var cpus topology.Set
		n, empty := 0, false
		for k := topology.PlainCore; k <= topology.EfficiencyCore; k++ {
			if mask&(1<<k) != 0 {
				of := q.m.CPUsOfKind(k)
				n, empty, cpus = n+1, empty || of.Empty(), cpus.Union(of)
			}
		}
		if n <= most && !empty && cpus.Contains(q.have) {
			out = append(out, kindSet{cpus, n})
		}
	}
	return out
}

type kindSet struct {
	cpus topology.Set
	n    int
}
