package agent

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// unready warns in the log while the agent is not ready.
type unready struct {
	ready func() error
	warn  func(reason error)
	over  func()
	// first is how long after the start it looks for the first time, every how often it
	// looks, and again after how long it repeats a warning.
	first, every, again time.Duration
}

func (a *Agent) unready() unready {
	return unready{
		ready: a.Ready,
		warn: func(reason error) {
			a.log.Warn("the agent is not ready: new containers may start without what their pods ask for", logkey.Err, reason)
		},
		over:  func() { a.log.Info("the agent is ready again") },
		first: 5 * time.Second, every: 10 * time.Second, again: 5 * time.Minute,
	}
}

// run looks until ctx ends.
func (u unready) run(ctx context.Context) {
	var quiet time.Duration // since the last warning; meaningless before the first
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
