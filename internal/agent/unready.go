package agent

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// readinessWatcher logs a warning while the agent is not ready.
type readinessWatcher struct {
	ready   func() error       // returns the reason why the agent is not ready; nil if it is ready
	warn    func(reason error) // logs the warning
	onReady func()             // is called when the agent is ready again after a warning
	// firstCheck is the time from the start to the first check. interval is the time between the later checks. If the
	// agent is still not ready, the warning is logged again after the time repeat.
	firstCheck, interval, repeat time.Duration
}

func (a *Agent) newReadinessWatcher() readinessWatcher {
	return readinessWatcher{
		ready: a.Ready,
		warn: func(reason error) {
			a.log.Warn("the agent is not ready; new containers may start without the values that their pods request", logkey.Err, reason)
		},
		onReady:    func() { a.log.Info("the agent is ready again") },
		firstCheck: 5 * time.Second, interval: 10 * time.Second, repeat: 5 * time.Minute,
	}
}

// run checks at intervals whether the agent is ready, until ctx ends.
func (u readinessWatcher) run(ctx context.Context) {
	var quiet time.Duration // the time since the last warning; has no meaning before the first warning
	warned := false
	for pause := u.firstCheck; sleep.For(ctx, pause); pause = u.interval {
		err := u.ready()
		quiet += pause
		switch {
		case err == nil && warned:
			warned = false
			u.onReady()
		case err != nil && (!warned || quiet >= u.repeat):
			warned, quiet = true, 0
			u.warn(err)
		}
	}
}
