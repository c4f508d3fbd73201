package conductor

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// confirm takes note of what the kernel did with what it was given.
func (c *Conductor) confirm(w *work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteLocked(w.wrote)
}

// noteLocked takes note of outcomes, of whatever lives.
func (c *Conductor) noteLocked(outcomes []keeper.Outcome) {
	for _, o := range outcomes {
		owner := o.Target.Owner
		if c.state.Container(owner) == nil && c.state.Pod(owner) == nil {
			continue
		}
		t := c.track(owner)
		before, _ := t.of(o.Value)
		t.deliver(o.Value, fromKernel(o, before))
	}
}

// refused reports a rejection.
func (c *Conductor) refused(w *work, err error) {
	e := c.remember(w, func(e *api.Event) { e.Rejected = err.Error() })
	c.recorder.Refused(refusedRequest)
	c.log.Warn("refused", append(about(w, e.Kind), logkey.Err, err)...)
}

// remember adds an event to the journal.
func (c *Conductor) remember(w *work, complete func(*api.Event)) api.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(w)
	complete(&e)
	c.journal.Add(e)
	return e
}

// report writes journal and log of one event.
func (c *Conductor) report(w *work) {
	if w.limit > 0 && w.took > w.limit {
		w.problems = append(w.problems, tooLate(w))
	}
	e := c.remember(w, func(e *api.Event) { e.Took = w.took })
	c.recorder.Event(w.ev.Kind, e.Took, w.decided)
	for _, p := range e.Problems {
		c.count(w, p)
		c.log.Warn("problem", append(about(w, e.Kind), logkey.Kind, p.Kind(), logkey.Key, p.Key, logkey.Value, p.Value, logkey.Reason, p.Told())...)
	}
	c.reportRefused(w)
	said := len(e.Values) > 0 || len(e.Changed) > 0
	if said && c.log.Enabled(context.Background(), slog.LevelInfo) { // a runtime waits
		c.log.Info("decided", decision(w, &e)...)
	}
}

// reportRefused logs what the kernel refused: of each pod no more than is kept of
// its problems. Status has all of it.
func (c *Conductor) reportRefused(w *work) {
	logged := map[string]int{}
	for _, o := range w.wrote {
		if o.State != keeper.Refused {
			continue
		}
		pod := c.podOf(o.Target.Owner)
		if logged[pod]++; logged[pod] <= lifecycle.MaxProblems {
			c.log.Warn("the kernel refused a value", append(c.whose(o.Target.Owner), logkey.Op, w.op,
				logkey.Field, o.Value.Field.String(), logkey.Err, o.Err)...)
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(logged)) {
		if more := logged[pod] - lifecycle.MaxProblems; more > 0 {
			c.log.Warn("the kernel refused more values of a pod, see explain", append(c.whose(pod), logkey.Op, w.op, logkey.Values, more)...)
		}
	}
}

// podOf returns the sandbox of a container, and what is none as it is.
func (c *Conductor) podOf(owner string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctr := c.state.Container(owner); ctr != nil {
		return ctr.PodID
	}
	return owner
}

// about says which event a line is about.
func about(w *work, kind string) []any {
	out := []any{logkey.Op, w.op, logkey.Event, kind}
	if p := w.ev.Pod; p != nil {
		out = append(out, logkey.Pod, p.Name, logkey.Namespace, p.Namespace)
	}
	if ctr := w.ev.Container; ctr != nil {
		out = append(out, logkey.Container, ctr.Name)
	}
	return out
}

// decision is the one line about what an event came to.
func decision(w *work, e *api.Event) []any {
	out := about(w, e.Kind)
	for _, v := range e.Values {
		if v.Field == lifecycle.CPUSetCPUs.String() {
			out = append(out, logkey.CPUs, v.Value)
		}
	}
	return append(out, logkey.Values, len(e.Values), logkey.Changed, e.Changed)
}

// entry makes the journal's line of an event.
func (c *Conductor) entry(w *work) api.Event {
	v := c.viewLocked()
	e := v.Entry(w.ev, w.plan, w.problems)
	e.Op, e.Time, e.From, e.Again = w.op.String(), c.now(), "configuration", w.again
	if w.from != nil {
		e.From = w.from.Name()
	}
	return e
}

// tooLate is the problem of an answer that no runtime waited for.
func tooLate(w *work) lifecycle.Problem {
	return lifecycle.Problem{
		Warning: true, Value: w.ev.Kind.String(),
		Reason: fmt.Sprintf("the answer took %v and the runtime waits %v", w.took.Round(time.Millisecond), w.limit.Round(time.Millisecond)),
		Then:   "the runtime may have gone on without it; the kernel has what was decided once the container starts",
	}
}
