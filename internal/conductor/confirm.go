package conductor

import (
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/nodeview"
)

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
