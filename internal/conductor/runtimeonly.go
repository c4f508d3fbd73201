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

// leaveToRuntime reports whether only the runtime can write a value, as for the agent's own container. It changes
// after, the value's new result, accordingly. The caller then sends the value to the runtime, and the keeper checks the
// runtime's write. A value that the keeper does not find counts as refused.
func (t *track) leaveToRuntime(o *keeper.Outcome, before delivery, after *delivery) (send bool) {
	const channel = "runtime"
	switch {
	case o.RuntimeOnly():
		t.RuntimeOnly = true
		if before.Applied && before.Value == after.Value {
			t.Invalidate(o.Value.Field) // another program overwrote it
		}
		if before.Applied || before.Value != after.Value || before.Channel != channel {
			after.Missing = api.NotYet
		}
		after.Channel = channel
		return true
	case t.RuntimeOnly && after.Applied:
		after.Channel, after.Note = channel, runtimeOnlyNote
	}
	return false
}

// sendRuntimeOnly adds the CPUs of the agent's own container to the answer, if the runtime writes them before the next
// event. CPUs that the agent's container loses are then free before their new owner starts. The agent sends another
// update later, because no runtime reports that it applied this one.
func (w *work) sendRuntimeOnly(n *node, ctr *engine.Container, v lifecycle.Value) {
	t := n.track(ctr.ID)
	of := w.report.Event.Container
	if !t.RuntimeOnly || !w.capabilities.Piggybacks || !w.canUpdateOthers() || t.Pending != nil || of != nil && of.ID == ctr.ID {
		return
	}
	k := route.Inputs{ContestedBy: n.whyNotClaimed(ctr, v.Field), Stored: t.Has(v)}
	if route.ChooseSink(route.PhasePiggyback, &w.capabilities, v, k).Sink != route.ToRuntime {
		return
	}
	w.answer.Others = append(w.answer.Others, Settings{Container: ctr.ID, Values: []lifecycle.Value{v}})
	t.Invalidate(v.Field)
}
