package conductor

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// work is one event on its way through the door.
type work struct {
	op    logkey.ID
	from  Carrier
	ev    *lifecycle.Event
	facts engine.Facts
	// first is done before facts are gathered, and last when the kernel has what was
	// decided; nil for nothing.
	first func()
	last  func() []keeper.Outcome
	// read and write are all that an event does by which nothing is decided: read runs
	// under the node's lock, write has the keeper write what it knows; nil for nothing.
	read  func()
	write func() []keeper.Outcome

	can         Capabilities // of from; where that is nil, of a runtime that is connected
	plan        *engine.Plan
	answer      Answer
	kernel      writes
	wasUnplaced map[string]bool // see unplaced
	problems    []lifecycle.Problem
	wrote       []keeper.Outcome
	times       times
	failed      bool // a panic of ours cost it something
	again       bool // a creation that carries a record: it was decided before
}

// writes are what goes to the kernel.
type writes struct {
	// items are written before the answer; notes are what the answer carries and the
	// kernel must agree with from then on.
	items, notes []keeper.Item
	owner        string   // whose rows are written out after items
	forget       []string // who is gone
	// rest is what the answer to a creation does not wait for, since the kernel's partitions make it as good as done.
	rest *keeper.Rest
}

// times are when an event came, and how long it took.
type times struct {
	start   time.Time
	decided time.Duration // what deciding took
	took    time.Duration // and all of it, until the answer
	limit   time.Duration // how long the runtime waits for it; 0 where it does not say
}

func (c *Conductor) newWork(from Carrier, ev *lifecycle.Event) *work {
	w := &work{op: logkey.ID(c.ops.Add(1)), from: from, ev: ev, times: times{start: c.now()}}
	if from != nil {
		w.can = from.Capabilities()
	}
	return w
}

// run is the one door: whatever changes what is decided, or what is in force, goes
// through it. The only error it returns is a *Rejection.
func (c *Conductor) run(w *work) (Answer, error) {
	c.turn.Lock()
	c.confirmAnswered() // what this event finds is what the creation before it came to
	c.begin(w)
	err := c.recoverPanic(w, func() error {
		c.gather(w)
		c.node.mu.Lock() // until it is routed: nobody sees half of a decision
		defer c.node.mu.Unlock()
		if err := c.decide(w); err != nil {
			return err
		}
		c.route(w)
		return nil
	})
	w.answer.Op = w.op
	switch answer := w.answer; {
	case err != nil:
		defer c.leave(w)
		if w.plan != nil && w.plan.Reject != "" {
			c.reports.Refused(w.done(), err)
		}
		c.reports.Count.Event(w.ev.Kind, c.now().Sub(w.times.start), w.times.decided)
		return Answer{Op: w.op}, err
	case w.isOver():
		c.leave(w)
		return answer, nil
	case w.ev.Kind == lifecycle.Synchronize:
		// Runtimes drop a plugin that is slow here, and what runs does so with
		// the CPUs it has. The turn stays taken: no later event is decided
		// before this one is in the kernel.
		c.later.Go(func() {
			func() {
				defer c.leave(w)
				c.apply(w)
				c.confirm(w)
			}()
			c.freeMemory()
		})
		return answer, nil
	}
	defer c.leave(w)
	c.apply(w)
	if w.ev.Kind == lifecycle.CreateContainer {
		c.confirmLater(w)
	} else {
		c.confirm(w)
	}
	return w.answer, nil
}

// decides reports whether something is decided by an event.
func (w *work) decides() bool { return w.ev.Kind < lifecycle.Repair }

// isOver reports whether nothing follows from what became known, or was read.
func (w *work) isOver() bool {
	return !w.decides() && w.write == nil || w.ev.Kind == lifecycle.Inform && w.plan != nil && len(w.plan.Changed)+len(w.plan.ChangedPods) == 0 && !w.failed
}

// begin begins the turn of an event.
func (c *Conductor) begin(w *work) {
	c.trace(w, stopTurn)
	if w.decides() {
		c.uptimes.since.Store(max(1, int64(c.uptime())))
	}
}

// leave ends the turn.
func (c *Conductor) leave(w *work) {
	if w.decides() {
		c.uptimes.last.Store(int64(c.uptime()))
		c.uptimes.since.Store(0)
	}
	c.turn.Unlock()
}

// uptime is how long there has been a conductor. Of two of them the difference is
// the time that passed between, whatever the wall clock did.
func (c *Conductor) uptime() time.Duration { return c.now().Sub(c.uptimes.began) }

// recoverPanic runs a part of an event. A panic of ours costs the event its decision,
// never the pod its life: it is logged and answered with no change.
func (c *Conductor) recoverPanic(w *work, part func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("deciding an event failed", logkey.Op, w.op, logkey.Event, w.ev.Kind.String(),
				logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			c.reports.Count.HookError(nodeview.Ourselves)
			w.failed = true
			w.answer, w.kernel.items, w.kernel.notes, w.kernel.owner, err = Answer{}, nil, nil, "", nil
			if c.fail.Load() && w.ev.Kind == lifecycle.CreateContainer {
				err = &Rejection{Reason: fmt.Sprintf("deciding failed: %v: failurePolicy.agent says that no container is created undecided", r)}
			}
		}
	}()
	return part()
}

// gather reads what is decided by: nothing of it is waited for.
func (c *Conductor) gather(w *work) {
	if !w.decides() {
		return
	}
	c.trace(w, stopGather)
	if w.first != nil {
		w.first()
	}
	c.facts.Read(&w.can, w.ev, &w.facts)
	if w.ev.Kind == lifecycle.CreateContainer && w.ev.Container != nil {
		_, w.again = w.facts.Records[w.ev.Container.ID]
		if q, found := w.facts.Distrusted[w.ev.Container.ID]; found {
			c.reports.Foreign(w.done(), q.Reason)
		}
	}
}

// decide makes the plan the state. It runs under the lock, as route: no I/O happens
// there.
func (c *Conductor) decide(w *work) error {
	if !w.decides() {
		if w.read != nil {
			c.trace(w, stopGather)
			w.read()
		}
		return nil
	}
	c.trace(w, stopDecide)
	start := c.now()
	w.plan = engine.Decide(c.node.state, w.ev, w.facts)
	w.times.decided = c.now().Sub(start)
	if w.plan.Reject != "" {
		return &Rejection{Reason: w.plan.Reject}
	}
	w.can = c.node.capabilities(w.from)
	records := w.facts.Records
	w.wasUnplaced = c.node.unplaced(w.ev, records)
	c.node.state.Commit(w.plan)
	for id := range records {
		if c.node.state.Container(id) != nil && (w.from == nil || w.can.Stamps()) {
			t := c.node.track(id)
			t.Recorded = true
			if given := records[id].Given; given != nil {
				t.given = given
			}
		}
	}
	if w.ev.Kind == lifecycle.Synchronize {
		c.findEarlier(w.ev, records)
	}
	w.facts = engine.Facts{}
	return nil
}

// route says where each value of the plan goes.
func (c *Conductor) route(w *work) {
	if w.decides() {
		c.trace(w, stopRoute)
		c.node.route(w)
	}
}

// apply writes to the kernel what cannot wait for the answer. What others lose
// is gone from their cpusets when it returns.
func (c *Conductor) apply(w *work) {
	c.trace(w, stopApply)
	_ = c.recoverPanic(w, func() error {
		if w.write != nil {
			w.wrote = w.write()
			return nil
		}
		to := &w.kernel
		for _, id := range to.forget {
			c.keeper.Forget(id)
		}
		switch {
		case len(to.items)+len(to.forget) == 0:
		case w.ev.Kind == lifecycle.CreateContainer:
			w.wrote, to.rest = c.keeper.ApplyUrgent(to.items)
		default:
			w.wrote = c.keeper.Apply(to.items)
		}
		if w.ev.Kind == lifecycle.StartContainer {
			// The last moment before its first instruction: what others were to give up for it and did not.
			w.wrote = append(w.wrote, c.keeper.SettleFailed()...)
		}
		if to.owner != "" {
			c.keeper.Note(to.notes)
			to.notes = nil
			w.wrote = append(w.wrote, c.keeper.Settle(to.owner)...)
		}
		return nil
	})
	if w.last != nil {
		_ = c.recoverPanic(w, func() error {
			w.wrote = append(w.wrote, w.last()...)
			return nil
		})
	}
	w.times.took = c.now().Sub(w.times.start)
}

// confirm takes note of what became of an event, and reports it.
func (c *Conductor) confirm(w *work) {
	c.trace(w, stopConfirm)
	_ = c.recoverPanic(w, func() error {
		w.wrote = append(w.wrote, w.kernel.rest.Apply()...)
		return nil
	})
	_ = c.recoverPanic(w, func() error {
		c.keeper.Note(w.kernel.notes)
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		c.node.noteOutcomes(w.wrote)
		return nil
	})
	if w.ev.Kind == lifecycle.Synchronize && !w.failed {
		c.giveUp(w)
		if err := c.keeper.Tidy(); err != nil {
			c.log.Warn("what an earlier run left stays", logkey.Err, err)
		}
		c.node.mu.Lock()
		c.synced = c.now()
		c.node.mu.Unlock()
	}
	if w.decides() {
		_ = c.recoverPanic(w, func() error {
			c.reports.Done(w.done())
			return nil
		})
	}
}

// confirmLater leaves what the pod of a creation need not wait for until after the
// answer: the keeper's notes, journal and log. A timer has it done a moment later, or
// the next event, before anything else is decided.
func (c *Conductor) confirmLater(w *work) {
	c.answered = w
	c.confirmDue.Reset(answerDelay)
}

// confirmAnswered confirms the creation that was answered before, of which that is not
// done yet. The caller has the turn.
func (c *Conductor) confirmAnswered() {
	if w := c.answered; w != nil {
		c.answered = nil
		c.confirmDue.Stop()
		c.confirm(w)
	}
}

// Settled returns when what was decided so far is in the kernel and reported.
func (c *Conductor) Settled() {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.confirmAnswered()
}

// rewrite has the keeper write what it knows already, and takes note of the outcomes.
func (c *Conductor) rewrite(k lifecycle.Kind, write func() []keeper.Outcome) []keeper.Outcome {
	w := &work{ev: &lifecycle.Event{Kind: k}, write: write}
	_, _ = c.run(w)
	return w.wrote
}

// noteOutcomes takes note of what the kernel did with what it was given, of whatever lives.
func (n *node) noteOutcomes(outcomes []keeper.Outcome) {
	for _, o := range outcomes {
		owner := o.Target.Owner
		if n.state.Container(owner) == nil && n.state.Pod(owner) == nil {
			continue
		}
		t := n.track(owner)
		before, _ := t.of(o.Value)
		t.deliver(o.Value, fromKernel(o, before))
	}
}

// done is what is reported of an event.
func (w *work) done() nodeview.Done {
	d := nodeview.Done{
		Op: w.op, Event: w.ev, Plan: w.plan, Problems: w.problems, Wrote: w.wrote, Decided: w.times.decided, Took: w.times.took, Limit: w.times.limit, Again: w.again,
	}
	if w.from != nil {
		d.From = w.from.Name()
	}
	return d
}
