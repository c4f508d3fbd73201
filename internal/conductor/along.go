package conductor

import (
	"slices"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// giveAlong has one container's copy brought in line with the answer to an event
// on a node that is never quiet. The runtime writes it before it handles the next
// event, so that no later decision meets it, as one meets an update of our own:
// that waits for the runtime's lock with what was decided before, and would give
// back for a moment what an owner has got meanwhile.
func (n *node) giveAlong(w *work) {
	q := &n.queue
	if len(q.ids) == 0 || !w.can.Piggybacks || !w.tellsOthers() || q.now().Sub(q.since) < mostWait {
		return
	}
	q.since = q.now().Add(alongPace - mostWait) // also where nothing is found: the search is on a request's path
	for i, id := range q.ids {
		values := n.along(w, id)
		if len(values) == 0 {
			continue
		}
		w.answer.Others = append(w.answer.Others, Settings{Container: id, Values: values})
		for _, v := range values {
			n.track(id).store(v.Field, unsure)
		}
		q.ids = append(slices.Delete(q.ids, i, i+1), id)
		q.along[id] = struct{}{}
		return
	}
}

// along returns what the copy of a container lacks that can go with the answer to
// an event: nothing of whom the runtime is about to write itself, and no field
// that another plugin has, which may set it in the same answer.
func (n *node) along(w *work, id string) []lifecycle.Value {
	_, sent := n.queue.along[id]
	t := n.track(id)
	told := slices.ContainsFunc(w.answer.Others, func(s Settings) bool { return s.Container == id })
	if sent || t.pending != nil || t.createPending || told || w.ev.Container != nil && w.ev.Container.ID == id {
		return nil
	}
	return n.outdated(&w.can, id, route.Piggyback)
}
