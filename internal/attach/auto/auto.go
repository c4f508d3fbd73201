// Package auto makes bypass the fallback of NRI. NRI and bypass are attachments: ways in which the agent gets the
// events of the container runtime. The package decides which of the two attachments is active, and never lets both be
// active. While NRI is active, the package drops the events of bypass, so that the agent decides no event twice. The
// package uses only the interfaces that both attachments have.
package auto

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// ActiveSide says which of the two attachments is active, or that neither is.
type ActiveSide int

// The values of ActiveSide.
const (
	NoneActive ActiveSide = iota
	PreferredActive
	FallbackActive
)

// Recorder counts what Failover does.
type Recorder interface {
	// CountSwitch counts a change of the active attachment. Its parameters are the names of the attachments that were
	// active before and after the change. The name is "none" if no attachment was active.
	CountSwitch(from, to string)
	// CountIgnored counts an event that Failover ignored, because the attachment that sent the event is not active.
	// mode is the name of that attachment.
	CountIgnored(mode string)
}

// Runner is an attachment that Failover can run.
type Runner interface {
	// Name returns the name of the attachment.
	Name() string
	// Run runs the attachment until ctx ends or the attachment fails. Failover runs the fallback again after each return.
	Run(ctx context.Context) error
}

// Options configure a Failover. Handler, Log and Recorder are required.
type Options struct {
	Handler  conductor.Handler // decides the events of the active attachment
	Log      *slog.Logger
	Recorder Recorder // counts changes of the active attachment and ignored events
	// PreferredTimeout is how long Failover waits, after the start, for the connection of the preferred attachment.
	// Then it runs the fallback. PreferredTimeout is also the pause after a failure of the fallback, before Failover
	// runs the fallback again. Default: 1 s.
	PreferredTimeout time.Duration
}

// errPreferredBack is the reason for which Failover detaches the fallback.
var errPreferredBack = errors.New("the preferred attachment is connected, so the fallback is not needed")

// Failover makes the preferred attachment active whenever it is connected, and the fallback at all other times.
type Failover struct {
	o Options

	mu   sync.Mutex // guards the fields below except fallbackEvents and wake; not held while events are decided
	side ActiveSide // the active attachment
	// preferredFailed means that the preferred attachment has failed to connect in time, or was disconnected at least
	// once. Failover then no longer waits for the first connection of the preferred attachment.
	preferredFailed bool
	reason          string    // why the active attachment is active, or why none is
	since           time.Time // when side last changed
	names           [3]string // the names of the attachments, by ActiveSide
	// fallbackEvents counts events of the fallback that are being decided.
	fallbackEvents sync.WaitGroup
	// attachedFallback is the fallback if Failover has reported its connection to the conductor, and has not reported
	// the end of the connection yet. Otherwise it is nil.
	attachedFallback conductor.Carrier
	stopFallback     context.CancelFunc // ends the fallback's run; nil while it does not run
	wake             chan struct{}      // makes Run check again whether the fallback must run
}

// New returns a Failover in which neither attachment is active yet.
func New(o Options) *Failover {
	if o.PreferredTimeout <= 0 {
		o.PreferredTimeout = time.Second
	}
	return &Failover{o: o, reason: "the agent has just started", since: time.Now(), names: [3]string{"none", "", ""}, wake: make(chan struct{}, 1)}
}

// PreferredHandler returns the handler to which the preferred attachment sends its events.
func (s *Failover) PreferredHandler() conductor.Handler { return preferred{s} }

// FallbackHandler returns the handler to which the fallback sends its events.
func (s *Failover) FallbackHandler() conductor.Handler { return fallback{s} }

// Active returns which attachment is active, why, and since when.
func (s *Failover) Active() (side ActiveSide, why string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.side, s.reason, s.since
}

// PreferredDown notifies Failover that the preferred attachment is not connected, and why. It may be called repeatedly.
func (s *Failover) PreferredDown(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preferredFailed = true
	s.reason = fmt.Sprintf("%s is not connected: %v", s.names[PreferredActive], why)
	if s.side == PreferredActive {
		s.switchTo(NoneActive)
	}
	sleep.Wake(s.wake)
}

// switchTo makes another attachment active, or neither. The caller holds mu and has set reason.
func (s *Failover) switchTo(to ActiveSide) {
	from := s.side
	s.side, s.since = to, time.Now()
	s.o.Recorder.CountSwitch(s.names[from], s.names[to])
	s.o.Log.Info("the active attachment has changed", logkey.From, s.names[from], logkey.Mode, s.names[to], logkey.Reason, s.reason)
}

// activatePreferred makes the preferred attachment active. It then stops the fallback, and waits until all events of
// the fallback are decided. If the preferred attachment is already active, activatePreferred does nothing.
func (s *Failover) activatePreferred() {
	s.mu.Lock()
	if s.side == PreferredActive {
		s.mu.Unlock()
		return
	}
	s.reason = s.names[PreferredActive] + " is connected"
	s.switchTo(PreferredActive)
	if s.stopFallback != nil {
		s.stopFallback()
	}
	s.mu.Unlock()
	s.fallbackEvents.Wait()
	s.mu.Lock()
	attached := s.attachedFallback
	s.attachedFallback = nil
	s.mu.Unlock()
	if attached != nil {
		s.o.Handler.Detached(attached, errPreferredBack)
	}
}

// admitFallbackEvent reports whether the conductor may handle an event of the fallback. It returns false while the
// preferred attachment is active. Otherwise it counts the event in fallbackEvents, makes the fallback active, and
// returns true.
func (s *Failover) admitFallbackEvent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.side == PreferredActive {
		return false
	}
	if s.side == NoneActive {
		s.switchTo(FallbackActive)
	}
	s.fallbackEvents.Add(1)
	return true
}

// Run runs the preferred attachment until ctx ends or the attachment fails, and returns the error of the attachment.
// While the preferred attachment is not connected, Run also runs the fallback.
func (s *Failover) Run(ctx context.Context, preferredRunner, fallbackRunner Runner) error {
	s.mu.Lock()
	s.names[PreferredActive], s.names[FallbackActive] = preferredRunner.Name(), fallbackRunner.Name()
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // the preferred attachment has ended, so the fallback must end too
		ended <- preferredRunner.Run(ctx)
	}()
	timeout := time.NewTimer(s.o.PreferredTimeout)
	defer timeout.Stop()
	for ctx.Err() == nil {
		if s.fallbackNeeded() {
			s.runFallback(ctx, fallbackRunner)
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timeout.C:
			s.preferredTimedOut()
		}
	}
	return <-ended
}

// fallbackNeeded reports whether the fallback must run.
func (s *Failover) fallbackNeeded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.side != PreferredActive && s.preferredFailed
}

// preferredTimedOut ends the wait for the preferred attachment's first connection.
func (s *Failover) preferredTimedOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.preferredFailed {
		s.preferredFailed = true
		s.reason = fmt.Sprintf("%s is not connected after %v", s.names[PreferredActive], s.o.PreferredTimeout)
	}
}

// runFallback runs the fallback until the preferred attachment becomes active, ctx ends, or the fallback fails. After a
// failure, it waits for PreferredTimeout before it returns.
func (s *Failover) runFallback(ctx context.Context, fallbackRunner Runner) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.side == PreferredActive {
		s.mu.Unlock()
		return
	}
	s.stopFallback = cancel
	s.mu.Unlock()
	err := fallbackRunner.Run(ctx)
	s.mu.Lock()
	s.stopFallback = nil
	s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		s.o.Log.Error("the fallback attachment has stopped; the agent starts it again", logkey.Mode, fallbackRunner.Name(), logkey.Err, err)
		sleep.For(ctx, s.o.PreferredTimeout)
	}
}

// preferred handles the events of the preferred attachment. It passes all events on to the conductor. The first event
// makes the preferred attachment active.
type preferred struct{ s *Failover }

// Handle makes the preferred attachment active and passes the event on to the conductor.
func (p preferred) Handle(ctx context.Context, from conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	p.s.activatePreferred()
	return p.s.o.Handler.Handle(ctx, from, ev)
}

// Notify passes on to the conductor an event that needs no decision.
func (p preferred) Notify(ev lifecycle.Event) {
	if t, ok := p.s.o.Handler.(interface{ Notify(ev lifecycle.Event) }); ok {
		t.Notify(ev)
	}
}

// Wants lists the kinds of events that the preferred attachment must report.
func (p preferred) Wants() []lifecycle.Kind { return p.s.o.Handler.Wants() }

// Attached makes the preferred attachment active and reports its connection to the conductor.
func (p preferred) Attached(from conductor.Carrier, r conductor.Runtime) {
	p.s.activatePreferred()
	p.s.o.Handler.Attached(from, r)
}

// Detached reports to the conductor that the connection has ended. It does not start the fallback; PreferredDown does.
func (p preferred) Detached(from conductor.Carrier, err error) { p.s.o.Handler.Detached(from, err) }

// fallback handles the events of the fallback attachment. It passes them on to the conductor while the preferred
// attachment is not active.
type fallback struct{ s *Failover }

// Handle passes the event on to the conductor. If the preferred attachment is active, Handle only counts the event as
// ignored, because the preferred attachment gets the same event.
func (i fallback) Handle(ctx context.Context, from conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	if !i.s.admitFallbackEvent() {
		i.s.o.Recorder.CountIgnored(from.Name())
		return conductor.Answer{}, nil
	}
	defer i.s.fallbackEvents.Done()
	return i.s.o.Handler.Handle(ctx, from, ev)
}

// Wants lists the kinds of events that the fallback must report.
func (i fallback) Wants() []lifecycle.Kind { return i.s.o.Handler.Wants() }

// Attached reports the connection to the conductor. If the preferred attachment is active, Attached does nothing.
func (i fallback) Attached(from conductor.Carrier, r conductor.Runtime) {
	if !i.s.admitFallbackEvent() {
		return
	}
	defer i.s.fallbackEvents.Done()
	i.s.mu.Lock()
	i.s.attachedFallback = from
	i.s.mu.Unlock()
	i.s.o.Handler.Attached(from, r)
}

// Detached notes that the fallback has lost its connection. If the fallback is active, no attachment is active from now
// on. If Attached reported the connection to the conductor, Detached reports the end of the connection.
func (i fallback) Detached(from conductor.Carrier, err error) {
	i.s.mu.Lock()
	attached := i.s.attachedFallback != nil
	i.s.attachedFallback = nil
	if i.s.side == FallbackActive {
		i.s.reason = fmt.Sprintf("%s has lost its connection to the runtime: %v", from.Name(), err)
		i.s.switchTo(NoneActive)
	}
	i.s.mu.Unlock()
	if attached {
		i.s.o.Handler.Detached(from, err)
	}
}

var (
	_ conductor.Handler = preferred{}
	_ conductor.Handler = fallback{}
)
