package conductor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// updateQueue holds the containers whose copy in the runtime is out of date,
// oldest first. The kernel has their values already.
type updateQueue struct {
	ids   []string
	waits map[string]struct{} // the same ids
	tries map[string]int
	// later are those that were refused and are tried once more: their values keep
	// containers apart.
	later map[string]later
	// along are those of ids whose values went with an answer. No runtime tells
	// whether it took them: they are sent again when nothing happens.
	along map[string]struct{}
	// sending: one that was taken out is on its way to the runtime.
	sending bool
	// since is when it last had nothing to send, or something was sent.
	since time.Time
	now   func() time.Time
	woken chan struct{}
}

// later is a refused copy: when it is tried again, and how long that is after the
// last time.
type later struct {
	due   time.Time
	pause time.Duration
}

// The runtime's copy of a list of CPUs or memory nodes is never given up: the runtime
// would write an old one over the kernel's with each update of the kubelet's.
const (
	firstLater = time.Minute
	mostLater  = 16 * time.Minute
)

// An update costs the runtime about 13 ms under its global lock, so a
// container that refuses is not asked for ever.
const (
	maxTries      = 5
	updateTimeout = 10 * time.Second
)

// quiet is how long nothing must have happened before an update is sent;
// mostWait is how long that is waited for on a node that is never quiet. There
// one goes with an answer every alongPace, where answers can take it, so that the
// runtime's lock is not held much longer than without us.
const (
	quiet     = time.Second
	mostWait  = 30 * time.Second
	alongPace = time.Second
)

// untilQuiet returns how long to wait until nothing has happened for a while, 0 where
// there is nothing to send, or where answers cannot take what waits for too long.
func (c *Conductor) untilQuiet() time.Duration {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.node.overdue() || len(c.node.queue.ids) == 0 || len(c.node.runtimes) == 0 {
		return 0
	}
	return max(0, quiet-(c.uptime()-time.Duration(c.uptimes.last.Load())))
}

// overdue reports whether an update is sent though the node is not quiet: where
// answers cannot take it.
func (n *node) overdue() bool {
	if n.queue.now().Sub(n.queue.since) < mostWait {
		return false
	}
	for _, rt := range n.runtimes {
		if rt.from.Capabilities().Piggybacks {
			return false
		}
	}
	return true
}

func newUpdateQueue(now func() time.Time) updateQueue {
	return updateQueue{
		waits: map[string]struct{}{}, tries: map[string]int{}, later: map[string]later{}, along: map[string]struct{}{},
		since: now(), now: now, woken: make(chan struct{}, 1),
	}
}

func (q *updateQueue) add(id string) {
	delete(q.along, id)
	if len(q.ids) == 0 {
		q.since = q.now()
	}
	if _, waits := q.waits[id]; !waits {
		q.waits[id] = struct{}{}
		q.ids = append(q.ids, id)
	}
	q.wake()
}

func (q *updateQueue) drop(id string) {
	if _, waits := q.waits[id]; waits {
		delete(q.waits, id)
		q.ids = slices.DeleteFunc(q.ids, func(x string) bool { return x == id })
	}
	delete(q.tries, id)
	delete(q.later, id)
	delete(q.along, id)
}

// postpone has a refused copy tried again after a while, and returns after which.
func (q *updateQueue) postpone(id string) time.Duration {
	pause := min(max(2*q.later[id].pause, firstLater), mostLater)
	q.later[id] = later{q.now().Add(pause), pause}
	return pause
}

// revive queues what was postponed until now, for one try each.
func (q *updateQueue) revive() {
	now := q.now()
	for id, l := range q.later {
		if !l.due.IsZero() && !now.Before(l.due) {
			q.later[id] = later{pause: l.pause} // until it is done, or postponed anew
			q.tries[id] = maxTries - 1
			q.add(id)
		}
	}
}

// next takes the oldest out of the queue, which is not empty.
func (q *updateQueue) next() string {
	id := q.ids[0]
	q.ids = q.ids[1:]
	delete(q.waits, id)
	delete(q.along, id)
	q.since = q.now()
	return id
}

func (q *updateQueue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// sweepInterval is how often pods are looked at whose end nobody may have told of.
// It costs a look at one directory per pod.
const sweepInterval = 5 * time.Second

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

// sweepUntil sweeps every sweepInterval until ctx ends.
func (c *Conductor) sweepUntil(ctx context.Context) {
	tick := time.NewTicker(c.sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.sweep()
			c.node.mu.Lock()
			c.node.queue.revive()
			c.node.mu.Unlock()
		}
	}
}

// Run brings the runtime's copies in line, one container at a time, and sweeps,
// until ctx ends. Neither waits for the other: a node that is never quiet, or a
// runtime that does not answer an update, keeps nobody from being swept.
func (c *Conductor) Run(ctx context.Context) error {
	defer c.later.Wait()
	var sweeping sync.WaitGroup
	sweeping.Go(func() { c.sweepUntil(ctx) })
	defer sweeping.Wait()
	for {
		// The kernel has the values: the runtime's copies can wait until
		// nothing happens. An update that meets a grant would widen what the
		// grant has just narrowed, until it is settled after it.
		more, pace := true, c.untilQuiet()
		if pace == 0 {
			more, pace = c.updateOne(ctx)
		}
		if !more {
			select {
			case <-ctx.Done():
				return nil
			case <-c.node.queue.woken:
			}
			continue
		}
		timer := time.NewTimer(pace)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// updateOne sends one container's values to its runtime. It reports whether
// there may be more to do, and how long to wait before.
func (c *Conductor) updateOne(ctx context.Context) (more bool, pace time.Duration) {
	c.node.mu.Lock()
	rt := c.node.connected()
	if rt.from == nil || len(c.node.queue.ids) == 0 {
		c.node.mu.Unlock()
		return false, 0
	}
	id := c.node.queue.next()
	can := c.node.capabilities(rt.from)
	values := c.node.outdated(&can, id, route.Copying)
	pace = c.pace
	c.node.queue.sending = len(values) > 0
	c.node.mu.Unlock()
	if len(values) == 0 {
		return true, 0
	}
	defer func() {
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		c.node.queue.sending = false
	}()
	limited, cancel := context.WithTimeout(ctx, updateTimeout)
	failed, err := rt.runtime.Update(limited, []Settings{{Container: id, Values: values}})
	cancel()
	c.reports.Count.RuntimeUpdate(updateResult(failed, err))
	c.updated(id, values, err != nil || len(failed) > 0, err)
	return true, pace
}

// updateResult is what came of an update, for the recorder.
func updateResult(failed []string, err error) string {
	switch {
	case err != nil:
		return nodeview.UpdateFailed
	case len(failed) > 0:
		return nodeview.UpdateRefused
	}
	return nodeview.UpdateDone
}

// updated notes the result of an update. Where it came while a newer value was
// decided, the keeper has the last word in the kernel.
func (c *Conductor) updated(id string, values []lifecycle.Value, refused bool, err error) {
	settled := c.keeper.Settle(id)
	overtaken, givenUp := c.node.noteUpdate(id, values, settled, refused, err)
	if givenUp {
		c.log.Warn("the runtime's copy stays out of date; the kernel has the values",
			append(c.reports.Whose(id), logkey.Op, logkey.ID(c.ops.Add(1)), logkey.Err, err)...)
	}
	if overtaken {
		// The runtime may have written what was decided before over what is decided
		// now, what was given back meanwhile among it, and has it in its copy.
		c.rewrite(func() []keeper.Outcome { return c.keeper.Apply(c.node.requeue(id)) })
	}
}

// noteUpdate takes the lock. It reports whether something newer was decided than what
// was sent, and whether a runtime that refuses is not asked again soon.
func (n *node) noteUpdate(id string, values []lifecycle.Value, settled []keeper.Outcome, refused bool, err error) (overtaken, givenUp bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// What an event has decided meanwhile is its own to tell of.
	n.noteOutcomes(slices.DeleteFunc(settled, func(o keeper.Outcome) bool {
		d, told := n.tracks[o.Target.Owner].of(o.Value)
		return told && d.value != o.Value.String()
	}))
	ctr := n.state.Container(id)
	if ctr == nil || !ctr.Alive() {
		n.queue.drop(id)
		return false, false
	}
	now := map[slot]string{}
	for _, v := range n.state.Values(ctr) {
		now[slotOf(v)] = v.String()
	}
	overtaken = slices.ContainsFunc(values, func(v lifecycle.Value) bool { return now[slotOf(v)] != v.String() })
	if refused {
		if n.queue.tries[id]++; n.queue.tries[id] < maxTries {
			n.queue.add(id)
			return overtaken, false
		}
		delete(n.queue.tries, id)
		n.copyRefused(id, values, err)
		return overtaken, true
	}
	delete(n.queue.tries, id)
	delete(n.queue.later, id)
	t := n.track(id)
	for _, v := range values {
		t.store(v.Field, v.String())
		if d, ok := t.of(v); ok && d.value == v.String() {
			d.note, d.alone = "the runtime's copy agrees", ""
			t.deliver(v, d)
		}
	}
	return overtaken, false
}

// copyRefused notes that the runtime refused values again and again. Lists of CPUs
// and memory nodes are tried again later, and the container's values say so.
func (n *node) copyRefused(id string, values []lifecycle.Value, err error) {
	lists := slices.DeleteFunc(slices.Clone(values), func(v lifecycle.Value) bool {
		return v.Field != lifecycle.CPUSetCPUs && v.Field != lifecycle.CPUSetMems
	})
	if len(lists) == 0 {
		return
	}
	pause, t := n.queue.postpone(id), n.track(id)
	for _, v := range lists {
		if d, ok := t.of(v); ok && d.value == v.String() {
			d.note = fmt.Sprintf("the runtime refused its copy of this (%v); the kernel has it, and the runtime is asked again after %v", cmp.Or(err, errRefused), pause)
			t.deliver(v, d)
		}
	}
}

// errRefused is the error of a runtime that refuses an update without a reason.
var errRefused = errors.New("without a reason")

// requeue has a container's copy brought in line once more, and returns what the
// kernel is to have.
func (n *node) requeue(id string) (items []keeper.Item) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctr := n.state.Container(id)
	if ctr == nil || !ctr.Alive() {
		return nil
	}
	n.queue.add(id)
	target, err := n.target(ctr)
	for _, v := range n.state.Values(ctr) {
		if err == nil && route.InKernel(v.Field) {
			items = append(items, n.item(target, ctr, v))
		}
	}
	return items
}
