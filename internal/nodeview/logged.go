package nodeview

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxLogged limits how many logged problems are stored for one pod. When there are more, all are forgotten, so some are
// logged again.
const maxLogged = 8 * lifecycle.MaxProblems

// loggedProblems has the problems of each pod that were logged, by UID. A container is decided when it is created,
// started and updated, and again when it is recreated after a crash. Its problems are the same then, and an
// administrator needs to read them once.
type loggedProblems map[string]map[string]bool

// isNew reports whether the log does not have a problem of an event yet, and stores that the problem is logged. For an
// event without a pod, isNew always returns true and stores nothing.
func (l *loggedProblems) isNew(ev *lifecycle.Event, p lifecycle.Problem) bool {
	if ev.Pod == nil || ev.Pod.UID == "" {
		return true
	}
	container := ""
	if ev.Container != nil {
		container = ev.Container.Name
	}
	text := strings.Join([]string{container, p.Key, p.Value, p.Reason}, "\x00")
	logged := (*l)[ev.Pod.UID]
	if logged[text] {
		return false
	}
	if *l == nil {
		*l = loggedProblems{}
	}
	if logged == nil || len(logged) >= maxLogged {
		logged = map[string]bool{}
		(*l)[ev.Pod.UID] = logged
	}
	logged[text] = true
	return true
}

// forget drops the problems of a pod that is removed, and of all pods when the runtime lists them again.
func (l *loggedProblems) forget(ev *lifecycle.Event) {
	switch {
	case ev.Kind == lifecycle.Synchronize:
		*l = nil
	case ev.Kind == lifecycle.RemovePodSandbox && ev.Pod != nil:
		delete(*l, ev.Pod.UID)
	}
}
