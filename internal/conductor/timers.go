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

// timedTask is work that Run does each time its timer fires.
type timedTask struct {
	name     string
	timer    *time.Timer
	interval time.Duration // Run sets the timer again after this interval; 0 if other code sets the timer
	run      func(context.Context)
}

// answerDelay is the pause between an answer and the work that may follow it, so that this work does not delay the
// sending of the answer.
const answerDelay = 300 * time.Microsecond

// sweepInterval is how often the conductor checks for pods that ended without an event of the
// runtime. A check costs one directory look-up per pod.
const sweepInterval = 5 * time.Second

// neverDue is the duration for a new timer that must not fire before other code sets it.
const neverDue = math.MaxInt64

// Run does the timed work until ctx ends. No task waits for another: the sweep also runs on a node that is never idle,
// or while a runtime does not answer an update. When Run returns, all answered events are confirmed. Two other tasks
// are not part of Run: the repair of values that other programs changed (Watch), and the saving of the checkpoint
// (record.Checkpoint.SaveChanges).
func (c *Conductor) Run(ctx context.Context) error {
	tasks := []timedTask{
		{"confirm a creation that was answered", c.confirmTimer, 0, func(context.Context) { c.Flush() }},
		{"send the runtime's copies", c.node.queue.Due, 0, c.sendDue},
		{"send again what the runtime refused", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.node.retryCopies() }},
		{"compare the node with what would be done", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.reportDifferences() }},
		{"give CPUs their classes", c.cpuClasses.retryTimer, classCheckInterval, c.cpuClasses.run},
		{"demote cold memory", c.demotion.timer, 0, c.demote},
		{"end cold starts", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.endColdStarts() }},
		{"end pods whose cgroup is gone", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.sweep() }},
	}
	var all sync.WaitGroup
	for _, t := range tasks {
		all.Go(func() { c.serveTask(ctx, &t) })
	}
	all.Wait()
	c.afterAnswers.Wait()
	c.Flush()
	return nil
}

func (c *Conductor) serveTask(ctx context.Context, t *timedTask) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.timer.C:
			if t.interval > 0 {
				t.timer.Reset(t.interval)
			}
			c.runTask(ctx, t)
		}
	}
}

// runTask runs a task once. After a panic in the task the agent continues, and runs the task again when it is due.
func (c *Conductor) runTask(ctx context.Context, t *timedTask) {
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

// sweep ends pods whose cgroup was removed, because runtimes forget pods that are older than the runtime's last
// restart, and do not report their end. sweep also finds containers that run without a cgroup.
func (c *Conductor) sweep() {
	c.presence.FindCgroups()
	c.reports.ReportMissingCgroups()
	for _, pod := range c.presence.EndedPods() {
		w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod})
		w.facts.CgroupGone = true
		_, _ = c.run(w)
	}
}
