// Package connect has what every attachment needs for its connection: a state for Status, growing pauses between
// attempts, and calls that recover from a panic. It does not depend on a protocol.
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
	StateIdle         = "not running"
	StateStandby      = "standby" // another agent decides
	StateLost         = "connection lost"
	StateSynchronised = "synchronised" // the agent knows the running containers
)

// DefaultAdmitInterval is the pause between two calls of Admit, unless Attempts.AdmitInterval is set.
const DefaultAdmitInterval = 200 * time.Millisecond

// minPause is the shortest pause between two attempts: a runtime binds its new socket a moment before it listens on
// it.
const minPause = 20 * time.Millisecond

// State is the state of an attachment; StateIdle at first.
type State struct {
	mu   sync.Mutex
	name string // "" means StateIdle
	err  error  // the last error since the attachment last worked
}

// Enter moves to the state with the name now. A new error replaces the last one. StateSynchronised clears the error,
// and all other states keep it for Status. Enter returns the error that it kept. If the state has changed, it logs the
// message what.
func (s *State) Enter(log *slog.Logger, what, now string, err error) error {
	s.mu.Lock()
	changed := cmp.Or(s.name, StateIdle) != now
	s.name = now
	if err != nil || now == StateSynchronised {
		s.err = err
	}
	left := s.err
	s.mu.Unlock()
	if changed {
		log.Debug(what, logkey.State, now, logkey.Err, err)
	}
	return left
}

// Get returns the state, and the last error since the attachment last worked.
func (s *State) Get() (now string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.name, StateIdle), s.err
}

// Backoff bounds the pause between attempts to connect. The pause doubles from Min to Max, with jitter. After a
// connection that worked, the pause starts at Min again.
type Backoff struct{ Min, Max time.Duration }

// WithDefaults returns b with the missing bounds from other. A bound that is 0 is missing.
func (b Backoff) WithDefaults(other Backoff) Backoff {
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
	// Enter moves to a state; err may be nil.
	Enter func(state string, err error)
	// WhyAbsent returns why Run cannot make an attempt yet, or nil if the runtime's socket exists. If the function is
	// nil, Run does not wait for the socket.
	WhyAbsent func() error
	// Admit returns why this agent may not decide yet, or nil if it may. After an error the state is StateStandby, and
	// Run calls Admit again after AdmitInterval, or after DefaultAdmitInterval if that field is 0. If Admit is nil, the
	// agent may always decide.
	Admit         func() error
	AdmitInterval time.Duration
	// Attempt makes one connection and serves it until it is lost. worked reports whether the agent learned the running
	// containers over this connection. The error is never nil.
	Attempt func(ctx context.Context) (worked bool, err error)
	// Run calls OnFailure with an attempt's error if the attempt worked, or if the error differs from the previous one.
	OnFailure func(err error)
	// A value on Wake ends a pause, because the runtime's socket may exist again. A nil channel never ends a pause.
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
		a.Enter(StateLost, err)
		if worked || err.Error() != last { // once per error, not at every attempt
			a.OnFailure(err)
		}
		last = err.Error()
		if worked {
			delay = a.Min
		}
		// Jitter spreads the attempts of agents that lost their runtimes at the same time.
		if a.pause(ctx, delay/2+rand.N(delay/2+1)) {
			delay = a.Min
		} else {
			delay = min(2*delay, a.Max)
		}
	}
}

// wait returns how long to wait before an attempt; 0 means no wait.
func (a Attempts) wait() time.Duration {
	if a.WhyAbsent != nil && a.WhyAbsent() != nil {
		return a.Max
	}
	if a.Admit == nil {
		return 0
	}
	err := a.Admit()
	if err == nil {
		return 0
	}
	a.Enter(StateStandby, err)
	return cmp.Or(a.AdmitInterval, DefaultAdmitInterval)
}

// pause waits, and reports whether Wake ended the pause.
func (a Attempts) pause(ctx context.Context, d time.Duration) bool {
	return sleep.UntilWoken(ctx, d, a.Wake) && sleep.For(ctx, minPause)
}

// RecoverPanic runs f. If f panics, it logs the panic, and the agent continues. It reports whether f returned
// normally.
func RecoverPanic(log *slog.Logger, what string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("the agent recovered from a panic", logkey.In, what, logkey.Panic, fmt.Sprint(r), logkey.Stack, string(debug.Stack()))
		}
	}()
	f()
	return true
}
