package cri

import "time"

// unannouncedAfter is how long a pod or container is in the runtime's lists before it
// counts as unannounced: by then the answer of its call would have been seen.
const unannouncedAfter = 2 * time.Second

// unannounced are the pods and containers in the runtime's lists that no call
// announced, and when each was first seen there. It does not use the runtime's creation
// times: after a step of the wall clock they may be in the future.
type unannounced struct {
	now        func() time.Time
	seen, next map[string]time.Time
}

func newUnannounced(now func() time.Time) unannounced {
	return unannounced{now: now, seen: map[string]time.Time{}, next: map[string]time.Time{}}
}

// begin begins a comparison. It forgets what the last one did not ask about.
func (s *unannounced) begin() { s.seen, s.next = s.next, make(map[string]time.Time) }

// old reports whether an id has been listed for unannouncedAfter.
func (s *unannounced) old(id string) bool {
	now := s.now()
	first, known := s.seen[id]
	if !known {
		first = now
	}
	s.next[id] = first
	return now.Sub(first) > unannouncedAfter
}
