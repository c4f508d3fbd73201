package engine

// maxEnded limits how many removed pods are remembered. Late events about a removed pod come
// within seconds.
const maxEnded = 512

// endedPods are the ids of the pods that were removed last. A late event about one of them does
// not add it again. The zero value is ready.
type endedPods struct {
	ids   map[string]bool
	order []string // the same, in order of arrival
}

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

// afterEnd reports whether the event is late: its pod was removed, or the pod is unknown and
// the event can only follow another (follows). Such a pod is not added again.
func (d *draft) afterEnd(podID string, follows bool) bool {
	return d.n.pod(podID) == nil && (follows || d.n.base.ended.ids[podID])
}
