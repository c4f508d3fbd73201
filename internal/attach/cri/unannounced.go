package cri

import "time"

// unannouncedAfter is how long a pod or container must be in the runtime's lists before it counts as unannounced.
// By then the attachment would have seen the answer to its call.
const unannouncedAfter = 2 * time.Second

// unannounced are the pods and containers in the runtime's lists that no call announced, with the time when each
// was first listed. It does not use the runtime's creation times, because they may be in the future after a step of
// the wall clock.
type unannounced struct {
	now        func() time.Time
	seen, next map[string]time.Time
}

func newUnannounced(now func() time.Time) unannounced {
	return unannounced{now: now, seen: map[string]time.Time{}, next: map[string]time.Time{}}
}

// begin starts a comparison. It forgets the ids for which the last comparison did not call old.
func (s *unannounced) begin() { s.seen, s.next = s.next, make(map[string]time.Time) }

// waitedEnough reports whether an id has been listed for unannouncedAfter.
func (s *unannounced) waitedEnough(id string) bool {
	now := s.now()
	first, known := s.seen[id]
	if !known {
		first = now
	}
	s.next[id] = first
	return now.Sub(first) > unannouncedAfter
}
