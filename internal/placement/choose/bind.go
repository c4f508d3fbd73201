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
	// Whole says that all there is on the nodes is taken: N is what it has to come to.
	Whole bool
	// Cores says how threads may be divided, as for Want.
	Cores Cores
	// BySocket spans no more packages than N CPUs need.
	BySocket bool
	// Roomy prefers the nodes with the most left over.
	Roomy bool
	// Efficient, Preferences, Shared and Leave are as for Want: what is then chosen on the nodes keeps
	// to them.
	Efficient   bool
	Preferences []Preference
	Shared      topology.Set
	Leave       []Left
	// Memory is how many bytes are to be near the CPUs, MemoryLeft how many are left of
	// each node of the machine, in its order; nil where that is not known.
	Memory     uint64
	MemoryLeft []uint64
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

// maxSets is how many sets of nodes are looked at one by one. Where there are
// more, each node is tried as the first, and the nearest are added to it.
const maxSets = 5000

// Bind chooses NUMA nodes. It returns their ids, ascending, and what decided.
// The error is a *BindError.
func (t *Tree) Bind(w BindWant) (ids []int, why []Reason, err error) {
	room, _ := t.spare.Get().(*scratch)
	if room == nil {
		room = &scratch{}
	}
	defer t.spare.Put(room)
	w.From = w.From.And(t.machine.Online())
	s := nodeSearch{tree: t, want: w, holds: make([]int, len(t.machine.Nodes)), picker: picker{tree: t, scratch: room, want: Want{
		N: w.N, From: w.From, Cores: w.Cores, Roomy: w.Roomy, Efficient: w.Efficient, Preferences: w.Preferences, Shared: w.Shared, Leave: w.Leave,
	}}}
	p := &s.picker
	p.leaves(w.From)
	e := &BindError{Want: w}
	for i, n := range t.machine.Nodes {
		if w.Among != nil && !slices.Contains(w.Among, n.ID) {
			continue
		}
		if s.holds[i] = p.reduced(i, p.usable(w.From.And(n.CPUs)).Len()); s.holds[i] > 0 {
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
		if best, why := s.best(k); why.Of > 0 {
			for _, i := range best.nodes {
				ids = append(ids, t.machine.Nodes[i].ID)
			}
			return ids, []Reason{why}, nil
		}
	}
	return nil, nil, e
}

type nodeSearch struct {
	tree  *Tree
	want  BindWant
	holds []int // by node
	from  []int // nodes that hold anything
	// picker says what CPUs of the nodes would cost.
	picker picker
}

// best returns the best set of k nodes that holds what is wanted, and why it is that one.
func (s *nodeSearch) best(k int) (best nodeSet, why Reason) {
	var all []nodeSet
	for _, nodes := range s.sets(k) {
		if c, ok := s.measure(nodes); ok {
			all = append(all, c)
		}
	}
	if all = s.price(all, k); len(all) == 0 {
		return best, why
	}
	best = all[0]
	for _, c := range all[1:] {
		if yes, _ := c.before(&best); yes {
			best = c
		}
	}
	why = Reason{Step: Bound, Of: len(all), Left: k, Level: topology.NodeLevel}
	for i := range all {
		if &all[i].nodes[0] == &best.nodes[0] {
			continue
		}
		_, by := best.before(&all[i])
		id := -1
		if k == 1 {
			id = s.tree.machine.Nodes[all[i].nodes[0]].ID
		}
		why.against(int(by), s.rule(by), id)
	}
	return best, why
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
			c.rank[mostNodesNear]--
		}
		for _, other := range nodes[:i] {
			c.rank[shortestBetween] += int64(m.Distance(other, at))
		}
	}
	c.left -= w.N
	packages := m.Count(topology.PackageLevel, all)
	c.rank[fewestPackages] = int64(packages)
	if c.left < 0 || w.BySocket && packages > s.packagesFor(w.N) {
		return c, false
	}
	c.rank[nearestMemory] = s.farMemory(nodes)
	c.order(w.Roomy)
	return c, true
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
