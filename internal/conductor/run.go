package conductor

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/recording"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// work is one event while it is handled.
type work struct {
	report  nodeview.EventReport // the report about it
	carrier Carrier
	start   time.Time
	facts   engine.Facts
	// beforeGather runs before facts are gathered, and afterApply runs when the kernel has the decision. Both
	// may be nil.
	beforeGather func()
	afterApply   func() []keeper.Outcome
	// read and write are used by events that decide nothing. read runs under the node's lock.
	// write makes the keeper write stored values again. Both may be nil.
	read  func()
	write func() []keeper.Outcome

	capabilities      Capabilities // those of carrier, or of a connected attachment if carrier is nil
	answer            Answer
	kernel            writes
	placementDisabled map[string]bool          // see withPlacementDisabled
	err               error                    // a *Rejection
	failed            bool                     // a panic in the agent made a part of the event fail
	firstDescription  bool                     // the event describes a pod or container that the runtime could not describe before
	entry             *recording.RecordedEvent // for recordings; nil if there is none
}

// writes are values for the kernel.
type writes struct {
	// The keeper writes items before the answer. notes are values in the answer that the keeper
	// tracks afterwards.
	items, notes []keeper.Item
	owner        string   // the keeper writes this owner's rows after items
	forget       []string // pods and containers that have ended
	// deferred are writes that a creation's answer does not wait for, since the kernel's
	// partitions have the same effect.
	deferred *keeper.Deferred
}

func (c *Conductor) newWork(from Carrier, ev *lifecycle.Event) *work {
	w := &work{report: nodeview.EventReport{Op: logkey.ID(c.ops.Add(1)), Event: ev}, carrier: from, start: c.now()}
	if from != nil {
		w.report.From, w.capabilities = from.Name(), from.Capabilities()
	}
	return w
}

// internalEvent makes an event of the agent that decides nothing.
func internalEvent(k lifecycle.Kind, read func(), write func() []keeper.Outcome) *work {
	return &work{report: nodeview.EventReport{Event: &lifecycle.Event{Kind: k}}, read: read, write: write}
}

// run handles one event. Everything that changes a decision, or what is in force, goes through
// it. The only error it returns is a *Rejection.
func (c *Conductor) run(w *work) (Answer, error) {
	c.turn.Lock()
	c.confirmAnswered() // this event reads the results of the previous creation
	c.beginTurn(w)
	c.recoverPanic(w, func() {
		c.gather(w)
		c.node.mu.Lock() // until it is routed, so that no reader sees half of a decision
		defer c.node.mu.Unlock()
		c.decide(w)
		c.route(w)
	})
	if missed := c.facts.TakeMissedPods(); len(missed) > 0 {
		c.continuing.Go(func() { c.Inform(missed) }) // these events get their turns after this one
	}
	c.listeners.publish(w)
	w.answer.Op = w.report.Op
	answer := w.answer
	finish := func() {
		defer c.endTurn(w)
		c.apply(w)
		if w.report.Event.Kind == lifecycle.CreateContainer {
			c.confirmLater(w)
		} else {
			c.confirm(w)
		}
	}
	switch {
	case w.err != nil:
		defer c.endTurn(w)
		if w.report.Plan != nil && w.report.Plan.Reject != "" {
			c.reports.ReportRejection(&w.report, w.err)
		}
		c.reports.Count.Event(w.report.Event.Kind, c.now().Sub(w.start), w.report.DecideTime)
		return Answer{Op: w.report.Op}, w.err
	case w.isOver():
		c.endTurn(w)
	case w.report.Event.Kind == lifecycle.Synchronize:
		// Runtimes disconnect a plugin that answers Synchronize slowly, so the answer does not
		// wait for the kernel writes. The turn stays taken, so no later event is decided before
		// this one is in the kernel.
		c.continuing.Go(func() {
			finish()
			c.freeMemory()
		})
	default:
		finish()
		answer = w.answer
	}
	return answer, nil
}

// decides reports whether the event decides something.
func (w *work) decides() bool { return w.report.Event.Kind < lifecycle.Repair }

// isOver reports whether the event is complete without an apply and a confirm step: it only read the state, or its new
// facts change nothing.
func (w *work) isOver() bool {
	return !w.decides() && w.write == nil || w.changesNothing() && !w.failed
}

// changesNothing reports whether the decision of an Inform or Expect event changes nothing.
func (w *work) changesNothing() bool {
	p := w.report.Plan
	switch w.report.Event.Kind {
	case lifecycle.Inform:
		return p != nil && len(p.Changed)+len(p.ChangedPods) == 0
	case lifecycle.Expect:
		return p != nil && !p.GrantsChanged()
	}
	return false
}

// beginTurn starts the turn of an event.
func (c *Conductor) beginTurn(w *work) {
	c.trace(w, stepTurn)
	if w.decides() {
		c.uptimes.begin(c.now())
	}
}

// endTurn ends the turn of an event, so that the next event begins.
func (c *Conductor) endTurn(w *work) {
	if w.decides() {
		c.uptimes.end(c.now())
	}
	c.turn.Unlock()
}

// recoverPanic runs a part of an event. A panic is logged and answered without changes: the
// event has no decision, and the pod continues. With failurePolicy.agent: fail, a creation is
// rejected.
func (c *Conductor) recoverPanic(w *work, part func()) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		c.log.Error("an event could not be decided", logkey.Op, w.report.Op, logkey.Event, w.report.Event.Kind.String(), logkey.Panic, r, logkey.Stack, string(debug.Stack()))
		c.reports.Count.HookError(nodeview.AgentPanic)
		w.failed = true
		w.answer, w.kernel.items, w.kernel.notes, w.kernel.owner, w.err = Answer{}, nil, nil, "", nil
		if c.failClosed.Load() && w.report.Event.Kind == lifecycle.CreateContainer {
			w.err = &Rejection{Reason: fmt.Sprintf("the agent could not decide (%v), and with failurePolicy.agent: fail no container starts without a decision", r)}
		}
	}()
	part()
}

// firstDescription reports whether the event describes a pod or container that the runtime could
// not describe before.
func firstDescription(s *engine.State, ev *lifecycle.Event) (is bool) {
	switch ev.Kind {
	case lifecycle.RunPodSandbox:
		_, is = s.IsLive(ev.Pod.ID)
	case lifecycle.StartContainer:
		_, is = s.IsLive(ev.Container.ID)
	}
	return is
}

// gather reads the facts that need no wait.
func (c *Conductor) gather(w *work) {
	if !w.decides() {
		return
	}
	c.trace(w, stepGather)
	if w.beforeGather != nil {
		w.beforeGather()
	}
	c.facts.CollectMissedPods()
	c.facts.Read(&w.capabilities, w.report.Event, &w.facts)
	if w.report.Event.Kind == lifecycle.CreateContainer && w.report.Event.Container != nil {
		_, w.report.Repeated = w.facts.Records[w.report.Event.Container.ID]
		if q, found := w.facts.UntrustedRecords[w.report.Event.Container.ID]; found {
			c.reports.ReportForeignRecord(&w.report, q.Reason)
		}
	}
}

// decide commits the plan to the state. It runs under the lock, like route; neither does I/O.
func (c *Conductor) decide(w *work) {
	if w.read != nil {
		c.trace(w, stepGather)
		w.read()
	}
	if !w.decides() {
		return
	}
	c.trace(w, stepDecide)
	entry := c.listeners.newEntry(c.node.state, w)
	start := c.now()
	w.report.Plan = engine.Decide(c.node.state, w.report.Event, w.facts)
	w.report.DecideTime = c.now().Sub(start)
	c.node.state.CountMatches(w.report.Plan)
	if w.report.Plan.Reject != "" {
		w.record(entry, c.node.state)
		w.err = &Rejection{Reason: w.report.Plan.Reject}
		return
	}
	w.capabilities = c.node.capabilities(w.carrier)
	w.firstDescription = firstDescription(c.node.state, w.report.Event)
	records := w.facts.Records
	w.placementDisabled = c.node.withPlacementDisabled(w.report.Event, records)
	c.node.state.Commit(w.report.Plan)
	c.classes.update(w.report.Event.Kind, c.node.state)
	w.record(entry, c.node.state)
	for id := range records {
		if c.node.state.Container(id) != nil && (w.carrier == nil || w.capabilities.CarriesRecords()) {
			t := c.node.track(id)
			t.Recorded = true
			if given := records[id].CreatedWith; given != nil {
				t.creationValues = given
			}
		}
	}
	if w.report.Event.Kind == lifecycle.Synchronize {
		c.checkEarlierAgent(records)
	}
	w.facts = engine.Facts{}
}

// route decides where each value of the plan goes.
func (c *Conductor) route(w *work) {
	if w.decides() && w.err == nil {
		c.trace(w, stepRoute)
		c.node.route(w)
	}
}

// apply writes the values that must be in force before the answer. When it returns, other
// containers have lost the CPUs that they give up.
func (c *Conductor) apply(w *work) {
	c.trace(w, stepApply)
	c.recoverPanic(w, func() {
		if w.write != nil {
			w.report.Written = w.write()
			return
		}
		to := &w.kernel
		for _, id := range to.forget {
			c.keeper.Forget(id)
		}
		switch {
		case len(to.items)+len(to.forget) == 0:
		case w.report.Event.Kind == lifecycle.CreateContainer:
			w.report.Written, to.deferred = c.keeper.ApplyUrgent(to.items)
		default:
			w.report.Written = c.keeper.Apply(to.items)
		}
		if w.report.Event.Kind == lifecycle.StartContainer {
			// This is the last moment before the container's first instruction, so other
			// containers must give up its CPUs now.
			w.report.Written = append(w.report.Written, c.keeper.RetryFailed()...)
		}
		if to.owner != "" {
			c.keeper.Note(to.notes)
			to.notes = nil
			w.report.Written = append(w.report.Written, c.keeper.Reconcile(to.owner)...)
		}
	})
	if w.afterApply != nil {
		c.recoverPanic(w, func() { w.report.Written = append(w.report.Written, w.afterApply()...) })
	}
	w.report.Duration = c.now().Sub(w.start)
}

// confirm notes the results of an event, and reports it.
func (c *Conductor) confirm(w *work) {
	c.trace(w, stepConfirm)
	c.recoverPanic(w, func() { w.report.Written = append(w.report.Written, w.kernel.deferred.Apply()...) })
	c.recoverPanic(w, func() {
		c.keeper.Note(w.kernel.notes)
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		c.node.noteOutcomes(w.report.Written)
	})
	takesOver := w.report.Event.Kind == lifecycle.Synchronize
	if (takesOver || w.firstDescription) && !w.failed {
		c.restoreEarlier(w)
	}
	if takesOver && !w.failed {
		if err := c.keeper.Tidy(); err != nil {
			c.log.Warn("values of an earlier agent are not removed", logkey.Err, err)
		}
		c.node.mu.Lock()
		c.synced = c.now()
		c.classes.retryTimer.Reset(answerDelay)
		c.node.mu.Unlock()
		if c.former != nil {
			c.recoverPanic(w, c.former.TookOver)
		}
	}
	switch {
	case w.report.Event.Kind == lifecycle.Expect: // the creation of the container is reported later
		c.reports.Count.Event(w.report.Event.Kind, w.report.Duration, w.report.DecideTime)
	case w.decides():
		c.recoverPanic(w, func() { c.reports.Report(&w.report) })
	}
}

// confirmLater postpones work that the pod of a creation need not wait for: the keeper's notes,
// journal and log. A timer does it a moment later, or the next event does it before anything
// else.
func (c *Conductor) confirmLater(w *work) {
	c.answered = w
	c.confirmDue.Reset(answerDelay)
}

// confirmAnswered confirms the creation that was answered last, if it is not confirmed yet. The
// caller has the turn.
func (c *Conductor) confirmAnswered() {
	if w := c.answered; w != nil {
		c.answered = nil
		c.confirmDue.Stop()
		c.confirm(w)
	}
}

// Flush returns when all earlier decisions are in the kernel and reported.
func (c *Conductor) Flush() {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.confirmAnswered()
}

// rewrite makes the keeper write values that it has, and notes the results.
func (c *Conductor) rewrite(k lifecycle.Kind, write func() []keeper.Outcome) []keeper.Outcome {
	w := internalEvent(k, nil, write)
	_, _ = c.run(w)
	return w.report.Written
}

// noteOutcomes notes the kernel's results for pods and containers that still live.
func (n *node) noteOutcomes(outcomes []keeper.Outcome) {
	for _, o := range outcomes {
		owner := o.Target.Owner
		if n.state.Container(owner) == nil && n.state.Pod(owner) == nil {
			continue
		}
		t := n.track(owner)
		before, _ := t.find(o.Value)
		after := fromOutcome(o, before)
		if ctr := n.state.Container(owner); ctr != nil && route.IsCopied(o.Value.Field) && t.leaveToRuntime(&o, before, &after) {
			n.enqueue(ctr, o.Value)
		}
		t.noteResult(o.Value, after)
	}
}
