package choose

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// BindWant asks for NUMA nodes that have some number of CPUs.
type BindWant struct {
	// N is the number of CPUs that must fit; From are the CPUs that may be taken.
	N    int
	From topology.Set
	// Among are the ids of the nodes to choose from; nil means all.
	Among []int
	// Count is the exact number of nodes; 0 for as few as have N CPUs.
	Count int
	// Even requires the same number of CPUs from each node.
	Even bool
	// Whole takes all CPUs of the nodes: together they must have at least N.
	Whole bool
	// Cores says how threads of a core may be divided, as in Request.
	Cores Cores
	// BySocket uses no more packages than N CPUs need.
	BySocket bool
	// PreferEmptiest prefers the nodes with the most CPUs left over.
	PreferEmptiest bool
	// Efficient, Preferences, Shared and Reserve mean the same as in Want.
	Efficient   bool
	Preferences []Preference
	Shared      topology.Set
	Reserve     []Left
	// Memory is the number of bytes that should be near the CPUs. MemoryLeft is the free memory
	// of each node, in the machine's order; nil if unknown.
	Memory     uint64
	MemoryLeft []uint64
	// Near are CPUs whose nodes are preferred to all others; NearName names what is near, for
	// users. They do not increase the number of nodes.
	Near     topology.Set
	NearName string
}

// BindError refuses a BindWant.
type BindError struct {
	Want    BindWant
	Nodes   int // candidate nodes
	Have    int // CPUs on all of them
	Largest int // CPUs on the node with the most
}

// Error says what does not fit, with numbers.
func (e *BindError) Error() string {
	w := e.Want
	how := "as few as possible"
	if w.Count > 0 {
		how = "exactly " + count(w.Count, "node")
	}
	for _, more := range []struct {
		said bool
		text string
	}{{w.Even, ", evenly"}, {w.BySocket, ", no more sockets than needed"}, {w.Cores == WholeCores, ", whole cores"}} {
		if more.said {
			how += more.text
		}
	}
	return fmt.Sprintf("no NUMA nodes have %s (%s): %d are available on %s, at most %d on one node",
		count(w.N, "CPU"), how, e.Have, count(e.Nodes, "NUMA node"), e.Largest)
}

// Bind returns the ids of the chosen nodes, ascending, and the reasons. The error is a
// *BindError.
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

// size computes how many CPUs each node has. It returns the error for a search without result.
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

// find computes which nodes are near, and how much memory they have left.
func (s *nodeSearch) find(w *BindWant) {
	for i := range s.tree.machine.Nodes {
		if !s.tree.machine.Nodes[i].CPUs.And(w.Near).Empty() {
			s.near |= 1 << i
		}
	}
	s.memory = s.tree.needOf(w.Memory, w.MemoryLeft)
}

// packagesFor returns how many packages n CPUs need.
func (s *nodeSearch) packagesFor(n int) int {
	largest := 1
	for _, p := range s.tree.machine.Groups(topology.PackageLevel) {
		largest = max(largest, p.Len())
	}
	return (n + largest - 1) / largest
}
