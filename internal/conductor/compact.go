package conductor

import "github.com/trimtab/trimtab/internal/lifecycle"

// compact moves what is kept of an event's pods and containers out of the
// message it came in. A runtime's whole list is megabytes, and a few kept words
// in each page of it would hold all of them. Pods are replaced in the event's
// list.
func compact(ev *lifecycle.Event) {
	for i, p := range ev.Pods {
		if p != nil {
			ev.Pods[i] = p.Compact()
		}
	}
	for _, c := range ev.Containers {
		if c != nil {
			c.Together()
		}
	}
}
