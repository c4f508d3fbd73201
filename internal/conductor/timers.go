package conductor

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// timer is a row of the table of timers.
type timer struct {
	name     string
	due      *time.Timer
	interval time.Duration // the interval; 0 if other code sets the timer
	run      func(context.Context)
}

// answerDelay lets an answer leave before the rest of its event uses the processor.
const answerDelay = 300 * time.Microsecond

// sweepInterval is how often the conductor checks for pods that ended without an event of the
// runtime. A check costs one directory look-up per pod.
const sweepInterval = 5 * time.Second

// neverDue is the due time of a timer that is not set.
const neverDue = math.MaxInt64

// Run serves the table of timers until ctx ends. No timer waits for another: the sweep also
// runs on a node that is never idle, or while a runtime does not answer an update. When Run
// returns, everything that was answered is confirmed. Other timed work is separate: the
// keeper's drift (Watch), and the checkpoint, which is saved after all of these
// (record.Checkpoint.SaveChanges).
func (c *Conductor) Run(ctx context.Context) error {
	timers := []timer{
		{"confirm a creation that was answered", c.confirmDue, 0, func(context.Context) { c.Flush() }},
		{"send the runtime's copies", c.node.queue.Due, 0, c.sendDue},
		{"send again what the runtime refused", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.node.retryCopies() }},
		{"compare the node with what would be done", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.reportDifferences() }},
		{"give CPUs their classes", c.classes.retryTimer, classCheck, c.classes.run},
		{"have the kernel demote cold memory", c.demotion.due, 0, c.demote},
		{"end cold starts", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.endColdStarts() }},
		{"end pods whose cgroup is gone", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.sweep() }},
	}
	var all sync.WaitGroup
	for _, t := range timers {
		all.Go(func() { c.serveTimer(ctx, &t) })
	}
	all.Wait()
	c.continuing.Wait()
	c.Flush()
	return nil
}

func (c *Conductor) serveTimer(ctx context.Context, t *timer) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.due.C:
			if t.interval > 0 {
				t.due.Reset(t.interval)
			}
			c.runTimer(ctx, t)
		}
	}
}

// runTimer runs a row of the table. After a panic the agent continues, and the timer too.
func (c *Conductor) runTimer(ctx context.Context, t *timer) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("timed work of the agent failed", logkey.Event, t.name, logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			c.reports.Count.HookError(nodeview.AgentPanic)
		}
	}()
	t.run(ctx)
}

// retryCopies queues postponed copies again. It takes the lock.
func (n *node) retryCopies() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue.QueuePostponed()
}

// sweep ends pods whose cgroup existed and is gone. Runtimes forget pods older than their last
// restart, and do not report their end. It also finds containers that run without a cgroup.
func (c *Conductor) sweep() {
	c.presence.Find()
	c.reports.ReportMissingCgroups()
	for _, pod := range c.presence.Ended() {
		w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod})
		w.facts.CgroupGone = true
		_, _ = c.run(w)
	}
}
