package cri

import "time"

// settled is how long a pod or container is in the runtime's lists before it counts
// as one that no call will tell: by then its call's answer would have been seen.
const settled = 2 * time.Second

// strangers are the pods and containers in the runtime's lists that no call told,
// and when each was first seen there. The runtime's own times of creation are of no
// use: they are of the wall clock, and a step of it would make what runs look as if
// it were still to be made.
type strangers struct {
	now        func() time.Time
	seen, next map[string]time.Time
}

func newStrangers(now func() time.Time) strangers {
	return strangers{now: now, seen: map[string]time.Time{}, next: map[string]time.Time{}}
}

// begin begins a comparison. What the last one did not ask about is forgotten.
func (s *strangers) begin() { s.seen, s.next = s.next, make(map[string]time.Time) }

// old reports whether comparisons have seen one for long enough.
func (s *strangers) old(id string) bool {
	now := s.now()
	first, known := s.seen[id]
	if !known {
		first = now
	}
	s.next[id] = first
	return now.Sub(first) > settled
}
