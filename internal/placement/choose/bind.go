package choose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// BindWant is a question for NUMA nodes that hold some CPUs.
type BindWant struct {
	// N is how many CPUs must fit, From what may be taken.
	N    int
	From topology.Set
	// Among are the ids of the nodes to choose from; nil means all.
	Among []int
	// Count is exactly how many nodes, 0 for as few as hold N.
	Count int
	// Even demands that each node gives equally many.
	Even bool
	// Cores says how threads may be divided, as for Want.
	Cores Cores
	// BySocket spans no more packages than N CPUs need.
	BySocket bool
	// Roomy prefers the nodes with the most left over.
	Roomy bool
	// Near are CPUs whose nodes are preferred to all others, NearName says what is
	// near, for people. It does not make the choice take more nodes.
	Near     topology.Set
	NearName string
}

// BindError refuses a question for NUMA nodes.
type BindError struct {
	Want    BindWant
	Nodes   int // to choose from
	Have    int // CPUs on all of them
	Largest int // CPUs on the one with the most
}

// Error says what does not fit, with numbers.
func (e *BindError) Error() string {
	w := e.Want
	how := "as few as it takes"
	if w.Count > 0 {
		how = "exactly " + count(w.Count, "node")
	}
	for _, more := range []struct {
		said bool
		text string
	}{{w.Even, ", evenly"}, {w.BySocket, ", no more packages than needed"}, {w.Cores == WholeCores, ", whole cores"}} {
		if more.said {
			how += more.text
		}
	}
	return fmt.Sprintf("no NUMA nodes hold %s (%s): there are %d on %s to choose from, at most %d on one",
		count(w.N, "CPU"), how, e.Have, count(e.Nodes, "NUMA node"), e.Largest)
}

// nodeSet is a choice of nodes, by index, ascending.
type nodeSet struct {
	nodes    []int
	packages int
	way      int // sum of the distances between all of them
	left     int
	near     int // of them with CPUs that are to be near
}

// mostNear is the criterion of what is to be near; NearName says what that is.
const mostNear = "the most nodes near "

// nodeRanking lists the criteria by which sets of equally many nodes are told
// apart, the most important first; where none does, the lowest nodes win.
var nodeRanking = [...]struct {
	name    string
	compare func(w *BindWant, a, b *nodeSet) int
}{
	{mostNear, func(_ *BindWant, a, b *nodeSet) int { return b.near - a.near }},
	{"the fewest packages", func(_ *BindWant, a, b *nodeSet) int { return a.packages - b.packages }},
	{"the shortest way between them", func(_ *BindWant, a, b *nodeSet) int { return a.way - b.way }},
	{"the most left over", func(w *BindWant, a, b *nodeSet) int {
		if !w.Roomy {
			return 0
		}
		return b.left - a.left
	}},
	{"the least left over", func(w *BindWant, a, b *nodeSet) int {
		if w.Roomy {
			return 0
		}
		return a.left - b.left
	}},
}

// maxSets is how many sets of nodes are looked at one by one. Where there are
// more, each node is tried as the first, and the nearest are added to it.
const maxSets = 5000

// Bind chooses NUMA nodes. It returns their ids, ascending, and what decided.
// The error is a *BindError.
func (t *Tree) Bind(w BindWant) (ids []int, why []Reason, err error) {
	s := nodeSearch{tree: t, want: w, holds: make([]int, len(t.machine.Nodes))}
	p := picker{tree: t, want: Want{Cores: w.Cores}}
	e := &BindError{Want: w}
	for i, n := range t.machine.Nodes {
		if w.Among != nil && !slices.Contains(w.Among, n.ID) {
			continue
		}
		if s.holds[i] = p.usable(w.From.And(n.CPUs)).Len(); s.holds[i] > 0 {
			s.from = append(s.from, i)
			e.Have, e.Largest = e.Have+s.holds[i], max(e.Largest, s.holds[i])
		}
	}
	e.Nodes = len(s.from)
	if w.N <= 0 || e.Have < w.N || w.Count > len(s.from) {
		return nil, nil, e
	}
	least, most := 1, len(s.from)
	if w.Count > 0 {
		least, most = w.Count, w.Count
	}
	for k := least; k <= most; k++ {
		if best, rule, of := s.best(k); of > 0 {
			for _, i := range best.nodes {
				ids = append(ids, t.machine.Nodes[i].ID)
			}
			return ids, []Reason{{Step: Bound, Rule: rule, Of: of, Left: k}}, nil
		}
	}
	return nil, nil, e
}

type nodeSearch struct {
	tree  *Tree
	want  BindWant
	holds []int // by node
	from  []int // nodes that hold anything
}

// best returns the best set of k nodes that holds what is wanted, by what rule it
// beat the next best, and how many there were.
func (s *nodeSearch) best(k int) (best nodeSet, rule string, of int) {
	var next nodeSet
	for _, nodes := range s.sets(k) {
		c, ok := s.measure(nodes)
		if !ok {
			continue
		}
		of++
		switch {
		case of == 1:
			best = c
		case s.compare(&c, &best) < 0:
			best, next = c, best
		case of == 2 || s.compare(&c, &next) < 0:
			next = c
		}
	}
	if of > 1 {
		rule = lowestNode
		for _, r := range nodeRanking {
			if r.compare(&s.want, &best, &next) != 0 {
				if rule = r.name; rule == mostNear {
					rule += s.want.NearName
				}
				break
			}
		}
	}
	return best, rule, of
}

const lowestNode = "the lowest nodes"

func (s *nodeSearch) compare(a, b *nodeSet) int {
	for _, r := range nodeRanking {
		if c := r.compare(&s.want, a, b); c != 0 {
			return c
		}
	}
	return slices.Compare(a.nodes, b.nodes)
}

// measure says what a set costs, and whether it holds what is wanted.
func (s *nodeSearch) measure(nodes []int) (c nodeSet, ok bool) {
	w, m := &s.want, s.tree.machine
	c.nodes = nodes
	var all topology.Set
	unit := (&picker{tree: s.tree, want: Want{Cores: w.Cores}}).unit()
	for i, at := range nodes {
		each := w.N / len(nodes)
		if w.Even && (each*len(nodes) != w.N || each%unit != 0 || s.holds[at] < each) {
			return c, false
		}
		c.left += s.holds[at]
		all = all.Union(m.Nodes[at].CPUs)
		if !m.Nodes[at].CPUs.And(w.Near).Empty() {
			c.near++
		}
		for _, other := range nodes[:i] {
			c.way += m.Distance(other, at)
		}
	}
	c.left -= w.N
	c.packages = m.Count(topology.PackageLevel, all)
	return c, c.left >= 0 && (!w.BySocket || c.packages <= s.packagesFor(w.N))
}

// packagesFor is how many packages n CPUs need.
func (s *nodeSearch) packagesFor(n int) int {
	largest := 1
	for _, p := range s.tree.machine.Groups(topology.PackageLevel) {
		largest = max(largest, p.Len())
	}
	return (n + largest - 1) / largest
}

// sets lists the sets of k nodes that are looked at.
func (s *nodeSearch) sets(k int) [][]int {
	if combinations(len(s.from), k) > maxSets {
		return s.nearestSets(k)
	}
	var out [][]int
	at := make([]int, 0, k)
	var add func(from int)
	add = func(from int) {
		if len(at) == k {
			out = append(out, slices.Clone(at))
			return
		}
		for i := from; i <= len(s.from)-(k-len(at)); i++ {
			at = append(at, s.from[i])
			add(i + 1)
			at = at[:len(at)-1]
		}
	}
	add(0)
	return out
}

// nearestSets starts with each node and adds those nearest to all it has; of
// equally near ones those that hold the most.
func (s *nodeSearch) nearestSets(k int) [][]int {
	out := make([][]int, 0, len(s.from))
	for _, seed := range s.from {
		set := []int{seed}
		for len(set) < k {
			best, way := -1, 0
			for _, i := range s.from {
				if slices.Contains(set, i) {
					continue
				}
				far := 0
				for _, o := range set {
					far += s.tree.machine.Distance(o, i)
				}
				if best < 0 || cmp.Or(cmp.Compare(far, way), cmp.Compare(s.holds[best], s.holds[i])) < 0 {
					best, way = i, far
				}
			}
			set = append(set, best)
		}
		slices.Sort(set)
		out = append(out, set)
	}
	return out
}

// combinations is how many sets of k there are of n, as far as it matters.
func combinations(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > maxSets {
			break
		}
	}
	return c
}
