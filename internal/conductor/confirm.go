package conductor

import (
	"fmt"
	"time"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/status"
)

// confirm takes note of what the kernel did with what it was given.
func (c *Conductor) confirm(w *work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for owner, all := range w.wrote {
		if c.state.Container(owner) == nil && c.state.Pod(owner) == nil {
			continue
		}
		for _, o := range all {
			c.deliver(owner, o.Value, fromKernel(o, c.sent[owner][slotOf(o.Value)]))
		}
	}
}

// refused reports a rejection.
func (c *Conductor) refused(w *work, err error) {
	c.mu.Lock()
	e := c.entry(w)
	e.Rejected = err.Error()
	c.journal.add(e)
	c.mu.Unlock()
	c.recorder.Refused(refusedRequest)
	c.log.Warn("refused", append(about(w, e.Kind), logkey.Err, err)...)
}

// report writes journal and log of one event.
func (c *Conductor) report(w *work, start time.Time) {
	c.mu.Lock()
	e := c.entry(w)
	e.Took = c.now().Sub(start)
	c.journal.add(e)
	c.mu.Unlock()
	c.recorder.Event(w.ev.Kind, e.Took, w.decided)
	for _, p := range e.Problems {
		c.count(w, p)
		c.log.Warn("problem", append(about(w, e.Kind), logkey.Key, p.Key, logkey.Value, p.Value, logkey.Reason, p.Reason)...)
	}
	for _, all := range w.wrote {
		for _, o := range all {
			if o.State == keeper.Refused {
				c.log.Warn("the kernel refused a value", logkey.Op, w.op, logkey.Owner, o.Target.Owner,
					logkey.Field, o.Value.Field.String(), logkey.Err, o.Err)
			}
		}
	}
	if len(e.Values) > 0 || len(e.Changed) > 0 {
		c.log.Info("decided", c.decision(w, &e)...)
	}
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
func (c *Conductor) decision(w *work, e *status.Event) []any {
	out := about(w, e.Kind)
	for _, v := range e.Values {
		if v.Field == lifecycle.CPUSetCPUs.String() {
			out = append(out, logkey.CPUs, v.Value)
		}
	}
	return append(out, logkey.Values, len(e.Values), logkey.Changed, e.Changed)
}

// entry makes the journal's line of an event.
func (c *Conductor) entry(w *work) status.Event {
	e := status.Event{Op: w.op.String(), Time: c.now(), Kind: w.ev.Kind.String(), From: "configuration", Problems: w.problems}
	if w.from != nil {
		e.From = w.from.Name()
	}
	if w.ev.Pod != nil {
		e.Pod = w.ev.Pod.Namespace + "/" + w.ev.Pod.Name
	}
	if w.ev.Container != nil {
		e.Container = w.ev.Container.Name
	}
	if w.plan == nil {
		return e
	}
	if ctr := w.plan.Container; ctr != nil && decides(w.ev.Kind) {
		e.Problems = append(e.Problems, ctr.Trouble...)
		if now := c.state.Container(ctr.ID); now != nil {
			e.Values = c.values(now.ID, c.state.Values(now))
		}
	}
	if p := w.plan.Pod; p != nil && w.ev.Kind == lifecycle.RunPodSandbox {
		e.Problems = append(e.Problems, p.Intent.Problems...)
		e.Problems = append(e.Problems, p.Trouble...)
		e.Values = c.values(p.Pod.ID, p.Values)
	}
	for _, s := range w.plan.Seats {
		e.Changed = append(e.Changed, fmt.Sprintf("%s: %s -> %s (%d containers)", s.Seat.Pool,
			c.state.Machine.Format(s.Before), c.state.Machine.Format(s.After), len(s.Members)))
	}
	if w.ev.Kind == lifecycle.Synchronize || w.ev.Kind == lifecycle.Configure {
		e.Changed = append(e.Changed, fmt.Sprintf("%d pods, %d containers decided anew", len(w.plan.ChangedPods), len(w.plan.Changed)))
	}
	return e
}

// decides tells the events whose values are worth a line.
func decides(k lifecycle.Kind) bool {
	return k == lifecycle.CreateContainer || k == lifecycle.UpdateContainer || k == lifecycle.StartContainer
}
