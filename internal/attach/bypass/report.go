package bypass

import (
	"errors"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// report passes one event to Options.Handler.
func (s *session) report(ev lifecycle.Event) {
	s.recoverPanic(ev.Kind.String(), func() {
		_, err := s.a.o.Handler.Handle(s.ctx, s.a, ev)
		if no, refused := errors.AsType[*conductor.Rejection](err); refused {
			s.a.o.Log.Warn("the agent refused a pod or container, but with the attachment bypass the runtime has already created it, so it runs with defaults", logkey.Event, ev.Kind.String(),
				logkey.Pod, ev.Pod.Name, logkey.Namespace, ev.Pod.Namespace, logkey.Reason, no.Reason)
		} else if err != nil {
			s.a.o.Log.Error("the agent could not handle an event, so the event had no effect", logkey.Event, ev.Kind.String(), logkey.Err, err)
		}
	})
}

// recoverPanic runs f. If f panics, recoverPanic logs the panic with workName, and the agent continues.
func (s *session) recoverPanic(workName string, f func()) {
	connect.RecoverPanic(s.a.o.Log, workName, f)
}
