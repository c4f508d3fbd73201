package cri

import "time"

// longListed is how long a pod or container is in the runtime's lists before it counts
// as one that no call will announce: by then its call's answer would have been seen.
const longListed = 2 * time.Second

// unannounced are the pods and containers in the runtime's lists that no call announced,
// and when each was first seen there. The runtime's own times of creation are of no
// use: they are of the wall clock, and a step of it would make what runs look as if
// it were still to be made.
type unannounced struct {
	now        func() time.Time
	seen, next map[string]time.Time
}

func newUnannounced(now func() time.Time) unannounced {
	return unannounced{now: now, seen: map[string]time.Time{}, next: map[string]time.Time{}}
}

// begin begins a comparison. What the last one did not ask about is forgotten.
func (s *unannounced) begin() { s.seen, s.next = s.next, make(map[string]time.Time) }

// old reports whether comparisons have seen one for long enough.
func (s *unannounced) old(id string) bool {
	now := s.now()
	first, known := s.seen[id]
	if !known {
		first = now
	}
	s.next[id] = first
	return now.Sub(first) > longListed
}
