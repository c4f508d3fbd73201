package auto

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sleep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seat is an attachment of which only the name matters.
type seat string

func (s seat) Name() string                         { return string(s) }
func (s seat) Capabilities() conductor.Capabilities { return conductor.Capabilities{Name: string(s)} }

const nriSeat, bypassSeat = seat("nri"), seat("bypass")

// decider is a conductor that notes which events are being decided.
type decider struct {
	mu       sync.Mutex
	inside   map[string]int
	decided  map[string]int
	attached map[string]bool
	wrong    []string
	hold     func()
}

func newDecider() *decider {
	return &decider{inside: map[string]int{}, decided: map[string]int{}, attached: map[string]bool{}}
}

func (d *decider) complain(text string) { d.wrong = append(d.wrong, text) }

func (d *decider) Handle(_ context.Context, from conductor.Carrier, _ lifecycle.Event) (conductor.Answer, error) {
	d.mu.Lock()
	d.inside[from.Name()]++
	d.decided[from.Name()]++
	if d.inside["nri"] > 0 && d.inside["bypass"] > 0 {
		d.complain("both decide at once")
	}
	d.mu.Unlock()
	if d.hold != nil {
		d.hold()
	}
	d.mu.Lock()
	d.inside[from.Name()]--
	d.mu.Unlock()
	return conductor.Answer{Op: 1}, nil
}
func (d *decider) Wants() []lifecycle.Kind { return []lifecycle.Kind{lifecycle.Synchronize} }
func (d *decider) Attached(from conductor.Carrier, _ conductor.Runtime) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attached[from.Name()] {
		d.complain(from.Name() + " is attached twice")
	}
	d.attached[from.Name()] = true
}

func (d *decider) Detached(from conductor.Carrier, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.attached[from.Name()] {
		d.complain(from.Name() + " is detached twice")
	}
	d.attached[from.Name()] = false
}

// tally is a Recorder that counts.
type tally struct{ switched, ignored atomic.Int64 }

func (c *tally) CountSwitch(string, string) { c.switched.Add(1) }
func (c *tally) CountIgnored(string)        { c.ignored.Add(1) }

var errAway = errors.New("dial: connection refused")

// TestSwitch plays random histories against a model of which attachment is active.
func TestSwitch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, count := newDecider(), &tally{}
		s := New(Options{Handler: d, Log: slog.New(slog.DiscardHandler), Recorder: count})
		side, ignored, seated := NoneActive, int64(0), false
		for _, do := range rapid.SliceOfN(rapid.IntRange(0, 5), 1, 40).Draw(t, "history") {
			before := d.decided["bypass"]
			switch do {
			case 0:
				_, _ = s.PreferredHandler().Handle(t.Context(), nriSeat, lifecycle.Event{})
				side, seated = PreferredActive, false
			case 1:
				if side == PreferredActive && d.attached["nri"] {
					s.PreferredHandler().Detached(nriSeat, errAway)
				}
				s.PreferredDown(errAway)
				if side == PreferredActive {
					side = NoneActive
				}
			case 2, 3:
				_, _ = s.FallbackHandler().Handle(t.Context(), bypassSeat, lifecycle.Event{})
				if side == PreferredActive {
					ignored++
				} else {
					side = FallbackActive
				}
				if decided := d.decided["bypass"] > before; decided == (side == PreferredActive) {
					t.Fatalf("an event of the fallback is decided: %v, with %v in force", decided, side)
				}
			case 4:
				if !seated && side == FallbackActive {
					s.FallbackHandler().Attached(bypassSeat, nil)
					seated = true
				}
			case 5:
				s.FallbackHandler().Detached(bypassSeat, errAway)
				if side == FallbackActive {
					side = NoneActive
				}
				seated = false
			}
			if got, why, _ := s.Active(); got != side || why == "" {
				t.Fatalf("in force is %v because %q, want %v", got, why, side)
			}
			if d.attached["bypass"] != seated {
				t.Fatalf("bypass is attached: %v, want %v", d.attached["bypass"], seated)
			}
		}
		if len(d.wrong) > 0 || count.ignored.Load() != ignored {
			t.Fatal(d.wrong, count.ignored.Load(), ignored)
		}
	})
}

// line is an attachment that reports events as fast as they are accepted.
type line struct {
	name    seat
	handler conductor.Handler
	runs    atomic.Int64
	up      func() bool
}

func (l *line) Name() string { return l.name.Name() }

func (l *line) Run(ctx context.Context) error {
	l.runs.Add(1)
	first := true
	for ctx.Err() == nil {
		if l.up() {
			_, _ = l.handler.Handle(ctx, l.name, lifecycle.Event{})
			if first && ctx.Err() == nil {
				l.handler.Attached(l.name, nil)
				first = false
			}
		}
		sleep.For(ctx, time.Millisecond)
	}
	if !first {
		l.handler.Detached(l.name, ctx.Err())
	}
	return nil
}

// TestNeverBoth: both attachments report events all the time, while the preferred one connects and
// disconnects. Events of the two are never decided at the same time, and each takes over each time.
func TestNeverBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDecider()
		d.hold = func() { time.Sleep(3 * time.Millisecond) }
		count := &tally{}
		s := New(Options{Handler: d, Log: slog.New(slog.DiscardHandler), Recorder: count})
		var connected atomic.Bool
		first := &line{name: nriSeat, handler: quiet{s.PreferredHandler()}, up: connected.Load}
		second := &line{name: bypassSeat, handler: s.FallbackHandler(), up: func() bool { return true }}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, first, second) }()
		time.Sleep(2 * time.Second) // longer than PreferredTimeout
		if side, why, _ := s.Active(); side != FallbackActive {
			t.Fatalf("%v is in force at the start: %s", side, why)
		}
		const rounds = 50
		for i := range rounds {
			connected.Store(true)
			time.Sleep(20 * time.Millisecond)
			if side, why, _ := s.Active(); side != PreferredActive {
				t.Fatalf("round %d: %v is in force: %s", i, side, why)
			}
			connected.Store(false)
			time.Sleep(10 * time.Millisecond) // the last event of the preferred attachment is answered
			s.PreferredDown(errAway)
			time.Sleep(20 * time.Millisecond)
			if side, why, _ := s.Active(); side != FallbackActive {
				t.Fatalf("round %d: %v is in force: %s", i, side, why)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(d.wrong) > 0 || second.runs.Load() != rounds+1 {
			t.Error(d.wrong, second.runs.Load(), "runs of the fallback")
		}
	})
}

// quiet suppresses reports of connections: the line has one connection for its whole run.
type quiet struct{ conductor.Handler }

func (quiet) Attached(conductor.Carrier, conductor.Runtime) {}
func (quiet) Detached(conductor.Carrier, error)             {}

// TestPreferredFirst: if the preferred attachment connects in time, the fallback does not run.
func TestPreferredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDecider()
		s := New(Options{Handler: d, Log: slog.New(slog.DiscardHandler), Recorder: &tally{}})
		first := &line{name: nriSeat, handler: s.PreferredHandler(), up: func() bool { return true }}
		second := &line{name: bypassSeat, handler: s.FallbackHandler(), up: func() bool { return true }}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx, first, second) }()
		time.Sleep(5 * time.Second)
		stop()
		if err := <-done; err != nil || second.runs.Load() != 0 || d.decided["nri"] == 0 {
			t.Error(err, second.runs.Load(), d.decided)
		}
	})
}
