package choose

import (
	"math/bits"

	"github.com/trimtab/trimtab/internal/topology"
)

// scratch has the buffers for a request. Later requests reuse the buffers, so that a choice allocates little memory.
type scratch struct {
	tallies         [tallyCount]tally
	costs           memo        // the costs that were computed since the last picker.reset
	portions        []portion   // how picker.divideOverCores has divided CPUs over cores
	freeLists       [][]portion // lists that can be reused
	memoryDistances memoryDistances
	// sets and losers are buffers of a nodeSearch.
	sets, losers []nodeSet
}

// The indices of the tallies in scratch.tallies. tallyCount is the number of tallies.
const (
	freeTally = iota
	usedWithTally
	nearTally
	sharedTally
	wholeCoreTally
	tallyCount
)

// tally has a number for each group of a tree.
type tally []int32

// count counts how many CPUs of a set each group has. It stores the numbers in buffer, or in a new tally if buffer is
// nil.
func (t *Tree) count(buffer tally, s *topology.Set) tally {
	if buffer == nil {
		buffer = make(tally, len(t.groups))
	} else {
		clear(buffer)
	}
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			buffer[t.innermostGroup[i<<6+bits.TrailingZeros64(w)]]++
		}
	}
	for i := len(buffer) - 1; i > 0; i-- {
		buffer[t.groups[i].parent] += buffer[i]
	}
	return buffer
}

// emptyList returns an empty list. It reuses a list that releaseList stored, if there is one.
func (s *scratch) emptyList() []portion {
	last := len(s.freeLists) - 1
	if last < 0 {
		return make([]portion, 0, 8)
	}
	list := s.freeLists[last]
	s.freeLists = s.freeLists[:last]
	return list[:0]
}

// releaseList stores a list, so that emptyList can reuse it.
func (s *scratch) releaseList(list []portion) {
	if list != nil {
		s.freeLists = append(s.freeLists, list)
	}
}
