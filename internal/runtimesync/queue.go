package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Queue has the outdated copies, oldest first. The kernel has their values already.
type Queue struct {
	Waiting []*Copy
	// Due fires when a copy may have to be sent. The caller then calls Wait.
	Due *time.Timer
	// Sending means that a copy from the queue is being sent to the runtime.
	Sending bool
	Pace    time.Duration // the pause between two copies
	Since   time.Time     // when the queue was last empty, or a copy was last sent

	postponed map[*Copy]time.Time // copies that the runtime refused, and when they are tried again
	notBefore time.Time           // nothing is sent before this time
	now       func() time.Time
}

// firstPause and maxPause bound the pause before a copy that was given up is tried again. A copy with a list of
// CPUs or memory nodes is tried without limit. Otherwise the runtime would overwrite the list in the kernel with an
// old one at each update by the kubelet.
const (
	firstPause = time.Minute
	maxPause   = 16 * time.Minute
)

// maxTries bounds how often a refused copy is sent before it is given up. An update takes the runtime about 13 ms,
// under its global lock.
const maxTries = 5

// idleTime is how long the node must be idle before a copy is sent. MaxWait limits the wait for that. On a node
// that is never idle, one copy is sent in an answer every piggybackPace, if answers can carry copies. So the
// runtime's lock is held only a little longer.
const (
	idleTime      = time.Second
	MaxWait       = 30 * time.Second
	piggybackPace = time.Second
)

// NewQueue returns an empty queue.
func NewQueue(now func() time.Time, pace time.Duration) *Queue {
	return &Queue{Pace: pace, Due: time.NewTimer(0), postponed: map[*Copy]time.Time{}, Since: now(), now: now}
}

// Add queues an outdated copy.
func (q *Queue) Add(c *Copy) {
	c.piggybacked = false
	if len(q.Waiting) == 0 {
		q.Since = q.now()
		q.Due.Reset(0)
	}
	if !c.queued {
		c.queued = true
		q.Waiting = append(q.Waiting, c)
	}
}

// Drop removes a copy from the queue.
func (q *Queue) Drop(c *Copy) {
	if c.queued {
		q.Waiting = slices.DeleteFunc(q.Waiting, func(other *Copy) bool { return other == c })
	}
	delete(q.postponed, c)
	c.queued, c.piggybacked, c.tries, c.pause = false, false, 0, 0
}

// Wait returns how long to wait before sending the next copy. An update that races with a grant could return CPUs
// that the grant has just taken, until the next update. So the node must be idle, unless copies are overdue and
// answers cannot carry them. idle is for how long no event has been handled.
func (q *Queue) Wait(idle time.Duration, piggybacks bool) time.Duration {
	wait := q.notBefore.Sub(q.now())
	if piggybacks || !q.Overdue() {
		wait = max(wait, idleTime-idle)
	}
	return max(wait, 0)
}

// Overdue reports whether copies have waited longer than MaxWait.
func (q *Queue) Overdue() bool { return q.now().Sub(q.Since) >= MaxWait }

// Next removes and returns the oldest copy.
func (q *Queue) Next() *Copy {
	c := q.Waiting[0]
	q.Waiting = q.Waiting[1:]
	c.queued, c.piggybacked = false, false
	q.Since = q.now()
	return c
}

// Piggyback finds the oldest copy with values that an answer can carry, on a node that is never idle. lacks returns
// the values of a copy that can be sent. The copy is sent again when the node is idle.
func (q *Queue) Piggyback(lacks func(*Copy) []lifecycle.Value) (id string, values []lifecycle.Value) {
	if len(q.Waiting) == 0 || !q.Overdue() {
		return "", nil
	}
	q.Since = q.now().Add(piggybackPace - MaxWait) // also if nothing is found, since the search delays a request
	for i, c := range q.Waiting {
		if c.piggybacked || c.Pending != nil || c.CreatePending {
			continue
		}
		if values = lacks(c); len(values) == 0 {
			continue
		}
		for _, v := range values {
			c.Store(v.Field, unknownText)
		}
		q.Waiting = append(slices.Delete(q.Waiting, i, i+1), c)
		c.piggybacked = true
		return c.ID, values
	}
	return "", nil
}

// Sent notes that sending a copy has ended. Nothing is sent during the pause that follows.
func (q *Queue) Sent() { q.Sending, q.notBefore = false, q.now().Add(q.Pace) }

// Refused notes that the runtime refused a copy, or did not answer. The copy is tried again
// soon, unless it has failed too often.
func (q *Queue) Refused(c *Copy) (givenUp bool) {
	if c.tries++; c.tries < maxTries {
		q.Add(c)
		return false
	}
	c.tries = 0
	return true
}

// Accepted notes the values that the runtime has accepted.
func (q *Queue) Accepted(c *Copy, values []lifecycle.Value) {
	c.tries, c.pause = 0, 0
	delete(q.postponed, c)
	for _, v := range values {
		c.Store(v.Field, v.String())
	}
}

// Postpone schedules a copy that was given up for another try, and returns the pause until
// then.
func (q *Queue) Postpone(c *Copy) time.Duration {
	c.pause = min(max(2*c.pause, firstPause), maxPause)
	q.postponed[c] = q.now().Add(c.pause)
	return c.pause
}

// Retry queues the postponed copies that are due, for one try each.
func (q *Queue) Retry() {
	for c, due := range q.postponed {
		if !q.now().Before(due) {
			delete(q.postponed, c)
			c.tries = maxTries - 1
			q.Add(c)
		}
	}
}
