package conductor

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
)

// prepareUpdate re-asserts what we own in whatever the kubelet asks for.
func (n *node) prepareUpdate(w *work, ctr *engine.Container) {
	t := n.track(ctr.ID)
	n.noteLate(ctr)
	t.recorded = t.recorded || w.can.Stamps()
	n.createDone(ctr)
	t.storePending() // some runtimes never report that they have written an update
	t.pending = requested(w.ev.Requested)
	n.bring(w, ctr, route.Updating, nil)
	if !w.can.Stamps() {
		n.written(ctr) // nobody waited for our answer: it is reported afterwards
	}
}

// prepareFollowing brings a container in line that was resized with its pod: its
// record is of before.
func (n *node) prepareFollowing(w *work, ctr *engine.Container) {
	n.noteLate(ctr)
	n.prepareLive(w, ctr, nil)
}

// createDone notes that the runtime knows a container. What was sent to it until
// now may have been passed over.
func (n *node) createDone(ctr *engine.Container) {
	t := n.track(ctr.ID)
	missed := t.passedOver
	t.createPending, t.passedOver = false, false
	if !missed {
		return
	}
	for _, v := range n.state.Values(ctr) {
		n.enqueue(ctr, v)
	}
}

// written notes that the runtime has stored what an update was answered with,
// on top of whatever its copy got in between.
func (n *node) written(ctr *engine.Container) {
	wrote := n.track(ctr.ID).storePending()
	for _, v := range n.state.Values(ctr) {
		if _, ok := wrote[v.Field]; ok {
			n.enqueue(ctr, v)
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
