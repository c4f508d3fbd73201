package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Queue has the outdated copies, the oldest first. The kernel already has the values that these copies lack.
type Queue struct {
	Waiting []*Copy // the copies in the queue
	// Due fires when a copy may have to be sent. The caller then calls Wait.
	Due *time.Timer
	// Sending means that a copy from the queue is being sent to the runtime.
	Sending bool
	Pace    time.Duration // the pause between two copies
	Since   time.Time     // when the queue was last empty, or a copy was last taken from it to be sent

	postponed map[*Copy]time.Time // copies that the runtime refused, and when they are tried again
	notBefore time.Time           // nothing is sent before this time
	now       func() time.Time
}

// firstPause and maxPause are the first and the longest pause before the agent tries again to send a copy that it has
// given up. It tries without end for a copy with a list of CPUs or memory nodes. Otherwise the runtime would overwrite
// the list in the kernel with an old list at each update by the kubelet.
const (
	firstPause = time.Minute
	maxPause   = 16 * time.Minute
)

// maxTries is how often the agent sends a refused copy before it gives the copy up. An update takes the runtime about
// 13 ms, during which it holds its global lock.
const maxTries = 5

// idleTime is how long the node must be idle before the agent sends a copy. MaxWait is the longest wait for such an
// idle time. On a node that is never idle, the agent sends one copy in an answer every piggybackPace, if answers can
// carry copies. The runtime then holds its lock only a little longer than for the answer alone.
const (
	idleTime      = time.Second
	MaxWait       = 30 * time.Second
	piggybackPace = time.Second
)

// NewQueue returns an empty queue. pace is the pause between two copies.
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

// Remove removes a copy from the queue, and forgets earlier failures to send the copy.
func (q *Queue) Remove(c *Copy) {
	if c.queued {
		q.Waiting = slices.DeleteFunc(q.Waiting, func(other *Copy) bool { return other == c })
	}
	delete(q.postponed, c)
	c.queued, c.piggybacked, c.tries, c.pause = false, false, 0, 0
}

// Wait returns how long to wait before the agent sends the next copy. An update at the same time as a grant could give
// a container the CPUs back that the grant has just taken from it. So the node must be idle, unless copies are overdue
// and answers cannot carry copies. idle is how long the agent has handled no event.
func (q *Queue) Wait(idle time.Duration, piggybacks bool) time.Duration {
	wait := q.notBefore.Sub(q.now())
	if piggybacks || !q.Overdue() {
		wait = max(wait, idleTime-idle)
	}
	return max(wait, 0)
}

// Overdue reports whether the copies in the queue have waited for MaxWait.
func (q *Queue) Overdue() bool { return q.now().Sub(q.Since) >= MaxWait }

// Next removes the oldest copy from the queue and returns it. The queue must not be empty.
func (q *Queue) Next() *Copy {
	c := q.Waiting[0]
	q.Waiting = q.Waiting[1:]
	c.queued, c.piggybacked = false, false
	q.Since = q.now()
	return c
}

// Piggyback finds the oldest copy with values that an answer can carry, if copies are overdue. It returns the
// container's id and the values. lacks returns the values of a copy that can be sent. The copy stays in the queue, and
// the agent sends it again when the node is idle.
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

// NoteSendEnded notes that the agent has finished sending a copy. The agent sends no copy during the next Pace.
func (q *Queue) NoteSendEnded() { q.Sending, q.notBefore = false, q.now().Add(q.Pace) }

// NoteRefused notes that the runtime has refused a copy, or did not answer. It queues the copy again, unless sending it
// has failed maxTries times: givenUp is then true.
func (q *Queue) NoteRefused(c *Copy) (givenUp bool) {
	if c.tries++; c.tries < maxTries {
		q.Add(c)
		return false
	}
	c.tries = 0
	return true
}

// NoteAccepted notes that the runtime has accepted values of a copy.
func (q *Queue) NoteAccepted(c *Copy, values []lifecycle.Value) {
	c.tries, c.pause = 0, 0
	delete(q.postponed, c)
	for _, v := range values {
		c.Store(v.Field, v.String())
	}
}

// Postpone schedules another try for a copy that was given up, and returns the pause until this try.
func (q *Queue) Postpone(c *Copy) time.Duration {
	c.pause = min(max(2*c.pause, firstPause), maxPause)
	q.postponed[c] = q.now().Add(c.pause)
	return c.pause
}

// QueuePostponed queues the postponed copies whose pause is over, for one try each.
func (q *Queue) QueuePostponed() {
	for c, due := range q.postponed {
		if !q.now().Before(due) {
			delete(q.postponed, c)
			c.tries = maxTries - 1
			q.Add(c)
		}
	}
}
