package choose

import (
	"math/bits"

	"github.com/trimtab/trimtab/internal/topology"
)

// scratch has the buffers of a request. They are reused, so that an answer allocates no memory.
type scratch struct {
	tallies [tallies]tally
	known   memo
	some    []share
	lists   [][]share // that are not in use
	weighed weighed
	// sets are sets of NUMA nodes: the best ones, and others.
	sets, worse []nodeSet
}

// The tallies of a question.
const (
	haveTally = iota
	besideTally
	nearbyTally
	sharedTally
	wholeTally
	tallies
)

// tally is a number for each group.
type tally []int32

// count counts how many CPUs of a set each group of a tree has.
func (t *Tree) count(into tally, s *topology.Set) tally {
	if into == nil {
		into = make(tally, len(t.groups))
	} else {
		clear(into)
	}
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			into[t.leaf[i<<6+bits.TrailingZeros64(w)]]++
		}
	}
	for i := len(into) - 1; i > 0; i-- {
		into[t.groups[i].parent] += into[i]
	}
	return into
}

// list returns an empty list; release returns it to the pool.
func (s *scratch) list() []share {
	last := len(s.lists) - 1
	if last < 0 {
		return make([]share, 0, 8)
	}
	list := s.lists[last]
	s.lists = s.lists[:last]
	return list[:0]
}

func (s *scratch) release(list []share) {
	if list != nil {
		s.lists = append(s.lists, list)
	}
}
