package bypass

import (
	"errors"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// report passes one event to the conductor.
func (s *session) report(ev lifecycle.Event) {
	s.recoverPanic(ev.Kind.String(), func() {
		_, err := s.a.o.Handler.Handle(s.ctx, s.a, ev)
		if no, refused := errors.AsType[*conductor.Rejection](err); refused {
			s.a.o.Log.Warn("a policy refused a container, but bypass cannot stop it; the container runs with defaults", logkey.Event, ev.Kind.String(),
				logkey.Pod, ev.Pod.Name, logkey.Namespace, ev.Pod.Namespace, logkey.Reason, no.Reason)
		} else if err != nil {
			s.a.o.Log.Error("the agent could not handle an event, so the event had no effect", logkey.Event, ev.Kind.String(), logkey.Err, err)
		}
	})
}

// recoverPanic runs f. If f panics, it logs the panic, and the agent continues.
func (s *session) recoverPanic(what string, f func()) { connect.RecoverPanic(s.a.o.Log, what, f) }
