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

// answerDelay is the pause between an answer and work that can be done after the answer, so that this work does not
// delay the sending of the answer.
const answerDelay = 300 * time.Microsecond

// sweepInterval is how often the conductor checks for pods that ended without an event of the
// runtime. A check costs one directory look-up per pod.
const sweepInterval = 5 * time.Second

// neverDue is the duration for a new timer that must not fire before other code sets it.
const neverDue = math.MaxInt64

// Run does the timed work until ctx ends. No task waits for another task: for example, the sweep also runs on a node
// that is never idle, or while a runtime does not answer an update. When Run returns, the results of all answered
// events are noted. Two tasks are not part of Run: the repair of values that other programs changed (Watch), and the
// saving of the checkpoint (record.Checkpoint.SaveChanges).
func (c *Conductor) Run(ctx context.Context) error {
	tasks := []timedTask{
		{"note the results of a creation", c.confirmTimer, 0, func(context.Context) { c.Flush() }},
		{"update the runtime's stored copies", c.node.queue.Due, 0, c.sendDue},
		{"queue again the copies that the runtime refused to update", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.node.retryCopies() }},
		{"compare the node with the decided values", time.NewTimer(c.sweepEvery), c.sweepEvery, func(context.Context) { c.reportDifferences() }},
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

// serveTask runs a task each time its timer fires, until ctx ends.
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

// runTask runs a task once. After a panic in the task, the agent continues and runs the task again at its next time.
func (c *Conductor) runTask(ctx context.Context, t *timedTask) {
	defer func() {
		if r := recover(); r != nil {
			c.reportPanic(t.name, r)
		}
	}()
	t.run(ctx)
}

// reportPanic logs and counts a panic in a timed task. taskName says what the task does. Only the deferred function
// that recovers the panic may call reportPanic.
func (c *Conductor) reportPanic(taskName string, reason any) {
	c.log.Error("a timed task of the agent panicked", logkey.Event, taskName, logkey.Panic, reason, logkey.Stack, string(debug.Stack()))
	c.reports.Count.HookError(nodeview.AgentPanic)
}

// retryCopies queues the postponed copies again: the runtime refused to update them several times, and their pause is
// over. It locks n.mu.
func (n *node) retryCopies() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue.QueuePostponed()
}

// sweep ends pods whose cgroup was removed. It is needed because some runtimes do not report the end of pods that are
// older than the runtime's last restart. sweep also reports containers that run without a cgroup.
func (c *Conductor) sweep() {
	c.presence.FindCgroups()
	c.reports.ReportMissingCgroups()
	for _, pod := range c.presence.EndedPods() {
		w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod})
		w.facts.CgroupGone = true
		_, _ = c.run(w)
	}
}
