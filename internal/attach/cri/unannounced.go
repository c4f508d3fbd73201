package cri

import "time"

// unannouncedAfter is how long a pod or container must be in the runtime's lists before the attachment concludes that
// it did not see the creation as a held call. If the relay held the call that created the object, the attachment sees
// the runtime's answer within this time.
const unannouncedAfter = 2 * time.Second

// unannouncedObjects has the ids of the pods and containers in the runtime's lists whose creation the attachment did
// not see as a held call, with the time when each was first listed. It does not use the runtime's creation times,
// because they can be in the future after a change of the wall clock.
type unannouncedObjects struct {
	now func() time.Time
	// Both maps have the time when an id was first listed. The current comparison reads firstListed and fills
	// nextListed.
	firstListed, nextListed map[string]time.Time // by id
}

func newUnannouncedObjects(now func() time.Time) unannouncedObjects {
	return unannouncedObjects{now: now, firstListed: map[string]time.Time{}, nextListed: map[string]time.Time{}}
}

// begin starts a comparison of lists. It forgets each id for which the last comparison did not call isOverdue: the id
// is no longer listed, or the attachment has stored the object.
func (s *unannouncedObjects) begin() {
	s.firstListed, s.nextListed = s.nextListed, make(map[string]time.Time)
}

// isOverdue notes that an id is listed. It reports whether the id has been listed for longer than unannouncedAfter.
func (s *unannouncedObjects) isOverdue(id string) bool {
	now := s.now()
	first, known := s.firstListed[id]
	if !known {
		first = now
	}
	s.nextListed[id] = first
	return now.Sub(first) > unannouncedAfter
}
