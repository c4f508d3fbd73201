package agent

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// unready warns in the log while the agent is not ready, with what to do about it.
type unready struct {
	ready func() error
	hint  func() string // what to do; "" where the reason says it
	warn  func(reason error, hint string)
	over  func()
	// first is how long after the start it looks for the first time, every how often it
	// looks, and again after how long it repeats a warning.
	first, every, again time.Duration
}

func (a *Agent) unready() unready {
	return unready{
		ready: a.Ready, hint: a.readyHint,
		warn: func(reason error, hint string) {
			a.log.Warn("the agent is not ready: new containers may start without what their pods ask for", logkey.Hint, hint, logkey.Err, reason)
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
			u.warn(err, u.hint())
		}
	}
}

// readyHint is what to do about an attachment that waits for its runtime's socket.
func (a *Agent) readyHint() string {
	for _, at := range a.attached.all() {
		if state, _, _ := at.Status(); at.Name() == "nri" && state == nri.StateWaiting {
			return `is NRI on? containerd 1.7 has it off: in its config.toml write [plugins."io.containerd.nri.v1.nri"] and below it disable = false, ` +
				`and restart containerd; CRI-O before 1.30: enable_nri = true in [crio.nri]; nri.socket of the configuration must be the runtime's; ` +
				`'trimtab doctor' checks it; attach: bypass works without NRI`
		}
	}
	return ""
}
