package engine

// maxEnded is how many of the last removed pods are remembered. Events that were
// under way when their pod was removed come within seconds.
const maxEnded = 512

// endedPods are the ids of the last pods that were removed: a later event about one
// of them does not bring it back. The zero value is ready.
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

// late reports whether an event is about a pod that has ended: one that the runtime
// removed, or, for an event that only follows another, an unknown one. Neither is
// added again.
func (d *draft) late(podID string, follows bool) bool {
	return d.n.pod(podID) == nil && (follows || d.n.base.ended.ids[podID])
}
