package conductor

import (
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// prepareUpdate re-asserts what we own in whatever the kubelet asks for.
func (c *Conductor) prepareUpdate(w *work, ctr *engine.Container) {
	t := c.track(ctr.ID)
	c.noteLate(ctr)
	t.recorded = t.recorded || stamps(w.from)
	c.createDone(ctr)
	t.storePending() // some runtimes never report that they have written an update
	t.pending = requested(w.ev.Requested)
	target, err := c.target(ctr)
	for _, v := range c.state.Values(ctr) {
		if !inKernel(v.Field) {
			continue
		}
		switch {
		case err != nil:
		case c.resizes(w, v):
			w.items = append(w.items, c.item(target, ctr, v))
		default:
			w.notes = append(w.notes, c.item(target, ctr, v))
		}
		if c.kernelOnly(ctr, v) {
			continue
		}
		hands := c.hands(w.from, runtimes.Request, v)
		why := refuses(w.from, runtimes.Request, v)
		if why == "" && t.lowers(v) {
			hands, why = false, lowersWhy
		}
		if !hands || v.Field == lifecycle.Unified {
			// Before the runtime writes: a burst above the new quota would have
			// the kernel refuse the quota.
			w.settle = ctr.ID
		}
		if !hands {
			if why != "" {
				t.alone(v, why)
			}
			continue
		}
		w.answer.Values = append(w.answer.Values, v)
		t.pending[v.Field] = v.String()
		t.carried(v, w.from.Name()+" update")
	}
	if !stamps(w.from) {
		c.written(ctr) // nobody waited for our answer: it is told of afterwards
	}
}

// prepareFollowing brings a container in line that was resized with its pod: its
// record is of before.
func (c *Conductor) prepareFollowing(w *work, ctr *engine.Container) {
	c.noteLate(ctr)
	c.prepareLive(w, ctr, nil)
}

// resizes reports whether an update gives or takes CPUs. What is taken is gone
// from the kernel before others get it, and what is given is gone from them
// before: so it is written in one batch with theirs, before the runtime writes it.
func (c *Conductor) resizes(w *work, v lifecycle.Value) bool {
	return v.Field == lifecycle.CPUSetCPUs && w.plan.Moved()
}

// createDone notes that the runtime knows a container. What was sent to it until
// now may have been passed over.
func (c *Conductor) createDone(ctr *engine.Container) {
	t := c.track(ctr.ID)
	missed := t.passedOver
	t.createPending, t.passedOver = false, false
	if !missed {
		return
	}
	for _, v := range c.state.Values(ctr) {
		c.enqueue(ctr, v)
	}
}

// written notes that the runtime has stored what an update was answered with,
// on top of whatever its copy got in between.
func (c *Conductor) written(ctr *engine.Container) {
	wrote := c.track(ctr.ID).storePending()
	for _, v := range c.state.Values(ctr) {
		if _, ok := wrote[v.Field]; ok {
			c.enqueue(ctr, v)
		}
	}
}

// storePending notes that the runtime has written the update that was under way,
// and returns what that was.
func (t *track) storePending() copyOf {
	wrote := t.pending
	t.pending = nil
	for f, text := range wrote {
		t.store(f, text)
	}
	return wrote
}
