package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Queue holds the copies that are out of date, oldest first. The kernel has their
// values already.
type Queue struct {
	Waiting []*Copy
	// Due goes off when a copy may have to be sent: ask Wait then.
	Due *time.Timer
	// Sending: a copy that was taken out is on its way to the runtime.
	Sending bool
	Pace    time.Duration // between two of them
	Since   time.Time     // when it last had nothing to send, or something was sent

	postponed map[*Copy]time.Time // which the runtime refused, and when they are tried again
	paced     time.Time           // until when nothing is sent
	now       func() time.Time
}

// The runtime's copy of a list of CPUs or memory nodes is never given up: the runtime
// would write an old one over the kernel's with each update of the kubelet's.
const (
	firstPause = time.Minute
	maxPause   = 16 * time.Minute
)

// An update costs the runtime about 13 ms under its global lock, so a
// container that refuses is not asked for ever.
const maxTries = 5

// quiet is how long nothing must have happened before a copy is sent; MostWait is
// how long that is waited for on a node that is never quiet. There one goes with an
// answer every piggybackPace, where answers can take it, so that the runtime's lock is
// not held much longer than without us.
const (
	quiet         = time.Second
	MaxWait       = 30 * time.Second
	piggybackPace = time.Second
)

// NewQueue returns an empty queue.
func NewQueue(now func() time.Time, pace time.Duration) *Queue {
	return &Queue{Pace: pace, Due: time.NewTimer(0), postponed: map[*Copy]time.Time{}, Since: now(), now: now}
}

// Add queues a copy that is out of date.
func (q *Queue) Add(c *Copy) {
	c.piggybacked = false
	if len(q.Waiting) == 0 {
		q.Since = q.now()
		q.Due.Reset(0)
	}
	if !c.waits {
		c.waits = true
		q.Waiting = append(q.Waiting, c)
	}
}

// Drop takes a copy out that is sent no more.
func (q *Queue) Drop(c *Copy) {
	if c.waits {
		q.Waiting = slices.DeleteFunc(q.Waiting, func(other *Copy) bool { return other == c })
	}
	delete(q.postponed, c)
	c.waits, c.piggybacked, c.tries, c.pause = false, false, 0, 0
}

// Wait returns how long until a copy is sent, where one waits. An update that meets a
// grant would widen what the grant has just narrowed, until it is settled after it: so
// the node is to be quiet, unless it never is and answers cannot take copies. idle is
// how long nothing has happened.
func (q *Queue) Wait(idle time.Duration, piggybacks bool) time.Duration {
	wait := q.paced.Sub(q.now())
	if piggybacks || !q.Overdue() {
		wait = max(wait, quiet-idle)
	}
	return max(wait, 0)
}

// Overdue reports whether copies have waited for too long.
func (q *Queue) Overdue() bool { return q.now().Sub(q.Since) >= MaxWait }

// Next takes out the oldest copy, of some.
func (q *Queue) Next() *Copy {
	c := q.Waiting[0]
	q.Waiting = q.Waiting[1:]
	c.waits, c.piggybacked = false, false
	q.Since = q.now()
	return c
}

// Piggyback finds the oldest copy of which something goes with an answer, on a node
// that is never quiet. lacks reports what can be sent of a copy. The copy is sent again
// when the node is quiet.
func (q *Queue) Piggyback(lacks func(*Copy) []lifecycle.Value) (id string, values []lifecycle.Value) {
	if len(q.Waiting) == 0 || !q.Overdue() {
		return "", nil
	}
	q.Since = q.now().Add(piggybackPace - MaxWait) // also where nothing is found: the search is on a request's path
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

// Sent ends the sending of a copy; nothing is sent for a pause.
func (q *Queue) Sent() { q.Sending, q.paced = false, q.now().Add(q.Pace) }

// Refused notes that the runtime refused a copy, or gave no answer. It is tried again
// soon, unless that was so too often.
func (q *Queue) Refused(c *Copy) (givenUp bool) {
	if c.tries++; c.tries < maxTries {
		q.Add(c)
		return false
	}
	c.tries = 0
	return true
}

// Took notes what the runtime has taken.
func (q *Queue) Accepted(c *Copy, values []lifecycle.Value) {
	c.tries, c.pause = 0, 0
	delete(q.postponed, c)
	for _, v := range values {
		c.Store(v.Field, v.String())
	}
}

// Postpone has a copy that was given up tried again after a while, and returns after
// which.
func (q *Queue) Postpone(c *Copy) time.Duration {
	c.pause = min(max(2*c.pause, firstPause), maxPause)
	q.postponed[c] = q.now().Add(c.pause)
	return c.pause
}

// Retry queues what was postponed until now, for one try each.
func (q *Queue) Retry() {
	for c, due := range q.postponed {
		if !q.now().Before(due) {
			delete(q.postponed, c)
			c.tries = maxTries - 1
			q.Add(c)
		}
	}
}
