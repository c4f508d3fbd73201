// Package connect is what every attachment does about its connection: the state that
// people are shown, pauses that grow between attempts, and calls of the handler that a
// panic does not end the agent by. It knows no protocol.
package connect

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// States that every attachment has.
const (
	Idle         = "not running"
	Standby      = "standby" // another agent decides
	Lost         = "connection lost"
	Synchronised = "synchronised" // it is known what runs
)

// AdmitAgain is the pause before an attachment asks again whether it may decide.
const AdmitAgain = 200 * time.Millisecond

// settle is the least pause between two attempts: a socket that just appeared
// is bound a moment before it listens.
const settle = 20 * time.Millisecond

// State is how an attachment stands to its runtime; Idle at first.
type State struct {
	mu  sync.Mutex
	now string
	err error
}

// Enter moves to a state. A new error replaces the last one, a working connection clears
// it, and all else leaves it for people to read. It returns the error that is left; the
// change is logged as that of what.
func (s *State) Enter(log *slog.Logger, what, now string, err error) error {
	s.mu.Lock()
	changed := cmp.Or(s.now, Idle) != now
	s.now = now
	if err != nil || now == Synchronised {
		s.err = err
	}
	left := s.err
	s.mu.Unlock()
	if changed {
		log.Debug(what, logkey.State, now, logkey.Err, err)
	}
	return left
}

// Get returns the state, and the last error since it last worked.
func (s *State) Get() (now string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.now, Idle), s.err
}

// Backoff bounds the pause between attempts to connect. It doubles from Min to
// Max, with jitter, and starts over after a connection that worked.
type Backoff struct{ Min, Max time.Duration }

// Or returns bounds with those that are not set taken from others.
func (b Backoff) Or(other Backoff) Backoff {
	if b.Min <= 0 {
		b.Min = other.Min
	}
	if b.Max <= 0 {
		b.Max = other.Max
	}
	return Backoff{b.Min, max(b.Max, b.Min)}
}

// Attempts makes one connection after another.
type Attempts struct {
	Backoff
	// Enter moves to a state, for a reason or none.
	Enter func(state string, err error)
	// Absent returns why no attempt is made yet, or nil where the runtime is there. The
	// function may be nil: then attempts are always made.
	Absent func() error
	// Admit is why this agent may not decide yet: it is in Standby until there is no
	// error, and asks again every Again (AdmitAgain where 0). nil admits always.
	Admit func() error
	Again time.Duration
	// Attempt serves one connection until it is lost. It reports whether it worked; the
	// error is never nil.
	Attempt func(ctx context.Context) (worked bool, err error)
	// Failed takes the error of an attempt, where the last one had another.
	Failed func(err error)
	// Wake ends pauses: the runtime may be there again. nil never does.
	Wake <-chan struct{}
}

// Run makes attempts until ctx ends.
func (a Attempts) Run(ctx context.Context) {
	delay, last := a.Min, ""
	for ctx.Err() == nil {
		if wait := a.wait(); wait > 0 {
			a.pause(ctx, wait)
			delay = a.Min
			continue
		}
		worked, err := a.Attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		a.Enter(Lost, err)
		if worked || err.Error() != last { // once, not at every attempt
			a.Failed(err)
		}
		last = err.Error()
		if worked {
			delay = a.Min
		}
		// Jitter spreads agents that lost their runtimes together.
		if a.pause(ctx, delay/2+rand.N(delay/2+1)) {
			delay = a.Min
		} else {
			delay = min(2*delay, a.Max)
		}
	}
}

// wait is how long to wait before an attempt is made at all; 0 where it can be made.
func (a Attempts) wait() time.Duration {
	if a.Absent != nil && a.Absent() != nil {
		return a.Max
	}
	if a.Admit == nil {
		return 0
	}
	err := a.Admit()
	if err == nil {
		return 0
	}
	a.Enter(Standby, err)
	return cmp.Or(a.Again, AdmitAgain)
}

// pause waits, and reports whether there is a reason to connect at once.
func (a Attempts) pause(ctx context.Context, d time.Duration) bool {
	return sleep.Unless(ctx, d, a.Wake) && sleep.For(ctx, settle)
}

// Poke sends on a channel of capacity 1 without waiting. It does nothing if a value waits there.
func Poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// RecoverPanic keeps a panic of what it calls from ending the agent. It reports whether
// there was none.
func RecoverPanic(log *slog.Logger, what string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("panic contained", logkey.In, what, logkey.Panic, fmt.Sprint(r), logkey.Stack, string(debug.Stack()))
		}
	}()
	f()
	return true
}
