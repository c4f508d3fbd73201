package conductor

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// capabilities returns the capabilities of the event's attachment, or of a connected attachment if the event has none.
// Usually it removes the field Unified (cgroup v2 files) from the fields that answers can set. If the kernel lacks such
// a file, an OCI runtime does not create the container. On cgroup v1 it refuses every such file (runc 1.5: "cannot use
// unified on cgroup v1"). The keeper writes these files when the cgroup exists, and reports what the kernel refuses.
//
// There is one exception: on cgroup v2, if the attachment can hold starts (HoldsStart), answers can set Unified. With
// such an attachment, a container gets its cgroup only at the start. So only the runtime can write these files before
// the container's first instruction.
func (n *node) capabilities(from Carrier) (can Capabilities) {
	if from == nil {
		from = n.anyConnected().carrier
	}
	if from == nil {
		return can
	}
	can = from.Capabilities()
	if !can.HoldsStart || !n.cgroupV2 {
		can.Create, can.Update = can.Create.Without(lifecycle.Unified), can.Update.Without(lifecycle.Unified)
	}
	return can
}

// routeInputs returns the facts on which the route of a value in a phase depends. reported is the container as the
// runtime describes it; nil if the agent knows the container already.
func (n *node) routeInputs(ctr *engine.Container, v lifecycle.Value, p route.Phase, reported *lifecycle.Container) route.Inputs {
	k := route.Inputs{WhyLeftToPlugins: n.whyLeftToPlugins(ctr, v.Field)}
	if p == route.PhaseCreating {
		return k
	}
	t, text := n.track(ctr.ID), v.String()
	d, _ := t.find(v)
	k.InForce, k.Stored = d.Applied && d.Value == text, t.Has(v)
	k.KeptFromCopy = t.KernelOnly(ctr, v) || p != route.PhaseUpdating && t.KeptFromCopy(ctr, v)
	k.CreatedWith = reported != nil && isPresent(reported, v) || t.createdWith(v)
	k.SetsMemoryLimit = v.Field == lifecycle.MemoryLimit && v.Int >= 0 && !k.InForce
	return k
}

// routeValues passes each value of a container to the answer, the keeper or the runtime's copy, as the routes of this
// phase require. It returns the values. reported is the container as the runtime describes it; nil if the agent knows
// the container already.
func (n *node) routeValues(w *work, ctr *engine.Container, p route.Phase, reported *lifecycle.Container) []lifecycle.Value {
	t, values := n.track(ctr.ID), n.state.Values(ctr)
	var before applyResults
	switch p {
	case route.PhaseRunning:
		before = t.results
		fallthrough
	case route.PhaseCreating:
		t.results = make(applyResults, 0, len(values))
	}
	target, err := n.target(ctr)
	for _, v := range values {
		if d, ok := before.find(v); ok && d.Value == v.String() {
			t.noteResult(v, d)
		}
		k := n.routeInputs(ctr, v, p, reported)
		k.NoCgroup, k.NoAttachment = err, w.carrier == nil
		r := route.ChooseSink(p, &w.capabilities, v, k)
		if r.Sink == route.ToAnswer {
			w.answerWith(t, v, p)
		}
		if err == nil && (route.CanWriteToKernel(v.Field) || route.CanSetOnProcess(v.Field) && r.Sink == route.ToKernel) {
			w.sendToKeeper(p, n.keeperItem(target, ctr, v), reported != nil && t.Recorded)
		}
		switch r.Sink {
		case route.ToRuntime:
			n.updateInAnswer(w, ctr, v, p)
		case route.ToKernel:
			n.keepInKernel(ctr, v, p, r.Reason, k, reported != nil)
		case route.CreatedWith:
			t.noteResult(v, applyResult{Channel: "create", Value: v.String(), Applied: true, Note: "applied at an earlier time"})
		case route.Unapplied:
			t.noteUnapplied(v, r.Missing, r.Reason)
		}
		if p == route.PhaseUpdating && !k.KeptFromCopy && (r.Sink == route.ToKernel || v.Field == lifecycle.Unified) {
			// The keeper writes the value before the runtime writes the kubelet's update. For example, the
			// kernel refuses a quota below the burst, so a lower burst must be written first.
			w.kernelWrites.ownerToReconcile = ctr.ID
		}
	}
	return values
}

// answerWith adds a value of the event's own container to the answer.
func (w *work) answerWith(t *track, v lifecycle.Value, p route.Phase) {
	w.answer.Values = append(w.answer.Values, v)
	if p == route.PhaseUpdating {
		t.Pending[v.Field] = v.String()
		t.noteAnswered(v, w.capabilities.Name+" update")
		return
	}
	t.noteAnswered(v, w.capabilities.Name+" create")
	if route.CanWriteToKernel(v.Field) {
		t.Store(v.Field, v.String())
	}
	t.noteCreatedWith(v)
}

// sendToKeeper passes a value to the keeper. The keeper writes the value, or, if the runtime writes it, only records
// it. If a resize moves CPUs between containers, a container must lose the CPUs before another one gets them. So the
// keeper writes the new CPUs of all these containers in one batch, before the runtime writes the resize. hasRecord
// means that the runtime reported the container with a record, so an earlier agent decided its values, and the runtime
// has possibly written them already.
func (w *work) sendToKeeper(p route.Phase, it keeper.Item, hasRecord bool) {
	switch {
	case p == route.PhaseStarting:
	case p == route.PhaseRunning, p == route.PhaseUpdating && it.Value.Field == lifecycle.CPUSetCPUs && w.report.Plan.GrantsChanged():
		it.RuntimeMayHaveWritten = it.RuntimeMayHaveWritten || hasRecord
		w.kernelWrites.itemsToWrite = append(w.kernelWrites.itemsToWrite, it)
	default:
		w.kernelWrites.itemsToRecord = append(w.kernelWrites.itemsToRecord, it)
	}
}

// updateInAnswer adds to the answer a new value for the runtime's stored copy of a container.
func (n *node) updateInAnswer(w *work, ctr *engine.Container, v lifecycle.Value, p route.Phase) {
	t, others := n.track(ctr.ID), w.answer.Others
	if last := len(others) - 1; p == route.PhaseStarting && last >= 0 && others[last].Container == ctr.ID {
		others[last].Values = append(others[last].Values, v)
	} else {
		w.answer.Others = append(others, Settings{Container: ctr.ID, Values: []lifecycle.Value{v}})
	}
	t.NoteSent(v)
	if p != route.PhaseStarting {
		n.storeRecord(ctr)
	}
	if p != route.PhaseLosingCPUs {
		t.noteAnswered(v, w.capabilities.Name+" update")
	}
}

// keepInKernel notes that only the kernel gets a value, and not the runtime's stored copy. The parameter reason says
// why the runtime never gets the value. If reason is "", the copy gets the value later.
func (n *node) keepInKernel(ctr *engine.Container, v lifecycle.Value, p route.Phase, reason string, k route.Inputs, reported bool) {
	t := n.track(ctr.ID)
	switch p {
	case route.PhaseCreating, route.PhaseCreated:
		if requested, ok := runtimesync.FieldTextsOf(&ctr.Pristine)[v.Field]; ok && reason != "" {
			t.Store(v.Field, requested) // the runtime's copy has the value that the kubelet requested
		}
		if p == route.PhaseCreated {
			k.WhyLeftToPlugins = ""
		}
		t.noteResult(v, applyResult{Channel: "kernel", Value: v.String(), Missing: api.NotYet, WhyKernelOnly: reason, Note: route.NoteForStart(k.WhyLeftToPlugins)})
		return
	case route.PhaseRunning:
		if reported && k.Stored {
			t.noteResult(v, applyResult{Channel: "runtime", Value: v.String(), Applied: true, Note: "applied at an earlier time"})
		}
	}
	if reason != "" {
		d, ok := t.find(v)
		if !ok || d.Value != v.String() {
			d = applyResult{Channel: "kernel", Value: v.String(), Missing: api.NotYet, Note: "not written yet"}
		}
		d.WhyKernelOnly = reason
		t.noteResult(v, d)
	}
	if p == route.PhaseRunning {
		n.enqueue(ctr, v)
	}
}

// whyLeftToPlugins returns the reason why the agent does not set a field at a container's creation, because other
// plugins set the field; "" if the agent sets the field.
func (n *node) whyLeftToPlugins(ctr *engine.Container, f lifecycle.Field) string {
	switch failed := n.failedCreates[ctr.Key]; {
	case n.cededFields[f]:
		return "ceded to other plugins by nri.cede"
	case failed >= maxFailedCreates:
		return fmt.Sprintf("not set at creation, because %d creations of this container failed in a row, perhaps because another plugin sets the same field", failed)
	}
	return ""
}
