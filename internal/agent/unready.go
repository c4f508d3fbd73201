package agent

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// readinessWatcher logs a warning while the agent is not ready.
type readinessWatcher struct {
	ready func() error
	warn  func(reason error)
	over  func()
	// first is the time from the start to the first check, every is the time between checks, and again is
	// the time after which a warning is repeated.
	first, every, again time.Duration
}

func (a *Agent) unready() readinessWatcher {
	return readinessWatcher{
		ready: a.Ready,
		warn: func(reason error) {
			a.log.Warn("the agent is not ready: new containers may start without the values that their pods request", logkey.Err, reason)
		},
		over:  func() { a.log.Info("the agent is ready again") },
		first: 5 * time.Second, every: 10 * time.Second, again: 5 * time.Minute,
	}
}

// run checks until ctx ends.
func (u readinessWatcher) run(ctx context.Context) {
	var quiet time.Duration // the time of the last warning; not used before the first one
	warned := false
	for pause := u.first; sleep.For(ctx, pause); pause = u.every {
		err := u.ready()
		quiet += pause
		switch {
		case err == nil && warned:
			warned = false
			u.over()
		case err != nil && (!warned || quiet >= u.again):
			warned, quiet = true, 0
			u.warn(err)
		}
	}
}
