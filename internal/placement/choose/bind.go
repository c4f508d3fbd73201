package choose

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// NodeSetRequest is a request for NUMA nodes that together have enough CPUs.
type NodeSetRequest struct {
	// N is the number of CPUs that the nodes must have together. From has the CPUs of which the caller can take N.
	N    int
	From topology.Set
	// AllowedNodes are the ids of the nodes to choose from; nil means all.
	AllowedNodes []int
	// Count is the exact number of nodes; 0 means as few nodes as possible.
	Count int
	// Even requires the same number of CPUs from each node.
	Even bool
	// WholeNodes means that the caller takes all CPUs of the chosen nodes, even if they are more than N.
	WholeNodes bool
	// Cores says whether the caller takes whole cores or single threads of cores.
	Cores CoreUse
	// FewestPackages requires that the nodes are in as few packages (sockets) as N CPUs need at least.
	FewestPackages bool
	// PreferEmptiest prefers the nodes on which the most CPUs remain free after N CPUs are taken.
	PreferEmptiest bool
	// Efficient prefers nodes with efficient cores. Preferences are further preferences for nodes with certain CPUs,
	// the most important preference first.
	Efficient   bool
	Preferences []Preference
	// Shared are CPUs of containers that can also run on other CPUs. Nodes with few Shared CPUs are preferred. Reserve
	// says how many CPUs of a node other containers need, because they cannot run on other nodes.
	Shared  topology.Set
	Reserve []NodeReserve
	// Memory is the number of bytes that should be near the CPUs. FreeMemory is the free memory of each node in bytes,
	// in the order of Machine.Nodes; nil if unknown.
	Memory     uint64
	FreeMemory []uint64
	// Near are CPUs whose nodes are preferred to all other nodes, as long as this does not increase the number of
	// nodes. NearName is the text in messages for what these CPUs are near, such as "its devices".
	Near     topology.Set
	NearName string
}

// NodeSetError is the error for a NodeSetRequest that no set of nodes can meet.
type NodeSetError struct {
	Want          NodeSetRequest
	Nodes         int // the number of nodes in AllowedNodes of which at least one CPU can be taken
	AvailableCPUs int // the number of CPUs that can be taken on all of these nodes together
	MaxOnNode     int // the largest number of CPUs that can be taken on one node
}

// Error says how many CPUs are requested, in which way, and how many are available.
func (e *NodeSetError) Error() string {
	w := e.Want
	how := "as few nodes as possible"
	if w.Count > 0 {
		how = "exactly " + formatCount(w.Count, "node")
	}
	for _, more := range []struct {
		requested bool
		text      string
	}{{w.Even, ", evenly"}, {w.FewestPackages, ", no more sockets than needed"}, {w.Cores == WholeCores, ", whole cores"}} {
		if more.requested {
			how += more.text
		}
	}
	return fmt.Sprintf("no NUMA nodes have %s (%s): %d are available on %s, at most %d on one node",
		formatCount(w.N, "CPU"), how, e.AvailableCPUs, formatCount(e.Nodes, "NUMA node"), e.MaxOnNode)
}

// ChooseNodeSet chooses NUMA nodes for a request. It returns their ids, ascending, and the reasons. The error is a
// *NodeSetError.
func (t *Tree) ChooseNodeSet(w NodeSetRequest) (ids []int, why []Reason, err error) {
	buffers, _ := t.scratchPool.Get().(*scratch)
	if buffers == nil {
		buffers = &scratch{}
	}
	defer t.scratchPool.Put(buffers)
	w.From = w.From.And(t.machine.Online())
	s := nodeSearch{tree: t, request: &w, sets: buffers.sets, losers: buffers.losers, picker: picker{tree: t, scratch: buffers, request: Request{
		N: w.N, From: w.From, Cores: w.Cores, PreferEmptiest: w.PreferEmptiest, Efficient: w.Efficient, Preferences: w.Preferences, Shared: w.Shared, Reserve: w.Reserve,
	}}}
	defer func() { buffers.sets, buffers.losers = s.sets, s.losers }()
	e := s.countCPUs()
	if w.N <= 0 || e.AvailableCPUs < w.N || w.Count > e.Nodes {
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
		best, reason := s.chooseBest()
		for b := best.nodes; b != 0; b &= b - 1 {
			ids = append(ids, t.machine.Nodes[bits.TrailingZeros64(b)].ID)
		}
		return ids, []Reason{reason}, nil
	}
	return nil, nil, e
}

// countCPUs counts, for each node in AllowedNodes, the CPUs that can be taken. It also prepares and returns the error
// with these numbers, for the case that no set of nodes has enough CPUs.
func (s *nodeSearch) countCPUs() *NodeSetError {
	w, p, e := s.request, &s.picker, &NodeSetError{Want: *s.request}
	p.computeReserve(w.From)
	s.prepareNodes(w)
	for i := range p.tree.machine.Nodes {
		n := &p.tree.machine.Nodes[i]
		if w.AllowedNodes != nil && !slices.Contains(w.AllowedNodes, n.ID) {
			continue
		}
		available := p.limitOnNode(i, p.usableCPUs(w.From.And(n.CPUs)).Len())
		if available <= 0 {
			continue
		}
		s.availableCPUs[i] = available
		s.nodesWithCPUs[e.Nodes] = i
		e.Nodes, e.AvailableCPUs, e.MaxOnNode = e.Nodes+1, e.AvailableCPUs+available, max(e.MaxOnNode, available)
	}
	s.nodeCount = e.Nodes
	if w.FewestPackages {
		s.packageLimit = s.packagesFor(w.N)
	}
	return e
}

// prepareNodes stores which nodes have CPUs of w.Near, and how much free memory nodes have.
func (s *nodeSearch) prepareNodes(w *NodeSetRequest) {
	for i := range s.tree.machine.Nodes {
		if !s.tree.machine.Nodes[i].CPUs.And(w.Near).Empty() {
			s.nearNodes |= 1 << i
		}
	}
	s.memory = s.tree.newMemoryNeed(w.Memory, w.FreeMemory)
}

// packagesFor returns the number of packages that n CPUs need at least.
func (s *nodeSearch) packagesFor(n int) int {
	largest := 1
	for _, p := range s.tree.machine.Groups(topology.PackageLevel) {
		largest = max(largest, p.Len())
	}
	return (n + largest - 1) / largest
}
