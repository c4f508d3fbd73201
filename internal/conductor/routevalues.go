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

// capabilities returns the capabilities of the event's attachment, or of a connected attachment
// if the event has none. It removes cgroup v2 files from the answer's fields if the kernel may
// lack them, because an OCI runtime fails a container for an unknown file. With cgroup v1 it
// removes all of them (runc 1.5: "cannot use unified on cgroup v1"). The keeper writes them when
// the cgroup exists, and reports what the kernel refuses. If the cgroup is created only when the
// container starts, only the runtime can write these files in time. In that case they stay in
// the answer.
func (n *node) capabilities(from Carrier) (can Capabilities) {
	if from == nil {
		from = n.connected().carrier
	}
	if from == nil {
		return can
	}
	can = from.Capabilities()
	if !can.HoldsStart || !n.unified {
		can.Create, can.Update = can.Create.Without(lifecycle.Unified), can.Update.Without(lifecycle.Unified)
	}
	return can
}

// routeInputs collects what the route of a value depends on.
func (n *node) routeInputs(ctr *engine.Container, v lifecycle.Value, p route.Phase, reported *lifecycle.Container) route.Inputs {
	k := route.Inputs{ContestedBy: n.whyNotClaimed(ctr, v.Field)}
	if p == route.Creating {
		return k
	}
	t, text := n.track(ctr.ID), v.String()
	d, _ := t.find(v)
	k.InForce, k.Stored = d.Applied && d.Value == text, t.Has(v)
	k.KeptFromCopy = t.KernelOnly(ctr, v) || p != route.Updating && t.KeptFromCopy(ctr, v)
	k.CreatedWith = reported != nil && isPresent(reported, v) || t.createdWith(v)
	k.SetsMemoryLimit = v.Field == lifecycle.MemoryLimit && v.Int >= 0 && !k.InForce
	return k
}

// routeValues sends a container's values to the sinks of this phase of its life, and returns
// them. reported is the container as the runtime describes it; nil if the agent knows the container
// already.
func (n *node) routeValues(w *work, ctr *engine.Container, p route.Phase, reported *lifecycle.Container) []lifecycle.Value {
	t, values := n.track(ctr.ID), n.state.Values(ctr)
	var before deliveries
	switch p {
	case route.Running:
		before = t.results
		fallthrough
	case route.Creating:
		t.results = make(deliveries, 0, len(values))
	}
	target, err := n.target(ctr)
	for _, v := range values {
		if d, ok := before.find(v); ok && d.Value == v.String() {
			t.noteResult(v, d)
		}
		k := n.routeInputs(ctr, v, p, reported)
		k.NoCgroup, k.NoAttachment = err, w.carrier == nil
		r := route.Choose(p, &w.capabilities, v, k)
		if r.Sink == route.Answer {
			w.answerWith(t, v, p)
		}
		if err == nil && (route.InKernel(v.Field) || route.OnProcess(v.Field) && r.Sink == route.Kernel) {
			w.sendToKeeper(p, n.keeperItem(target, ctr, v), reported != nil && t.Recorded)
		}
		switch r.Sink {
		case route.Runtime:
			n.sendInAnswer(w, ctr, v, p)
		case route.Kernel:
			n.keepInKernel(ctr, v, p, r.Reason, k, reported != nil)
		case route.CreatedWith:
			t.noteResult(v, delivery{Channel: "create", Value: v.String(), Applied: true, Note: "applied at an earlier time"})
		case route.Unapplied:
			t.noteUnapplied(v, r.Missing, r.Reason)
		}
		if p == route.Updating && !k.KeptFromCopy && (r.Sink == route.Kernel || v.Field == lifecycle.Unified) {
			// Write it before the runtime writes its values: the kernel refuses a quota below
			// the burst.
			w.kernel.owner = ctr.ID
		}
	}
	return values
}

// answerWith adds a value to the answer for its container's event.
func (w *work) answerWith(t *track, v lifecycle.Value, p route.Phase) {
	w.answer.Values = append(w.answer.Values, v)
	if p == route.Updating {
		t.Pending[v.Field] = v.String()
		t.noteAnswered(v, w.capabilities.Name+" update")
		return
	}
	t.noteAnswered(v, w.capabilities.Name+" create")
	if route.InKernel(v.Field) {
		t.Store(v.Field, v.String())
	}
	t.noteCreatedWith(v)
}

// sendToKeeper gives a value to the keeper. A resize takes CPUs before others get them, and others
// lose CPUs before a resize gives them. So the value is written in one batch with theirs,
// before the runtime writes it.
func (w *work) sendToKeeper(p route.Phase, it keeper.Item, carried bool) {
	switch {
	case p == route.Starting:
	case p == route.Running, p == route.Updating && it.Value.Field == lifecycle.CPUSetCPUs && w.report.Plan.GrantsChanged():
		it.Carried = it.Carried || carried
		w.kernel.items = append(w.kernel.items, it)
	default:
		w.kernel.notes = append(w.kernel.notes, it)
	}
}

// sendInAnswer changes the runtime's stored copy of a container with the answer.
func (n *node) sendInAnswer(w *work, ctr *engine.Container, v lifecycle.Value, p route.Phase) {
	t, others := n.track(ctr.ID), w.answer.Others
	if last := len(others) - 1; p == route.Starting && last >= 0 && others[last].Container == ctr.ID {
		others[last].Values = append(others[last].Values, v)
	} else {
		w.answer.Others = append(others, Settings{Container: ctr.ID, Values: []lifecycle.Value{v}})
	}
	t.NoteSent(v)
	if p != route.Starting {
		n.storeRecord(ctr)
	}
	if p != route.LosingCPUs {
		t.noteAnswered(v, w.capabilities.Name+" update")
	}
}

// keepInKernel writes a value to the kernel only: either permanently, for the reason why, or
// until the runtime's stored copy is updated.
func (n *node) keepInKernel(ctr *engine.Container, v lifecycle.Value, p route.Phase, why string, k route.Inputs, reported bool) {
	t := n.track(ctr.ID)
	switch p {
	case route.Creating, route.Created:
		if asked, ok := runtimesync.FieldTextsOf(&ctr.Pristine)[v.Field]; ok && why != "" {
			t.Store(v.Field, asked) // the runtime's copy has the request
		}
		if p == route.Created {
			k.ContestedBy = ""
		}
		t.noteResult(v, delivery{Channel: "kernel", Value: v.String(), Missing: api.NotYet, WhyKernelOnly: why, Note: route.AtStart(k.ContestedBy)})
		return
	case route.Running:
		if reported && k.Stored {
			t.noteResult(v, delivery{Channel: "runtime", Value: v.String(), Applied: true, Note: "applied at an earlier time"})
		}
	}
	if why != "" {
		d, ok := t.find(v)
		if !ok || d.Value != v.String() {
			d = delivery{Channel: "kernel", Value: v.String(), Missing: api.NotYet, Note: "not written yet"}
		}
		d.WhyKernelOnly = why
		t.noteResult(v, d)
	}
	if p == route.Running {
		n.enqueue(ctr, v)
	}
}

// whyNotClaimed returns the reason why the agent does not set a field at a container's creation;
// "" if the agent sets it.
func (n *node) whyNotClaimed(ctr *engine.Container, f lifecycle.Field) string {
	switch failed := n.failedCreates[ctr.Key]; {
	case n.ceded[f]:
		return "ceded to other plugins by nri.cede"
	case failed >= maxFailedCreates:
		return fmt.Sprintf("not set at creation, because %d creations of this container failed in a row, perhaps because another plugin sets the same field", failed)
	}
	return ""
}
