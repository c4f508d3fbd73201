package conductor

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
)

// capabilities are those of an attachment, or for an event of none those of one that
// is connected. Files of the unified hierarchy are left out of answers, as an OCI
// runtime fails a container for a file its kernel does not have, and in version 1
// for any (runc 1.5: "cannot use unified on cgroup v1"): the keeper writes them when
// the cgroup exists, and reports what the kernel refuses. Where the cgroup comes
// with the first instruction only the runtime is in time, which in version 2 is
// asked.
func (n *node) capabilities(from Carrier) (can Capabilities) {
	if from == nil {
		from = n.connected().from
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

// known is what a value's route depends on.
func (n *node) known(ctr *engine.Container, v lifecycle.Value, p route.Phase, told *lifecycle.Container) route.Known {
	k := route.Known{Contest: n.contest(ctr, v.Field)}
	if p == route.Creating {
		return k
	}
	t, text := n.track(ctr.ID), v.String()
	d, _ := t.of(v)
	k.InForce, k.Stored = d.applied && d.value == text, t.stored[v.Field] == text
	k.Kept = t.kernelOnly(ctr, v) || p != route.Updating && t.staysOut(ctr, v)
	k.Given = told != nil && present(told, v) || untold(v.Field) && t.given[v.Field] == v.Text
	k.Lowers = v.Field == lifecycle.MemoryLimit && v.Int >= 0 && !k.InForce
	return k
}

// bring sends a container's values where they go in this phase of its life, and
// returns them. told is the container as the runtime describes it, nil where it is
// known from before.
func (n *node) bring(w *work, ctr *engine.Container, p route.Phase, told *lifecycle.Container) []lifecycle.Value {
	t, values := n.track(ctr.ID), n.state.Values(ctr)
	var before deliveries
	switch p {
	case route.Living:
		before = t.sent
		fallthrough
	case route.Creating:
		t.sent = make(deliveries, 0, len(values))
	}
	target, err := n.target(ctr)
	for _, v := range values {
		if d, ok := before.of(slotOf(v)); ok && d.value == v.String() {
			t.deliver(v, d)
		}
		k := n.known(ctr, v, p, told)
		k.NoCgroup, k.Unasked = err, w.from == nil
		r := route.Of(p, &w.can, v, k)
		if r.To == route.Answer {
			w.answerWith(t, v, p)
		}
		if err == nil && route.InKernel(v.Field) {
			w.write(p, n.item(target, ctr, v), told != nil && t.recorded)
		}
		switch r.To {
		case route.Runtime:
			n.send(w, ctr, v, p)
		case route.Kernel:
			n.leaveToKernel(ctr, v, p, r.Why, k, told != nil)
		case route.Given:
			t.deliver(v, delivery{channel: "create", value: v.String(), applied: true, note: "given at an earlier time"})
		case route.Unapplied:
			t.lost(v, r.Missing, r.Why)
		}
		if p == route.Updating && !k.Kept && (r.To == route.Kernel || v.Field == lifecycle.Unified) {
			// Before the runtime writes: a burst above the new quota would have
			// the kernel refuse the quota.
			w.kernel.owner = ctr.ID
		}
	}
	return values
}

// answerWith puts a value into the answer to its container's event.
func (w *work) answerWith(t *track, v lifecycle.Value, p route.Phase) {
	w.answer.Values = append(w.answer.Values, v)
	if p == route.Updating {
		t.pending[v.Field] = v.String()
		t.carried(v, w.can.Name+" update")
		return
	}
	t.carried(v, w.can.Name+" create")
	if route.InKernel(v.Field) {
		t.store(v.Field, v.String())
	}
	t.give(v)
}

// write gives the keeper a value. What a resize takes is gone from the kernel before
// others get it, and what it gives is gone from them before: so it is written in one
// batch with theirs, before the runtime writes it, as is what exists already.
func (w *work) write(p route.Phase, it keeper.Item, carried bool) {
	switch {
	case p == route.Starting:
	case p == route.Living, p == route.Updating && it.Value.Field == lifecycle.CPUSetCPUs && w.plan.Moved():
		it.Carried = it.Carried || carried
		w.kernel.items = append(w.kernel.items, it)
	default:
		w.kernel.notes = append(w.kernel.notes, it)
	}
}

// send changes the runtime's stored copy of a container with the answer.
func (n *node) send(w *work, ctr *engine.Container, v lifecycle.Value, p route.Phase) {
	t, others := n.track(ctr.ID), w.answer.Others
	if last := len(others) - 1; p == route.Starting && last >= 0 && others[last].Container == ctr.ID {
		others[last].Values = append(others[last].Values, v)
	} else {
		w.answer.Others = append(others, Settings{Container: ctr.ID, Values: []lifecycle.Value{v}})
	}
	t.store(v.Field, v.String())
	if p != route.Starting {
		n.noteLate(ctr)
	}
	if p != route.Losing {
		t.carried(v, w.can.Name+" update")
	}
	if t.createPending {
		// The runtime may not know it yet, and passes over what it does not know:
		// its copy is brought in line once it does.
		t.passedOver = true
		t.store(v.Field, unsure)
	}
}

// leaveToKernel has a value in the kernel alone, for a reason where the runtime could have
// it, or until the runtime's stored copy is brought in line.
func (n *node) leaveToKernel(ctr *engine.Container, v lifecycle.Value, p route.Phase, why string, k route.Known, told bool) {
	t := n.track(ctr.ID)
	switch p {
	case route.Creating, route.Named:
		if asked, ok := copyFrom(&ctr.Pristine)[v.Field]; ok && why != "" {
			t.store(v.Field, asked) // the runtime's copy has what it was asked for
		}
		if p == route.Named {
			k.Contest = ""
		}
		t.deliver(v, delivery{channel: "kernel", value: v.String(), missing: api.NotYet, alone: why, note: route.AtStart(k.Contest)})
		return
	case route.Living:
		if told && k.Stored {
			t.deliver(v, delivery{channel: "runtime", value: v.String(), applied: true, note: "given at an earlier time"})
		}
	}
	if why != "" {
		t.alone(v, why)
	}
	if p == route.Living {
		n.enqueue(ctr, v)
	}
}

// contest says why a field is not claimed when a container is created, or "".
func (n *node) contest(ctr *engine.Container, f lifecycle.Field) string {
	switch failed := n.undone[ctr.Key]; {
	case n.ceded[f]:
		return "ceded to other plugins by nri.cede"
	case failed >= maxUndone:
		return fmt.Sprintf("not claimed after %d failed creations", failed)
	}
	return ""
}

// kernelOnly reports whether a value is kept from the runtime's copy: a
// container without CPUs of its own in that copy is narrowed in the kernel
// alone, where no update of the runtime undoes it. So the runtime's copy stays
// what was asked for, and a restart finds it so.
func (t *track) kernelOnly(ctr *engine.Container, v lifecycle.Value) bool {
	return v.Field == lifecycle.CPUSetCPUs && v.Why.Hook != lifecycle.OutsideHook && ctr.Seat.Pool == placement.Rest &&
		ctr.Pristine.CPU.CPUs == "" && t.stored[lifecycle.CPUSetCPUs] == ""
}

// staysOut reports whether a value is written to the kernel and kept from the
// runtime's copy for as long as nobody updates the container: it was computed
// from that copy, and without a record the copy alone tells a later start what
// was asked for.
func (t *track) staysOut(ctr *engine.Container, v lifecycle.Value) bool {
	return t.kernelOnly(ctr, v) || v.Scaled && !t.recorded
}

// differs reports whether the runtime's stored copy is to have a value and lacks it.
func (t *track) differs(ctr *engine.Container, v lifecycle.Value) bool {
	return route.Copied(v.Field) && !t.stores(v) && !t.staysOut(ctr, v)
}

// outdated returns the values of a container that its copy in the runtime does
// not have and that can be sent now.
func (n *node) outdated(can *Capabilities, id string, p route.Phase) []lifecycle.Value {
	ctr := n.state.Container(id)
	if ctr == nil || !ctr.Alive() {
		return nil
	}
	if t := n.track(id); t.createPending {
		t.passedOver = true // sent once the runtime knows it
		return nil
	}
	return slices.DeleteFunc(n.state.Values(ctr), func(v lifecycle.Value) bool {
		return route.Of(p, can, v, n.known(ctr, v, p, nil)).To != route.Runtime
	})
}

// enqueue has the runtime's copy brought in line later, where it differs. That copy tells a restart what was asked for
// where there is no record: then the checkpoint does, which is saved long before the queue is quiet enough to be sent.
func (n *node) enqueue(ctr *engine.Container, v lifecycle.Value) {
	if ctr.Unread != "" || !n.track(ctr.ID).differs(ctr, v) {
		return
	}
	if _, late := n.checkpoint.Record(ctr.ID); !late && !n.track(ctr.ID).recorded {
		n.noteLate(ctr)
	}
	n.queue.add(ctr.ID)
}
