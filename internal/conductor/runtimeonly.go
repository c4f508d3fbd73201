package conductor

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// runtimeOnlyNote is the note of a value that only the runtime can write.
const runtimeOnlyNote = "written by the runtime: the kernel does not let the agent write the cgroup of its own container (nsdelegate)"

// leaveToRuntime handles values that only the runtime can write, such as those of the agent's own container. If send is
// true, the keeper could not write the value, and the caller must send it to the runtime. oldResult and newResult are
// the results for the value before and after the keeper's attempt. leaveToRuntime changes newResult, so that it names
// the runtime as the writer of the value. The keeper checks later whether the runtime has written the value, and
// reports a missing value as refused.
func (t *track) leaveToRuntime(o *keeper.Outcome, oldResult applyResult, newResult *applyResult) (send bool) {
	const channel = "runtime"
	switch {
	case o.RuntimeOnly():
		t.RuntimeOnly = true
		if oldResult.Applied && oldResult.Value == newResult.Value {
			t.Invalidate(o.Value.Field) // another program overwrote the value
		}
		if oldResult.Applied || oldResult.Value != newResult.Value || oldResult.Channel != channel {
			newResult.Missing = api.NotYet
		}
		newResult.Channel = channel
		return true
	case t.RuntimeOnly && newResult.Applied:
		newResult.Channel, newResult.Note = channel, runtimeOnlyNote
	}
	return false
}

// addRuntimeOnly adds a new value of a container to the answer, if only the runtime can write this value, as for the
// agent's own container. It does so only if the runtime writes the values in an answer before the next event. So CPUs
// that the agent's container loses are free before their new owner starts. The agent also sends a separate update
// later, because no runtime reports that it has applied the values of an answer.
func (w *work) addRuntimeOnly(n *node, ctr *engine.Container, v lifecycle.Value) {
	t := n.track(ctr.ID)
	of := w.report.Event.Container
	if !t.RuntimeOnly || !w.capabilities.Piggybacks || !w.canUpdateOthers() || t.Pending != nil || of != nil && of.ID == ctr.ID {
		return
	}
	k := route.Inputs{WhyLeftToPlugins: n.whyLeftToPlugins(ctr, v.Field), Stored: t.Has(v)}
	if route.ChooseSink(route.PhasePiggyback, &w.capabilities, v, k).Sink != route.ToRuntime {
		return
	}
	w.answer.Others = append(w.answer.Others, Settings{Container: ctr.ID, Values: []lifecycle.Value{v}})
	t.Invalidate(v.Field)
}
