package conductor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// updateTimeout limits the wait for the runtime's answer to an update.
const updateTimeout = 10 * time.Second

// sendDue updates the runtime's stored copies of containers with the values that they lack. It sends one update after
// another, as long as an update is due.
func (c *Conductor) sendDue(ctx context.Context) {
	due := func() bool { return c.node.copyDue(c.eventTimes.idleDuration(c.now())) }
	locked := func() bool {
		c.node.mu.Lock()
		defer c.node.mu.Unlock()
		return due()
	}
	for ctx.Err() == nil && c.observer == nil && locked() {
		c.sendCopy(ctx, due)
	}
}

// copyDue reports whether an update of an outdated copy can be sent now. If the queue must wait, copyDue sets the
// queue's timer. idle is the time since the last event.
func (n *node) copyDue(idle time.Duration) bool {
	to := n.anyConnected().carrier
	if to == nil || len(n.queue.Waiting) == 0 {
		return false // the timer is set when a copy becomes outdated, or when a runtime attaches
	}
	wait := n.queue.WaitTime(idle, to.Capabilities().Piggybacks)
	if wait > 0 {
		n.queue.Due.Reset(wait)
	}
	return wait == 0
}

// sendCopy sends to the runtime the values that one of its stored copies lacks. sendCopy makes two events: the first
// event chooses the values, and the second event notes the result. Between the two, other events can be handled,
// because the runtime possibly holds its lock until such an event is answered. The function due reports whether an
// update can be sent now. The first event calls due again, because other events were possibly handled since the
// caller's call of due.
func (c *Conductor) sendCopy(ctx context.Context, due func() bool) bool {
	var to connectedRuntime
	var out *runtimesync.Copy
	var values []lifecycle.Value
	_, _ = c.run(internalEvent(lifecycle.Copy, func() {
		if due() {
			to, out, values = c.node.nextCopy()
		}
	}, nil))
	if len(values) == 0 {
		return out != nil
	}
	limited, cancel := context.WithTimeout(ctx, updateTimeout)
	c.node.checkpoint.AwaitSaved(limited, out.ID) // a restarted agent must know that the kubelet did not request these values
	failed, err := c.updateRuntime(limited, to.runtime, Settings{Container: out.ID, Values: values})
	cancel()
	result := resultOfUpdate(failed, err)
	c.reports.Count.RuntimeUpdate(result)
	// The keeper writes the values after the runtime, because the runtime possibly wrote outdated values to the kernel,
	// or values that no hook decides any more.
	c.rewrite(lifecycle.Copy, func() []keeper.Outcome {
		again, givenUp := c.node.noteUpdate(out, values, c.keeper.Reconcile(out.ID), result != nodeview.UpdateDone, err)
		if givenUp {
			c.log.Warn("the runtime refused several times to update the resources that it stores for a container; the kernel has the decided values",
				append(c.reports.OwnerAttrs(out.ID), logkey.Op, logkey.ID(c.opCount.Add(1)), logkey.Err, err)...)
		}
		return c.keeper.Apply(again)
	})
	return true
}

// updateRuntime sends the values of a container to the runtime. A panic in the attachment counts as a failed update, so
// the values are sent again later.
func (c *Conductor) updateRuntime(ctx context.Context, to Runtime, what Settings) (failed []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			c.reportPanic("update the runtime's copy of a container", r)
			err = fmt.Errorf("the agent failed while it updated the runtime: %v", r)
		}
	}()
	return to.Update(ctx, []Settings{what})
}

// resultOfUpdate returns the result of an update, as the metrics name it.
func resultOfUpdate(failed []string, err error) string {
	switch {
	case err != nil:
		return nodeview.UpdateFailed
	case len(failed) > 0:
		return nodeview.UpdateRefused
	}
	return nodeview.UpdateDone
}

// nextCopy removes the first outdated copy from the queue, and returns the values that the copy lacks.
func (n *node) nextCopy() (to connectedRuntime, out *runtimesync.Copy, values []lifecycle.Value) {
	if to = n.anyConnected(); to.carrier == nil || len(n.queue.Waiting) == 0 {
		return to, nil, nil
	}
	out, can := n.queue.Next(), n.capabilities(to.carrier)
	values = n.missingInCopy(&can, out, route.PhaseCopying)
	n.queue.Sending = len(values) > 0
	return to, out, values
}

// missingInCopy returns the values of a container that the runtime's copy lacks and that can be sent in this phase.
func (n *node) missingInCopy(can *Capabilities, of *runtimesync.Copy, p route.Phase) []lifecycle.Value {
	ctr := n.state.Container(of.ID)
	if ctr == nil || !ctr.Alive() {
		return nil
	}
	return of.MissingValues(ctr, n.state.Values(ctr), p, can, func(f lifecycle.Field) string { return n.whyLeftToPlugins(ctr, f) })
}

// noteUpdate locks the node and notes the result of an update. outcomes has the keeper's results after the update. If
// the agent has decided newer values since the update was sent, noteUpdate queues the copy again. It then returns the
// newer values, because the runtime possibly overwrote them in the kernel. givenUp means that the runtime has refused
// this copy several times. The agent then sends only lists of CPUs and memory nodes again, after a longer pause.
func (n *node) noteUpdate(to *runtimesync.Copy, values []lifecycle.Value, outcomes []keeper.Outcome, refused bool, err error) (again []keeper.Item, givenUp bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue.NoteSendEnded()
	// If another event has decided a new value meanwhile, that event reports the result.
	n.noteOutcomes(slices.DeleteFunc(outcomes, func(o keeper.Outcome) bool {
		d, known := n.tracks[o.Target.Owner].find(o.Value)
		return known && d.Value != o.Value.String()
	}))
	ctr := n.state.Container(to.ID)
	if ctr == nil || !ctr.Alive() {
		n.queue.Remove(to)
		return nil, false
	}
	switch {
	case !refused:
		n.queue.NoteAccepted(to, values)
		if !to.RuntimeOnly {
			n.changeResults(to.ID, values, func(d *applyResult) {
				if d.Applied { // if not, the note already says why the kernel lacks the value
					d.Note = "the runtime's copy agrees"
				}
				d.WhyKernelOnly = ""
			})
		}
	case n.queue.NoteRefused(to):
		givenUp = true
		// Lists of CPUs and memory nodes keep containers off CPUs that others own. So the agent sends these lists
		// again later.
		lists := slices.DeleteFunc(slices.Clone(values), func(v lifecycle.Value) bool {
			return v.Field != lifecycle.CPUSetCPUs && v.Field != lifecycle.CPUSetMems
		})
		if len(lists) == 0 {
			break
		}
		note := fmt.Sprintf("the runtime refused to store the value (%v); the kernel has the value, and the agent asks the runtime again after %v",
			cmp.Or(err, errRefused), n.queue.Postpone(to))
		n.changeResults(to.ID, lists, func(d *applyResult) { d.Note = note })
	}
	decided := n.state.Values(ctr)
	if !slices.ContainsFunc(values, func(v lifecycle.Value) bool { return !slices.ContainsFunc(decided, v.SameSetting) }) {
		return nil, givenUp
	}
	n.queue.Add(to)
	target, unnamed := n.target(ctr)
	for _, v := range decided {
		if unnamed == nil && route.CanWriteToKernel(v.Field) {
			again = append(again, n.keeperItem(target, ctr, v))
		}
	}
	return again, givenUp
}

// errRefused is the error of a runtime that refuses an update without a reason.
var errRefused = errors.New("the runtime gave no reason")

// changeResults changes the stored results of a container's values. It skips values that are no longer the decided
// ones.
func (n *node) changeResults(id string, values []lifecycle.Value, change func(*applyResult)) {
	t := n.track(id)
	for _, v := range values {
		if d, ok := t.find(v); ok && d.Value == v.String() {
			change(&d)
			t.noteResult(v, d)
		}
	}
}

// enqueue queues the runtime's copy of a container for an update if the copy lacks one of the values. If the container
// has no record, a restarted agent assumes that the kubelet requested the values in the runtime's copy. So for such a
// container, enqueue first stores a record with the kubelet's real request in the checkpoint. The checkpoint is saved
// long before the update is sent.
func (n *node) enqueue(ctr *engine.Container, values ...lifecycle.Value) {
	for _, v := range values {
		t := n.track(ctr.ID)
		if ctr.Undescribed.Why != "" || !t.Lacks(ctr, v) {
			continue
		}
		if _, late := n.checkpoint.Record(ctr.ID); !late && !t.Recorded {
			n.storeRecord(ctr)
		}
		n.queue.Add(&t.Copy)
	}
}

// updateCopyInAnswer adds to an event's answer the values that the runtime's copy of another container lacks. It does
// so if the node was not idle for a long time, so that no separate update could be sent. The runtime writes the values
// in an answer before it handles the next event, so it cannot overwrite values of a later decision with them. A
// separate update, on the other hand, waits for the runtime's lock. The runtime could write it after a later grant of
// CPUs, and would so undo the grant for a moment.
func (n *node) updateCopyInAnswer(w *work) {
	if !w.capabilities.Piggybacks || !w.canUpdateOthers() {
		return
	}
	// updateCopyInAnswer adds no values for the event's own container, or for a container that the answer already
	// updates. It adds no field that another plugin sets, because that plugin possibly sets the field in its answer to
	// the same event.
	id, values := n.queue.Piggyback(func(c *runtimesync.Copy) []lifecycle.Value {
		answered := slices.ContainsFunc(w.answer.Others, func(s Settings) bool { return s.Container == c.ID })
		if answered || w.report.Event.Container != nil && w.report.Event.Container.ID == c.ID {
			return nil
		}
		return n.missingInCopy(&w.capabilities, c, route.PhasePiggyback)
	})
	if len(values) > 0 {
		w.answer.Others = append(w.answer.Others, Settings{Container: id, Values: values})
	}
}
