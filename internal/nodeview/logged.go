package nodeview

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxLogged is how many problems of one pod are known to be in the log. More of them, which differ each time, are
// logged again.
const maxLogged = 8 * lifecycle.MaxProblems

// loggedProblems are the problems that the log has of each pod, by UID. A container is decided when it is created,
// started and updated, and again when it is created anew after a crash. Its problems are the same then, and an
// administrator needs to read them once.
type loggedProblems map[string]map[string]bool

// first notes a problem of an event, and reports whether the log lacks it. A problem that belongs to no pod is never
// noted.
func (l *loggedProblems) first(ev *lifecycle.Event, p lifecycle.Problem) bool {
	if ev.Pod == nil || ev.Pod.UID == "" {
		return true
	}
	container := ""
	if ev.Container != nil {
		container = ev.Container.Name
	}
	text := strings.Join([]string{container, p.Key, p.Value, p.Reason}, "\x00")
	of := (*l)[ev.Pod.UID]
	if of[text] {
		return false
	}
	if *l == nil {
		*l = loggedProblems{}
	}
	if of == nil || len(of) >= maxLogged {
		of = map[string]bool{}
		(*l)[ev.Pod.UID] = of
	}
	of[text] = true
	return true
}

// forget drops what is known of a pod that is removed, and of all pods when the runtime lists them again.
func (l *loggedProblems) forget(ev *lifecycle.Event) {
	switch {
	case ev.Kind == lifecycle.Synchronize:
		*l = nil
	case ev.Kind == lifecycle.RemovePodSandbox && ev.Pod != nil:
		delete(*l, ev.Pod.UID)
	}
}
