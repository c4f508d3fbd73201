package engine

// maxEndedPods is the largest number of removed sandboxes whose ids the state stores. This is enough, because late
// events about a removed sandbox arrive within seconds.
const maxEndedPods = 512

// endedPods has the ids of the sandboxes that were removed last. A late event about such a sandbox does not add the
// sandbox again. The zero value is ready to use.
type endedPods struct {
	ids   map[string]bool
	order []string // the ids, the oldest first
}

// add adds an id. If there are maxEndedPods ids already, it removes the oldest id.
func (e *endedPods) add(id string) {
	if e.ids[id] {
		return
	}
	if e.ids == nil {
		e.ids = make(map[string]bool, maxEndedPods)
	}
	if len(e.order) == maxEndedPods {
		delete(e.ids, e.order[0])
		e.order = e.order[1:]
	}
	e.ids[id], e.order = true, append(e.order, id)
}

// isLateEvent reports whether an event about a pod comes after the removal of the pod. neverFirst means that an event
// of this kind is never the first event of a pod. If such an event is about an unknown pod, the pod must have been
// removed before.
func (d *draft) isLateEvent(podID string, neverFirst bool) bool {
	return d.n.pod(podID) == nil && (neverFirst || d.n.base.endedPods.ids[podID])
}
