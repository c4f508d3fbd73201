// Package auto lets one attachment stand in for another that is away: bypass for
// NRI. It owns the question which of the two has the say. At any moment one has:
// events of the other are not decided, so nothing is decided twice. What it does
// not know is how either works.
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
)

// Side is one of the two attachments, or neither.
type Side int

// The sides.
const (
	Neither Side = iota
	Preferred
	StandIn
)

// Recorder counts transitions; from and to are the names of attachments, or
// "none".
type Recorder interface {
	Switched(from, to string)
	// Ignored counts an event of an attachment that has not the say.
	Ignored(mode string)
}

// Runner is an attachment as far as it is run. The stand-in is run again each
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
	// the other stands in; default: 1 s.
	Patience time.Duration
}

// errOver is why the stand-in is detached.
var errOver = errors.New("the preferred attachment is back")

// Switch lets the preferred attachment have the say whenever it works, and the
// stand-in at all other times.
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
	// busy are events of the stand-in that are being decided.
	busy sync.WaitGroup
	// seated is the stand-in while the conductor counts it as attached.
	seated conductor.Carrier
	stop   context.CancelFunc // ends the stand-in's run; nil while it does not
	wake   chan struct{}
}

// New returns a Switch in which neither attachment has the say yet.
func New(o Options) *Switch {
	if o.Patience <= 0 {
		o.Patience = time.Second
	}
	return &Switch{o: o, why: "the agent has just started", since: time.Now(), names: [3]string{"none", "", ""}, wake: make(chan struct{}, 1)}
}

// Preferred returns the handler the preferred attachment is made with.
func (s *Switch) Preferred() conductor.Handler { return preferred{s} }

// StandIn returns the handler the other attachment is made with.
func (s *Switch) StandIn() conductor.Handler { return standIn{s} }

// InForce returns who has the say, why, and since when.
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

// take gives the preferred attachment the say. It returns when no event of the
// stand-in is being decided any more.
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

// admit counts an event of the stand-in in, unless the other has the say.
func (s *Switch) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.side == Preferred {
		return false
	}
	if s.side == Neither {
		s.enter(StandIn)
	}
	s.busy.Add(1)
	return true
}

// Run runs both attachments until ctx ends: the preferred one always, the other
// whenever the preferred one is away.
func (s *Switch) Run(ctx context.Context, first, second Runner) error {
	s.mu.Lock()
	s.names[Preferred], s.names[StandIn] = first.Name(), second.Name()
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel() // it ends with ctx, or for good
		ended <- first.Run(ctx)
	}()
	patience := time.NewTimer(s.o.Patience)
	defer patience.Stop()
	for ctx.Err() == nil {
		if s.needed() {
			s.stand(ctx, second)
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-patience.C:
			s.late()
		}
	}
	return <-ended
}

// needed reports whether the stand-in is to run.
func (s *Switch) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.side != Preferred && s.tried
}

// late ends the wait for the preferred attachment's first connection.
func (s *Switch) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		s.why = fmt.Sprintf("%s is not connected after %v", s.names[Preferred], s.o.Patience)
	}
}

// stand runs the stand-in until the preferred attachment takes over.
func (s *Switch) stand(ctx context.Context, second Runner) {
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
		s.o.Log.Error("the attachment that stands in has ended; it is tried again", logkey.Mode, second.Name(), logkey.Err, err)
		connect.Pause(ctx, s.o.Patience)
	}
}

// preferred passes everything on, and with its first event takes over.
type preferred struct{ s *Switch }

// Handle takes over and decides.
func (p preferred) Handle(ctx context.Context, from conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	p.s.take()
	return p.s.o.Handler.Handle(ctx, from, ev)
}

// Notify hands on what nothing is decided about.
func (p preferred) Notify(ev lifecycle.Event) {
	if t, ok := p.s.o.Handler.(interface{ Notify(ev lifecycle.Event) }); ok {
		t.Notify(ev)
	}
}

// Wants lists the kinds of events the hooks need.
func (p preferred) Wants() []lifecycle.Kind { return p.s.o.Handler.Wants() }

// Attached tells of the connection.
func (p preferred) Attached(from conductor.Carrier, r conductor.Runtime) {
	p.s.take()
	p.s.o.Handler.Attached(from, r)
}

// Detached tells that it is gone. Who stands in is told by Away.
func (p preferred) Detached(from conductor.Carrier, err error) { p.s.o.Handler.Detached(from, err) }

// standIn passes everything on while the preferred attachment is away.
type standIn struct{ s *Switch }

// Handle decides, unless the preferred attachment has the say: it has been, or
// will be, told of the same.
func (i standIn) Handle(ctx context.Context, from conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	if !i.s.admit() {
		i.s.o.Recorder.Ignored(from.Name())
		return conductor.Answer{}, nil
	}
	defer i.s.busy.Done()
	return i.s.o.Handler.Handle(ctx, from, ev)
}

// Wants lists the kinds of events the hooks need.
func (i standIn) Wants() []lifecycle.Kind { return i.s.o.Handler.Wants() }

// Attached tells of the connection.
func (i standIn) Attached(from conductor.Carrier, r conductor.Runtime) {
	if !i.s.admit() {
		return
	}
	defer i.s.busy.Done()
	i.s.mu.Lock()
	i.s.seated = from
	i.s.mu.Unlock()
	i.s.o.Handler.Attached(from, r)
}

// Detached tells that it is gone, once.
func (i standIn) Detached(from conductor.Carrier, err error) {
	i.s.mu.Lock()
	seated := i.s.seated != nil
	i.s.seated = nil
	if i.s.side == StandIn {
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
	_ conductor.Handler = standIn{}
)
