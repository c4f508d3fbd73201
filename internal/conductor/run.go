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
	report  nodeview.EventReport // the event, its plan and its results; for the log, the journal and the metrics
	carrier Carrier              // the attachment that reported the event; nil for an event of the agent
	start   time.Time            // when the agent began to handle the event
	facts   engine.Facts
	// beforeGather runs before facts are gathered, and afterApply runs when the kernel has the decision. Both
	// may be nil.
	beforeGather func()
	afterApply   func() []keeper.Outcome
	// Only events that decide nothing have readState and rewriteValues. readState reads the state under the
	// node's lock. rewriteValues makes the keeper write stored values again. Both may be nil.
	readState     func()
	rewriteValues func() []keeper.Outcome

	capabilities      Capabilities // the capabilities of carrier, or of a connected attachment if carrier is nil
	answer            Answer
	kernelWrites      kernelWrites
	placementDisabled map[string]bool          // see withPlacementDisabled
	err               error                    // a *Rejection; nil if the event is not rejected
	panicked          bool                     // a panic in the agent stopped a step of the event
	firstDescription  bool                     // the event describes a pod or container that the runtime could not describe before
	recordingEntry    *recording.RecordedEvent // nil if no recording is active
}

// kernelWrites is the keeper's work for one event.
type kernelWrites struct {
	itemsToWrite []keeper.Item // the keeper writes these values before the answer
	// itemsToRecord are values that the runtime writes. The keeper records them after the answer (Keeper.RecordOnly).
	itemsToRecord []keeper.Item
	// ownerToReconcile is the id of a container. After itemsToWrite, the keeper writes this container's values that
	// the kernel lacks. "" means no container.
	ownerToReconcile string
	ownersToForget   []string // ids of pods and containers that have ended
	// deferredWrites are made after the answer to a creation. They take CPUs from cgroups, but cpuset partitions have
	// already taken the same CPUs in the kernel, so the writes can wait.
	deferredWrites *keeper.DeferredWrites
}

// newWork begins to handle an event. from is the attachment that reported the event; nil for an event of the agent.
func (c *Conductor) newWork(from Carrier, ev *lifecycle.Event) *work {
	w := &work{report: nodeview.EventReport{Op: logkey.ID(c.opCount.Add(1)), Event: ev}, carrier: from, start: c.now()}
	if from != nil {
		w.report.From, w.capabilities = from.Name(), from.Capabilities()
	}
	return w
}

// internalEvent makes an event of the agent that decides nothing. The parameters read and write become readState and
// rewriteValues of the work.
func internalEvent(k lifecycle.Kind, read func(), write func() []keeper.Outcome) *work {
	return &work{report: nodeview.EventReport{Event: &lifecycle.Event{Kind: k}}, readState: read, rewriteValues: write}
}

// run handles one event. Decisions and the values in force change only in run. The only error that run returns is a
// *Rejection.
func (c *Conductor) run(w *work) (Answer, error) {
	c.eventMu.Lock()
	c.confirmAnswered() // the results of the previous creation must be noted before this event reads them
	c.beginEvent(w)
	c.recoverPanic(w, func() {
		c.gather(w)
		c.node.mu.Lock() // until all values are routed, so that no reader sees half of a decision
		defer c.node.mu.Unlock()
		c.decide(w)
		c.route(w)
	})
	if missed := c.facts.TakeMissedPods(); len(missed) > 0 {
		c.afterAnswers.Go(func() { c.Inform(missed) }) // these events wait until this one has ended
	}
	c.listeners.publish(w)
	w.answer.Op = w.report.Op
	answer := w.answer
	finish := func() {
		defer c.endEvent(w)
		c.apply(w)
		if w.report.Event.Kind == lifecycle.CreateContainer {
			c.confirmLater(w)
		} else {
			c.confirm(w)
		}
	}
	switch {
	case w.err != nil:
		defer c.endEvent(w)
		if w.report.Plan != nil && w.report.Plan.Reject != "" {
			c.reports.ReportRejection(&w.report, w.err)
		}
		c.reports.Count.Event(w.report.Event.Kind, c.now().Sub(w.start), w.report.DecideTime)
		return Answer{Op: w.report.Op}, w.err
	case w.endsWithDecision():
		c.endEvent(w)
	case w.report.Event.Kind == lifecycle.Synchronize:
		// Runtimes disconnect a plugin that answers Synchronize slowly, so the answer does not wait for the
		// kernel writes. eventMu stays locked, so no later event is decided before the values of this one are
		// in the kernel.
		c.afterAnswers.Go(func() {
			finish()
			c.freeMemory()
		})
	default:
		finish()
		answer = w.answer
	}
	return answer, nil
}

// decides reports whether the event makes decisions.
func (w *work) decides() bool { return w.report.Event.Kind < lifecycle.Repair }

// endsWithDecision reports whether the event needs no apply and no confirm step, because it only read the state or
// because its new facts change nothing.
func (w *work) endsWithDecision() bool {
	return !w.decides() && w.rewriteValues == nil || w.changesNothing() && !w.panicked
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

// beginEvent notes that the conductor begins to handle an event. The caller has locked eventMu.
func (c *Conductor) beginEvent(w *work) {
	c.trace(w, stepTurn)
	if w.decides() {
		c.eventTimes.begin(c.now())
	}
}

// endEvent notes that an event has ended, and unlocks eventMu for the next event.
func (c *Conductor) endEvent(w *work) {
	if w.decides() {
		c.eventTimes.end(c.now())
	}
	c.eventMu.Unlock()
}

// recoverPanic runs a part of an event, and recovers from a panic in it. The answer to an event that panicked has no
// values, so the pod continues without a decision. With failurePolicy.agent: fail, a creation is rejected instead.
func (c *Conductor) recoverPanic(w *work, part func()) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		c.log.Error("the agent could not handle an event because of a panic", logkey.Op, w.report.Op, logkey.Event, w.report.Event.Kind.String(), logkey.Panic, r, logkey.Stack, string(debug.Stack()))
		c.reports.Count.HookError(nodeview.AgentPanic)
		w.panicked = true
		w.answer, w.kernelWrites.itemsToWrite, w.kernelWrites.itemsToRecord, w.kernelWrites.ownerToReconcile, w.err = Answer{}, nil, nil, "", nil
		if c.failClosed.Load() && w.report.Event.Kind == lifecycle.CreateContainer {
			w.err = &Rejection{Reason: fmt.Sprintf("the agent could not decide (%v); failurePolicy.agent is Fail, so no container starts without a decision", r)}
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

// gather reads the facts that are available without a wait.
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

// decide makes the plan of an event and commits it to the state. decide and route run under the node's lock and do
// no I/O.
func (c *Conductor) decide(w *work) {
	if w.readState != nil {
		c.trace(w, stepGather)
		w.readState()
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
	c.cpuClasses.scheduleRun(w.report.Event.Kind, c.node.state)
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

// route chooses for each value of the plan how the value reaches its container: with the answer, by the kernel or by
// the runtime's copy.
func (c *Conductor) route(w *work) {
	if w.decides() && w.err == nil {
		c.trace(w, stepRoute)
		c.node.route(w)
	}
}

// apply writes the values that must be in force before the answer. When it returns, containers that lose CPUs to
// another container have lost them.
func (c *Conductor) apply(w *work) {
	c.trace(w, stepApply)
	c.recoverPanic(w, func() {
		if w.rewriteValues != nil {
			w.report.Written = w.rewriteValues()
			return
		}
		to := &w.kernelWrites
		for _, id := range to.ownersToForget {
			c.keeper.Forget(id)
		}
		switch {
		case len(to.itemsToWrite)+len(to.ownersToForget) == 0:
		case w.report.Event.Kind == lifecycle.CreateContainer:
			w.report.Written, to.deferredWrites = c.keeper.ApplyUrgent(to.itemsToWrite)
		default:
			w.report.Written = c.keeper.Apply(to.itemsToWrite)
		}
		if w.report.Event.Kind == lifecycle.StartContainer {
			// This is the last moment before the container's first instruction. Other containers must lose its
			// CPUs now, so the keeper tries again what the kernel refused.
			w.report.Written = append(w.report.Written, c.keeper.RetryFailed()...)
		}
		if to.ownerToReconcile != "" {
			c.keeper.RecordOnly(to.itemsToRecord)
			to.itemsToRecord = nil
			w.report.Written = append(w.report.Written, c.keeper.Reconcile(to.ownerToReconcile)...)
		}
	})
	if w.afterApply != nil {
		c.recoverPanic(w, func() { w.report.Written = append(w.report.Written, w.afterApply()...) })
	}
	w.report.Duration = c.now().Sub(w.start)
}

// confirm notes the results of an event, and writes the event to the log and the journal.
func (c *Conductor) confirm(w *work) {
	c.trace(w, stepConfirm)
	c.recoverPanic(w, func() { w.report.Written = append(w.report.Written, w.kernelWrites.deferredWrites.Apply()...) })
	c.recoverPanic(w, func() {
		c.keeper.RecordOnly(w.kernelWrites.itemsToRecord)
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		c.node.noteOutcomes(w.report.Written)
	})
	isSynchronize := w.report.Event.Kind == lifecycle.Synchronize
	if (isSynchronize || w.firstDescription) && !w.panicked {
		c.restoreEarlier(w)
	}
	if isSynchronize && !w.panicked {
		if err := c.keeper.Tidy(); err != nil {
			c.log.Warn("the agent cannot remove groups or files that an earlier agent left on the node", logkey.Err, err)
		}
		c.node.mu.Lock()
		c.lastSync = c.now()
		c.cpuClasses.retryTimer.Reset(answerDelay)
		c.node.mu.Unlock()
		if c.formerAgent != nil {
			c.recoverPanic(w, c.formerAgent.EndTakeover)
		}
	}
	switch {
	case w.report.Event.Kind == lifecycle.Expect: // the creation of the container is reported later
		c.reports.Count.Event(w.report.Event.Kind, w.report.Duration, w.report.DecideTime)
	case w.decides():
		c.recoverPanic(w, func() { c.reports.Report(&w.report) })
	}
}

// confirmLater postpones the confirm step of a creation, because the pod need not wait for this step. confirmTimer runs
// the step a moment later, unless the next event has run it before.
func (c *Conductor) confirmLater(w *work) {
	c.unconfirmedCreate = w
	c.confirmTimer.Reset(answerDelay)
}

// confirmAnswered confirms the creation that was answered last, if it is not confirmed yet. The caller has locked
// eventMu.
func (c *Conductor) confirmAnswered() {
	if w := c.unconfirmedCreate; w != nil {
		c.unconfirmedCreate = nil
		c.confirmTimer.Stop()
		c.confirm(w)
	}
}

// Flush returns when the values of all earlier decisions are in the kernel, and the decisions are reported.
func (c *Conductor) Flush() {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	c.confirmAnswered()
}

// rewrite makes the keeper write its stored values again, as an event of its own, and notes the results.
func (c *Conductor) rewrite(k lifecycle.Kind, write func() []keeper.Outcome) []keeper.Outcome {
	w := internalEvent(k, nil, write)
	_, _ = c.run(w)
	return w.report.Written
}

// noteOutcomes notes the results of kernel writes for pods and containers that still exist.
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
