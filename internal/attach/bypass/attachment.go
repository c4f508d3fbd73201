package bypass

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/socket"
)

// The states of an attachment, as Status prints them.
const (
	StateIdle         = "not running"
	StateStandby      = "standby"
	StateDialing      = "dialing"
	StateListing      = "listing"
	StateSynchronised = "synchronised"
	StateLost         = "connection lost"
)

// ErrDetached is the error of Update while no runtime is there.
var ErrDetached = errors.New("no runtime attached")

// defaultProc is where procfs is mounted.
const defaultProc = "/proc"

// admitAgain is the pause before Admit is asked again.
const admitAgain = 200 * time.Millisecond

// Backoff bounds the pause between attempts to connect. It doubles from Min to
// Max, with jitter, and starts over after a connection that worked.
type Backoff struct{ Min, Max time.Duration }

// Options configure an Attachment. Endpoint, Tree, Watch, Handler and Log are
// required.
type Options struct {
	Endpoint string // of the CRI, as "unix:///run/containerd/containerd.sock"
	// CgroupRoot is the kubelet's --cgroup-root; "" and "/" are the hierarchy's.
	CgroupRoot string
	Tree       *cgroup.Tree
	// Proc is the directory procfs is mounted on; default: /proc.
	Proc string
	// Watch starts watching the tree's files.
	Watch   func() (cgroup.Watcher, error)
	Handler conductor.Handler
	Log     *slog.Logger
	// Resync is how often everything is listed, whatever was reported; default: 60 s.
	Resync time.Duration
	// Look is how often each container's resources are asked for: no runtime
	// tells that the kubelet changed them in place; default: 10 s.
	Look    time.Duration
	Backoff Backoff // default: 0.2 s to 10 s
	// Admit is asked before each connection; an error keeps the attachment out,
	// in StateStandby, until there is none. nil admits always.
	Admit func() error
	Dial  socket.Dialer // to the runtime
}

// Attachment is Trimtab beside a runtime. It is a conductor.Carrier that carries
// nothing, and, while connected, a conductor.Runtime.
type Attachment struct {
	o Options

	mu      sync.Mutex
	state   string
	runtime string
	kind    runtimes.Runtime // what it takes
	err     error
	live    *session // synchronised, else nil
}

var (
	_ conductor.Carrier = (*Attachment)(nil)
	_ conductor.Runtime = (*Attachment)(nil)
)

// New returns an Attachment that does nothing until Run. The error names the
// configuration key.
func New(o Options) (*Attachment, error) {
	if _, err := topsBelow(o.CgroupRoot); err != nil {
		return nil, err
	}
	if o.Proc == "" {
		o.Proc = defaultProc
	}
	if o.Resync <= 0 {
		o.Resync = time.Minute
	}
	if o.Look <= 0 {
		o.Look = pollAgain
	}
	if o.Backoff.Min <= 0 {
		o.Backoff.Min = 200 * time.Millisecond
	}
	if o.Backoff.Max <= 0 {
		o.Backoff.Max = 10 * time.Second
	}
	o.Backoff.Max = max(o.Backoff.Max, o.Backoff.Min)
	if o.Admit == nil {
		o.Admit = func() error { return nil }
	}
	return &Attachment{o: o, state: StateIdle}, nil
}

// Name is the attachment's name in status, journal and docs.
func (a *Attachment) Name() string { return "bypass" }

// Capabilities are nothing but updates: nobody waits for our answer, and the CRI's
// UpdateContainerResources writes the runtime's stored copy of a container.
func (a *Attachment) Capabilities() conductor.Capabilities {
	return conductor.Capabilities{Name: a.Name(), About: a.About(), Copy: copiedFields, Takes: a.takes}
}

// Carries is what every Attachment of this package says.
func Carries(lifecycle.Kind, lifecycle.Field) bool { return false }

// takes says why the runtime does not take a value in a call; "" where it does.
func (a *Attachment) takes(c runtimes.Call, v lifecycle.Value) (why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kind.Takes(runtimes.CRI, c, v)
}

// About names the runtime and its version; empty while there is none.
func (a *Attachment) About() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runtime
}

// Status returns the state of the connection, the runtime it is or was last
// connected to, and the last error since it last worked.
func (a *Attachment) Status() (state, runtime string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.runtime, a.err
}

// States lists the states Status may return.
func States() []string {
	return []string{StateIdle, StateStandby, StateDialing, StateListing, StateSynchronised, StateLost}
}

// Update gives the runtime's stored copies new values, one container after
// another, and returns the ids it refused.
func (a *Attachment) Update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	s := a.session()
	if s == nil {
		return nil, ErrDetached
	}
	var failed []string
	for _, w := range what {
		if err := s.update(ctx, w); err != nil {
			if criclient.Away(ctx, err) {
				return failed, err
			}
			a.o.Log.Debug("update refused", logkey.Container, w.Container, logkey.Err, err)
			failed = append(failed, w.Container)
		}
	}
	return failed, nil
}

// Look has one container's resources asked for again, as when somebody has
// written to its cgroup.
func (a *Attachment) Look(id string) {
	if s := a.session(); s != nil {
		s.hintContainer(id, askStatus)
	}
}

func (a *Attachment) session() *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live
}

// Run keeps the attachment connected until ctx ends; it then returns nil. It may
// be called again when it has returned.
func (a *Attachment) Run(ctx context.Context) error {
	defer a.enter(StateIdle, nil)
	delay, last := a.o.Backoff.Min, ""
	for ctx.Err() == nil {
		if err := a.o.Admit(); err != nil {
			a.enter(StateStandby, err)
			pause(ctx, admitAgain)
			continue
		}
		a.enter(StateDialing, nil)
		worked, err := a.attempt(ctx)
		if ctx.Err() != nil {
			break
		}
		a.enter(StateLost, err)
		if worked {
			delay = a.o.Backoff.Min
		}
		if worked || err.Error() != last { // once, not at every attempt
			a.o.Log.Warn("no cri connection", logkey.Err, err)
		}
		last = err.Error()
		pause(ctx, delay/2+rand.N(delay/2+1))
		delay = min(2*delay, a.o.Backoff.Max)
	}
	return nil
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// attempt serves one connection until it is lost. It tells whether it got as
// far as synchronising; the error is never nil.
func (a *Attachment) attempt(ctx context.Context) (worked bool, err error) {
	s, err := newSession(ctx, a)
	if err != nil {
		return false, err
	}
	defer s.finish()
	a.enter(StateListing, nil)
	if err := s.synchronise(); err != nil {
		return false, err
	}
	a.mu.Lock()
	a.live = s
	a.mu.Unlock()
	a.enter(StateSynchronised, nil)
	a.o.Log.Info("attached to runtime", logkey.Runtime, a.About())
	s.contain("Attached", func() { a.o.Handler.Attached(a, a) })
	err = s.serve()
	a.mu.Lock()
	a.live = nil
	a.mu.Unlock()
	s.finish()
	s.contain("Detached", func() { a.o.Handler.Detached(a, err) })
	return true, fmt.Errorf("connection to the runtime: %w", err)
}

// enter moves to a state. A new error replaces the last one, a working
// connection clears it, and all else leaves it for people to read.
func (a *Attachment) enter(state string, err error) {
	a.mu.Lock()
	changed := a.state != state
	a.state = state
	if err != nil || state == StateSynchronised {
		a.err = err
	}
	a.mu.Unlock()
	if changed {
		a.o.Log.Debug("cri connection", logkey.State, state, logkey.Err, err)
	}
}

func (a *Attachment) setRuntime(r criclient.Runtime) {
	a.mu.Lock()
	a.runtime, a.kind = r.About, r.Kind
	a.mu.Unlock()
}
