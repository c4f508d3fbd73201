package engine

// maxEnded is the number of removed sandboxes that are remembered. Late events about a removed sandbox arrive
// within seconds.
const maxEnded = 512

// endedPods has the ids of the sandboxes that were removed last. A late event about one of them does not add
// it again. The zero value is ready to use.
type endedPods struct {
	ids   map[string]bool
	order []string // the ids, the oldest first
}

// add adds an id, and removes the oldest one if there are too many.
func (e *endedPods) add(id string) {
	if e.ids[id] {
		return
	}
	if e.ids == nil {
		e.ids = make(map[string]bool, maxEnded)
	}
	if len(e.order) == maxEnded {
		delete(e.ids, e.order[0])
		e.order = e.order[1:]
	}
	e.ids[id], e.order = true, append(e.order, id)
}

// isLateEvent reports whether an event about a pod comes too late: the pod was removed before. follows means
// that the event can only come after other events, so an unknown pod must have been removed, too.
func (d *draft) isLateEvent(podID string, follows bool) bool {
	return d.n.pod(podID) == nil && (follows || d.n.base.ended.ids[podID])
}
