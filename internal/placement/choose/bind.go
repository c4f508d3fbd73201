package choose

import (
	"fmt"
	"math/bits"
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
	PreferEmptiest bool
	// Efficient, Preferences, Shared and Leave are as for Want: what is then chosen on the nodes keeps
	// to them.
	Efficient   bool
	Preferences []Preference
	Shared      topology.Set
	Reserve     []Left
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

// Bind chooses NUMA nodes. It returns their ids, ascending, and what decided.
// The error is a *BindError.
func (t *Tree) Bind(w BindWant) (ids []int, why []Reason, err error) {
	room, _ := t.spare.Get().(*scratch)
	if room == nil {
		room = &scratch{}
	}
	defer t.spare.Put(room)
	w.From = w.From.And(t.machine.Online())
	s := nodeSearch{tree: t, want: &w, sets: room.sets, worse: room.worse, picker: picker{tree: t, scratch: room, want: Want{
		N: w.N, From: w.From, Cores: w.Cores, PreferEmptiest: w.PreferEmptiest, Efficient: w.Efficient, Preferences: w.Preferences, Shared: w.Shared, Reserve: w.Reserve,
	}}}
	defer func() { room.sets, room.worse = s.sets, s.worse }()
	e := s.size()
	if w.N <= 0 || e.Have < w.N || w.Count > e.Nodes {
		return nil, nil, e
	}
	least, most := 1, e.Nodes
	if w.Count > 0 {
		least, most = w.Count, w.Count
	}
	for k := least; k <= most; k++ {
		if s.search(k); len(s.sets) == 0 {
			continue
		}
		best, reason := s.decide()
		for b := best.nodes; b != 0; b &= b - 1 {
			ids = append(ids, t.machine.Nodes[bits.TrailingZeros64(b)].ID)
		}
		return ids, []Reason{reason}, nil
	}
	return nil, nil, e
}

// size works out what each node holds, once for all sets. It returns the refusal that would
// say so.
func (s *nodeSearch) size() *BindError {
	w, p, e := s.want, &s.picker, &BindError{Want: *s.want}
	p.leaves(w.From)
	s.find(w)
	for i := range p.tree.machine.Nodes {
		n := &p.tree.machine.Nodes[i]
		if w.Among != nil && !slices.Contains(w.Among, n.ID) {
			continue
		}
		holds := p.reduced(i, p.usable(w.From.And(n.CPUs)).Len())
		if holds <= 0 {
			continue
		}
		s.holds[i] = holds
		s.from[e.Nodes] = i
		e.Nodes, e.Have, e.Largest = e.Nodes+1, e.Have+holds, max(e.Largest, holds)
	}
	s.nodes = e.Nodes
	if w.BySocket {
		s.packages = s.packagesFor(w.N)
	}
	return e
}

// find notes which nodes are near what is to be near, and what is left of their memory.
func (s *nodeSearch) find(w *BindWant) {
	for i := range s.tree.machine.Nodes {
		if !s.tree.machine.Nodes[i].CPUs.And(w.Near).Empty() {
			s.near |= 1 << i
		}
	}
	s.memory = s.tree.needOf(w.Memory, w.MemoryLeft)
}

// packagesFor is how many packages n CPUs need.
func (s *nodeSearch) packagesFor(n int) int {
	largest := 1
	for _, p := range s.tree.machine.Groups(topology.PackageLevel) {
		largest = max(largest, p.Len())
	}
	return (n + largest - 1) / largest
}
