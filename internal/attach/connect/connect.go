// Package connect has what every attachment needs for its connection to the runtime: a state for the status, growing
// pauses between attempts to connect, and calls that recover from a panic. The package does not depend on a protocol.
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
	StateStandby      = "standby" // another agent decides, and this agent waits
	StateLost         = "connection lost"
	StateSynchronised = "synchronised" // the agent knows the running containers
)

// DefaultAdmitInterval is the pause between two calls of Admit, unless Attempts.AdmitInterval is set.
const DefaultAdmitInterval = 200 * time.Millisecond

// minPause is the pause between a value on Attempts.Wake and the next attempt. The attempt must not be earlier, because
// a runtime binds a new socket a moment before it listens on the socket.
const minPause = 20 * time.Millisecond

// State is the state of an attachment; StateIdle at first.
type State struct {
	mu   sync.Mutex
	name string // "" means StateIdle
	err  error  // the last error since the attachment last worked
}

// Enter changes the state to the one with this name, and logs the message if the state has changed. If err is not nil,
// it replaces the stored error. StateSynchronised clears the stored error, and other states keep it for the status.
// Enter returns the error that is stored now.
func (s *State) Enter(log *slog.Logger, message, name string, err error) error {
	s.mu.Lock()
	changed := cmp.Or(s.name, StateIdle) != name
	s.name = name
	if err != nil || name == StateSynchronised {
		s.err = err
	}
	stored := s.err
	s.mu.Unlock()
	if changed {
		log.Debug(message, logkey.State, name, logkey.Err, err)
	}
	return stored
}

// Get returns the name of the state, and the last error since the attachment last worked.
func (s *State) Get() (name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.name, StateIdle), s.err
}

// Backoff bounds the pause between attempts to connect. The pause doubles from Min to Max, with jitter. After a
// connection that worked, the pause starts at Min again.
type Backoff struct{ Min, Max time.Duration }

// WithDefaults returns b, and replaces a bound that is 0 by that of defaults.
func (b Backoff) WithDefaults(defaults Backoff) Backoff {
	if b.Min <= 0 {
		b.Min = defaults.Min
	}
	if b.Max <= 0 {
		b.Max = defaults.Max
	}
	return Backoff{b.Min, max(b.Max, b.Min)}
}

// Attempts makes one connection to the runtime after another.
type Attempts struct {
	Backoff
	// Run calls Enter when the attachment's state changes. err is the error that caused the change.
	Enter func(state string, err error)
	// WhyAbsent returns why Run cannot make an attempt yet, or nil if the runtime's socket exists. If the function is
	// nil, Run does not wait for the socket.
	WhyAbsent func() error
	// Admit returns nil if this agent may make decisions now; otherwise the error says why not. After an error the
	// state is StateStandby, and Run calls Admit again after AdmitInterval, or after DefaultAdmitInterval if
	// AdmitInterval is 0. If Admit is nil, the agent may always make decisions.
	Admit         func() error
	AdmitInterval time.Duration
	// Attempt makes one connection and serves it until the connection is lost. worked reports whether the runtime sent
	// the list of running containers over this connection. The error is never nil.
	Attempt func(ctx context.Context) (worked bool, err error)
	// Run calls OnFailure with an attempt's error if worked was true, or if the error differs from the previous one.
	OnFailure func(err error)
	// A value on Wake ends a pause between attempts, because the runtime's socket possibly exists again. A nil channel
	// never ends a pause.
	Wake <-chan struct{}
}

// Run makes attempts until ctx ends.
func (a Attempts) Run(ctx context.Context) {
	delay, lastError := a.Min, ""
	for ctx.Err() == nil {
		if wait := a.timeToNextCheck(); wait > 0 {
			a.pause(ctx, wait)
			delay = a.Min
			continue
		}
		worked, err := a.Attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		a.Enter(StateLost, err)
		if worked || err.Error() != lastError { // once per error, not at every attempt
			a.OnFailure(err)
		}
		lastError = err.Error()
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

// timeToNextCheck returns how long Run should wait before it checks again whether it can make an attempt; 0 if Run can
// make an attempt now.
func (a Attempts) timeToNextCheck() time.Duration {
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

// pause waits for d, or until a value on Wake. It reports whether Wake ended the pause.
func (a Attempts) pause(ctx context.Context, d time.Duration) bool {
	return sleep.UntilWoken(ctx, d, a.Wake) && sleep.For(ctx, minPause)
}

// RecoverPanic runs f. If f panics, RecoverPanic logs the panic with workName, and the agent continues. ok reports
// whether f returned normally.
func RecoverPanic(log *slog.Logger, workName string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("the agent recovered from a panic", logkey.In, workName, logkey.Panic, fmt.Sprint(r), logkey.Stack, string(debug.Stack()))
		}
	}()
	f()
	return true
}
