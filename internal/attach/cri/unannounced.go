package cri

import "time"

// unannouncedAfter is how long a pod or container must be in the runtime's lists before it counts as unannounced.
// By then the attachment would have seen the answer to its call.
const unannouncedAfter = 2 * time.Second

// unannounced has the pods and containers in the runtime's lists that no call announced, with the time when each
// was first listed. The runtime's creation times are not used, because they may be in the future after a step of
// the wall clock.
type unannounced struct {
	now               func() time.Time
	firstListed, next map[string]time.Time
}

func newUnannounced(now func() time.Time) unannounced {
	return unannounced{now: now, firstListed: map[string]time.Time{}, next: map[string]time.Time{}}
}

// begin starts a comparison. It forgets the ids that the last comparison did not report.
func (s *unannounced) begin() { s.firstListed, s.next = s.next, make(map[string]time.Time) }

// isOverdue reports whether an id has been listed for unannouncedAfter.
func (s *unannounced) isOverdue(id string) bool {
	now := s.now()
	first, known := s.firstListed[id]
	if !known {
		first = now
	}
	s.next[id] = first
	return now.Sub(first) > unannouncedAfter
}
