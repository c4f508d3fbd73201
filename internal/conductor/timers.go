package conductor

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// timer is a row of the table of what the conductor does when a time has come.
type timer struct {
	what  string
	due   *time.Timer
	every time.Duration // when it is due again; 0 where who has something to do sets it
	do    func(context.Context)
}

// answerDelay lets an answer be on its way before what remains of its event takes
// the processor.
const answerDelay = 300 * time.Microsecond

// sweepInterval is how often the conductor checks for pods that ended without an event
// of the runtime. It costs a look at one directory per pod.
const sweepInterval = 5 * time.Second

// never is when a timer is due that nobody has set.
const never = math.MaxInt64

// Run serves the table of timers until ctx ends. None waits for another: a node that
// is never quiet, or a runtime that does not answer an update, keeps nobody from being
// swept. What was answered is confirmed when it returns. What else waits for a time is
// apart from it: the keeper's drift (Watch), and the checkpoint, which is kept after all
// of these (record.Checkpoint.Keep).
func (c *Conductor) Run(ctx context.Context) error {
	timers := []timer{
		{"confirm a creation that was answered", c.confirmDue, 0, func(context.Context) { c.Settled() }},
		{"send the runtime's copies", c.node.queue.Due, 0, c.sendDue},
		{"send again what the runtime refused", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.node.retryCopies() }},
		{"end pods that nobody ended", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.sweep() }},
	}
	var all sync.WaitGroup
	for _, t := range timers {
		all.Go(func() { t.serve(ctx) })
	}
	all.Wait()
	c.later.Wait()
	c.Settled()
	return nil
}

func (t timer) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.due.C:
			if t.every > 0 {
				t.due.Reset(t.every)
			}
			t.do(ctx)
		}
	}
}

// retryCopies takes the lock.
func (n *node) retryCopies() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue.Retry()
}

// sweep ends pods whose cgroup was there and is gone: runtimes forget pods older than
// their last restart, and do not report their end. They leave the memory, too. It finds
// containers that run without a cgroup.
func (c *Conductor) sweep() {
	c.presence.Find()
	c.reports.Absent()
	for _, pod := range c.presence.Ended() {
		w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod})
		w.facts.Swept = true
		_, _ = c.run(w)
	}
}
