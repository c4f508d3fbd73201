package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Queue has the containers whose values in the runtime's store are outdated (type Copy), the oldest first. The kernel
// already has the newer values.
type Queue struct {
	Waiting []*Copy // the copies in the queue
	// Due fires when it is possibly time to send a copy. The caller then calls WaitTime.
	Due *time.Timer
	// Sending means that a copy from the queue is being sent to the runtime.
	Sending bool
	Pace    time.Duration // the pause after sending a copy, before the next copy is sent
	// Since is the time from which MaxWait counts: the last time at which the queue was empty or a copy was taken from
	// it. Piggyback sets a later time, so that its next search comes after a pause.
	Since time.Time

	postponed map[*Copy]time.Time // the copies that were given up, with the time of the next attempt
	notBefore time.Time           // the agent sends no copy before this time
	now       func() time.Time
}

// firstPause and maxPause are the first and the longest pause after which the agent tries again to send a copy that it
// gave up. It does so only for copies with a list of CPUs or memory nodes, and it never stops trying. Otherwise, at
// each update by the kubelet, the runtime would overwrite the list in the kernel with an old list.
const (
	firstPause = time.Minute
	maxPause   = 16 * time.Minute
)

// maxTries is how often the agent sends a refused copy before it gives up the copy. The number is small, because an
// update takes the runtime about 13 ms, and the runtime holds its global lock during this time.
const maxTries = 5

// idleTime is how long the agent must have handled no event before it sends a copy. MaxWait is the longest wait for
// such an idle time. After MaxWait, the agent adds the values of one copy to an answer to the runtime, every
// piggybackPace. It can do so if answers can have values for other containers. With such an answer, the runtime holds
// its lock only a little longer than with an ordinary answer.
const (
	idleTime      = time.Second
	MaxWait       = 30 * time.Second
	piggybackPace = time.Second
)

// NewQueue returns an empty queue. pace is the pause after sending a copy, before the next copy is sent.
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

// WaitTime returns how long to wait before the agent sends the next copy. idle is how long the agent has handled no
// event. The agent waits until idle is at least idleTime: if it sent a copy while it grants CPUs, a container could get
// CPUs back that it has just lost. There is one exception: if the copies are overdue and answers to the runtime cannot
// have values of copies (piggybacks is false), the agent does not wait for an idle time.
func (q *Queue) WaitTime(idle time.Duration, piggybacks bool) time.Duration {
	wait := q.notBefore.Sub(q.now())
	if piggybacks || !q.Overdue() {
		wait = max(wait, idleTime-idle)
	}
	return max(wait, 0)
}

// Overdue reports whether the agent has taken no copy from the queue for at least MaxWait.
func (q *Queue) Overdue() bool { return q.now().Sub(q.Since) >= MaxWait }

// Next removes the oldest copy from the queue and returns it. The queue must not be empty.
func (q *Queue) Next() *Copy {
	c := q.Waiting[0]
	q.Waiting = q.Waiting[1:]
	c.queued, c.piggybacked = false, false
	q.Since = q.now()
	return c
}

// Piggyback returns values of a copy that the agent should add to its answer to a request about another container. It
// returns none if no copy is overdue. The function missingValues returns the values that a copy lacks and that an
// answer can have; Piggyback chooses the oldest copy that has such values. id is the id of the copy's container. The
// copy stays in the queue, and the agent sends it again when the node is idle.
func (q *Queue) Piggyback(missingValues func(*Copy) []lifecycle.Value) (id string, values []lifecycle.Value) {
	if len(q.Waiting) == 0 || !q.Overdue() {
		return "", nil
	}
	q.Since = q.now().Add(piggybackPace - MaxWait) // even if no copy is found, because each search delays a request
	for i, c := range q.Waiting {
		if c.piggybacked || c.Pending != nil || c.CreatePending {
			continue
		}
		if values = missingValues(c); len(values) == 0 {
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

// NoteRefused notes that the runtime has refused the values of a copy, or did not answer. If this has happened maxTries
// times in a row, givenUp is true. Otherwise NoteRefused queues the copy again.
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

// Postpone schedules another attempt to send a copy that was given up. It returns the pause until this attempt.
func (q *Queue) Postpone(c *Copy) time.Duration {
	c.pause = min(max(2*c.pause, firstPause), maxPause)
	q.postponed[c] = q.now().Add(c.pause)
	return c.pause
}

// QueuePostponed queues the postponed copies whose pause is over. If the next attempt for such a copy fails, the copy
// is given up again.
func (q *Queue) QueuePostponed() {
	for c, due := range q.postponed {
		if !q.now().Before(due) {
			delete(q.postponed, c)
			c.tries = maxTries - 1
			q.Add(c)
		}
	}
}
