// Package auto makes bypass the fallback of NRI. It decides which of the two is
// active. Exactly one is at any moment: it drops the events of the other, so nothing
// is decided twice. It does not know how either works.
package auto

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// Side is one of the two attachments, or neither.
type Side int

// The sides.
const (
	Neither Side = iota
	Preferred
	Fallback
)

// Recorder counts transitions; from and to are the names of attachments, or
// "none".
type Recorder interface {
	Switched(from, to string)
	// Ignored counts an event of an attachment that is not active.
	Ignored(mode string)
}

// Runner is an attachment as far as it is run. The fallback is run again each
// time it is needed.
type Runner interface {
	Name() string
	Run(ctx context.Context) error
}

// Options configure a Switch. Handler, Log and Recorder are required.
type Options struct {
	Handler  conductor.Handler
	Log      *slog.Logger
	Recorder Recorder
	// Patience is how long the preferred attachment may take at the start before
	// the fallback runs; default: 1 s.
	Patience time.Duration
}

// errOver is why the fallback is detached.
var errOver = errors.New("the preferred attachment is back")

// Switch makes the preferred attachment active whenever it works, and the
// fallback at all other times.
type Switch struct {
	o Options

	mu   sync.Mutex // guards all below; not held while events are decided
	side Side
	// tried: the preferred attachment has been away at least once, so that
	// nothing is to be waited for.
	tried bool
	why   string
	since time.Time
	names [3]string
	// busy are events of the fallback that are being decided.
	busy sync.WaitGroup
	// seated is the fallback while the conductor counts it as attached.
	seated conductor.Carrier
	stop   context.CancelFunc // ends the fallback's run; nil while it does not
	wake   chan struct{}
}

// New returns a Switch in which neither attachment is active yet.
func New(o Options) *Switch {
	if o.Patience <= 0 {
		o.Patience = time.Second
	}
	return &Switch{o: o, why: "the agent has just started", since: time.Now(), names: [3]string{"none", "", ""}, wake: make(chan struct{}, 1)}
}

// Preferred returns the handler the preferred attachment is made with.
func (s *Switch) Preferred() conductor.Handler { return preferred{s} }

// Fallback returns the handler the other attachment is made with.
func (s *Switch) Fallback() conductor.Handler { return fallback{s} }

// InForce returns which attachment is active, why, and since when.
func (s *Switch) InForce() (side Side, why string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.side, s.why, s.since
}

// Away is called when the preferred attachment is not connected, and says why.
// It may be called again and again.
func (s *Switch) Away(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = true
	s.why = fmt.Sprintf("%s is away: %v", s.names[Preferred], why)
	if s.side == Preferred {
		s.enter(Neither)
	}
	connect.Poke(s.wake) // Run looks again
}

// enter changes sides; the lock is held.
func (s *Switch) enter(to Side) {
	from := s.side
	s.side, s.since = to, time.Now()
	s.o.Recorder.Switched(s.names[from], s.names[to])
	s.o.Log.Info("the attachment in force changes", logkey.From, s.names[from], logkey.Mode, s.names[to], logkey.Reason, s.why)
}

// take makes the preferred attachment active. It returns when no event of the
// fallback is being decided any more.
func (s *Switch) take() {
	s.mu.Lock()
	if s.side == Preferred {
		s.mu.Unlock()
		return
	}
	s.why = s.names[Preferred] + " is connected"
	s.enter(Preferred)
	if s.stop != nil {
		s.stop()
	}
	s.mu.Unlock()
	s.busy.Wait()
	s.mu.Lock()
	seated := s.seated
	s.seated = nil
	s.mu.Unlock()
	if seated != nil {
		s.o.Handler.Detached(seated, errOver)
	}
}

// admit counts an event of the fallback in, unless the preferred attachment is active.
func (s *Switch) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.side == Preferred {
		return false
	}
	if s.side == Neither {
		s.enter(Fallback)
	}
	s.busy.Add(1)
	return true
}

// Run runs both attachments until ctx ends: the preferred one always, the other
// whenever the preferred one is away.
func (s *Switch) Run(ctx context.Context, first, second Runner) error {
	s.mu.Lock()
	s.names[Preferred], s.names[Fallback] = first.Name(), second.Name()
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // Run returned because ctx ended, or because it failed
		ended <- first.Run(ctx)
	}()
	patience := time.NewTimer(s.o.Patience)
	defer patience.Stop()
	for ctx.Err() == nil {
		if s.needed() {
			s.runFallback(ctx, second)
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-patience.C:
			s.endPatience()
		}
	}
	return <-ended
}

// needed reports whether the fallback is to run.
func (s *Switch) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.side != Preferred && s.tried
}

// endPatience ends the wait for the preferred attachment's first connection.
func (s *Switch) endPatience() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		s.why = fmt.Sprintf("%s is not connected after %v", s.names[Preferred], s.o.Patience)
	}
}

// runFallback runs the fallback until the preferred attachment takes over.
func (s *Switch) runFallback(ctx context.Context, second Runner) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.side == Preferred {
		s.mu.Unlock()
		return
	}
	s.stop = cancel
	s.mu.Unlock()
	err := second.Run(ctx)
	s.mu.Lock()
	s.stop = nil
	s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		s.o.Log.Error("the fallback attachment has ended; the agent starts it again", logkey.Mode, second.Name(), logkey.Err, err)
		sleep.For(ctx, s.o.Patience)
	}
}

// preferred passes everything on, and with its first event takes over.
type preferred struct{ s *Switch }

// Handle takes over and decides.
func (p preferred) Handle(ctx context.Context, from conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	p.s.take()
	return p.s.o.Handler.Handle(ctx, from, ev)
}

// Notify passes on an event that needs no decision.
func (p preferred) Notify(ev lifecycle.Event) {
	if t, ok := p.s.o.Handler.(interface{ Notify(ev lifecycle.Event) }); ok {
		t.Notify(ev)
	}
}

// Wants lists the kinds of events the hooks need.
func (p preferred) Wants() []lifecycle.Kind { return p.s.o.Handler.Wants() }

// Attached reports the connection.
func (p preferred) Attached(from conductor.Carrier, r conductor.Runtime) {
	p.s.take()
	p.s.o.Handler.Attached(from, r)
}

// Detached reports that it is gone. The fallback learns it from Away.
func (p preferred) Detached(from conductor.Carrier, err error) { p.s.o.Handler.Detached(from, err) }

// fallback passes everything on while the preferred attachment is away.
type fallback struct{ s *Switch }

// Handle decides, unless the preferred attachment is active: that has got, or will
// get, the same event.
func (i fallback) Handle(ctx context.Context, from conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	if !i.s.admit() {
		i.s.o.Recorder.Ignored(from.Name())
		return conductor.Answer{}, nil
	}
	defer i.s.busy.Done()
	return i.s.o.Handler.Handle(ctx, from, ev)
}

// Wants lists the kinds of events the hooks need.
func (i fallback) Wants() []lifecycle.Kind { return i.s.o.Handler.Wants() }

// Attached reports the connection.
func (i fallback) Attached(from conductor.Carrier, r conductor.Runtime) {
	if !i.s.admit() {
		return
	}
	defer i.s.busy.Done()
	i.s.mu.Lock()
	i.s.seated = from
	i.s.mu.Unlock()
	i.s.o.Handler.Attached(from, r)
}

// Detached reports that it is gone, once.
func (i fallback) Detached(from conductor.Carrier, err error) {
	i.s.mu.Lock()
	seated := i.s.seated != nil
	i.s.seated = nil
	if i.s.side == Fallback {
		i.s.why = fmt.Sprintf("%s has lost its runtime: %v", from.Name(), err)
		i.s.enter(Neither)
	}
	i.s.mu.Unlock()
	if seated {
		i.s.o.Handler.Detached(from, err)
	}
}

var (
	_ conductor.Handler = preferred{}
	_ conductor.Handler = fallback{}
)
