package nodeview

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxLogged limits how many logged problems are stored for one pod. When a pod has more, the agent forgets all of them,
// so it possibly logs some problems again.
const maxLogged = 8 * lifecycle.MaxProblems

// loggedProblems has the problems that were logged, by pod UID and text. The agent decides a container several times:
// when it is created, started or updated, and when it is recreated after a crash. Usually the decisions have the same
// problems, and the log needs them only once.
type loggedProblems map[string]map[string]bool

// markIfNew reports whether the problem p of an event was not logged before. The caller must then log the problem, because
// markIfNew also stores that it was logged. For an event without a pod, markIfNew always returns true and stores nothing.
func (l *loggedProblems) markIfNew(ev *lifecycle.Event, p lifecycle.Problem) bool {
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

// forget drops the problems of a pod that was removed. After a Synchronize, it drops the problems of all pods.
func (l *loggedProblems) forget(ev *lifecycle.Event) {
	switch {
	case ev.Kind == lifecycle.Synchronize:
		*l = nil
	case ev.Kind == lifecycle.RemovePodSandbox && ev.Pod != nil:
		delete(*l, ev.Pod.UID)
	}
}
