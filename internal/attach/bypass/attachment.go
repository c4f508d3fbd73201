package bypass

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/socket"
)

// The states that only this attachment has, as Status returns them. Package connect defines the states that all
// attachments have.
const (
	StateDialing = "dialing" // the attachment connects to the runtime's socket
	StateListing = "listing" // the attachment reads the runtime's pods and containers
)

// ErrDetached is the error of Update while no runtime is connected.
var ErrDetached = errors.New("the agent is not connected to the runtime")

// defaultProc is the directory where procfs is usually mounted.
const defaultProc = "/proc"

// Options configure an Attachment. Endpoint, Tree, Watch, Handler and Log are required.
type Options struct {
	Endpoint string // the address of the CRI socket, for example "unix:///run/containerd/containerd.sock"
	// CgroupRoot is the kubelet's --cgroup-root; "" and "/" mean the root of the hierarchy.
	CgroupRoot string
	Tree       *cgroup.Tree // the node's cgroup hierarchy
	// Proc is the directory where procfs is mounted; default: /proc.
	Proc string
	// Watch returns a new inotify watcher for the directories of Tree.
	Watch   func() (cgroup.Watcher, error)
	Handler conductor.Handler // receives the events of pods and containers
	Log     *slog.Logger
	// Resync is how often the attachment lists all pods and containers, in addition to events; default: 60 s.
	Resync time.Duration
	// PollInterval is how often the attachment reads each container's resources from the runtime; default: 10 s. No
	// runtime sends an event when the kubelet changes resources in place.
	PollInterval time.Duration
	Backoff      connect.Backoff // default: 0.2 s to 10 s
	// Admit is called before each connection. While it returns an error, the attachment stays unconnected, in
	// connect.StateStandby. If Admit is nil, the attachment always connects.
	Admit func() error
	Dial  socket.Dialer // connects to the runtime's socket
}

// Attachment connects the agent to a runtime's CRI socket, as a second client beside the kubelet. For package conductor
// it is a Carrier: an attachment with a name and capabilities. The kubelet's requests do not pass through it. While the
// attachment is connected, it is also a conductor.Runtime, to which the conductor sends updates of containers.
type Attachment struct {
	o             Options
	roots         []string // the possible directories of the kubelet's cgroups
	state         connect.State
	runtime       atomic.Pointer[criclient.Runtime]
	syncedSession atomic.Pointer[session] // the synchronised session; nil if there is none
}

var (
	_ conductor.Carrier = (*Attachment)(nil)
	_ conductor.Runtime = (*Attachment)(nil)
)

// New returns an Attachment that does nothing until Run. An error names the configuration key with the invalid value.
func New(o Options) (*Attachment, error) {
	roots, err := kubeletRoots(o.CgroupRoot)
	if err != nil {
		return nil, err
	}
	o.Proc = cmp.Or(o.Proc, defaultProc)
	o.Resync, o.PollInterval = cmp.Or(max(o.Resync, 0), time.Minute), cmp.Or(max(o.PollInterval, 0), defaultPollInterval)
	o.Backoff = o.Backoff.WithDefaults(connect.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second})
	a := &Attachment{o: o, roots: roots}
	a.runtime.Store(&criclient.Runtime{})
	return a, nil
}

// Name is the attachment's name in status, journal and docs.
func (a *Attachment) Name() string { return "bypass" }

// Capabilities says what the attachment can do: it can only change the copy of a container's resources that the runtime
// stores, by the CRI call UpdateContainerResources. The kubelet's requests do not wait for the agent, so the agent
// cannot change these requests.
func (a *Attachment) Capabilities() conductor.Capabilities {
	return conductor.Capabilities{Name: a.Name(), RuntimeName: a.About(), Copy: copyFieldSet, WhyNotAccepted: a.whyUnsupported}
}

// Carries reports whether the attachment can set a field in the runtime's request for an event. It returns false for
// every field, because the requests do not pass through this attachment.
func Carries(lifecycle.Kind, lifecycle.Field) bool { return false }

// whyUnsupported returns why the runtime does not accept the value v in the call c, or "" if the runtime accepts v.
func (a *Attachment) whyUnsupported(c runtimes.Call, v lifecycle.Value) (why string) {
	return a.runtime.Load().Kind.WhyNotAccepted(runtimes.CRI, c, v)
}

// About returns the runtime's name and version; "" before the first connection.
func (a *Attachment) About() string { return a.runtime.Load().About }

// Status returns the state of the connection, the runtime of the last connection, and the last error. The error is nil
// if there was none since the agent last read all containers over a connection.
func (a *Attachment) Status() (state, runtime string, err error) {
	state, err = a.state.Get()
	return state, a.About(), err
}

// States lists the states that Status may return.
func States() []string {
	return []string{connect.StateIdle, connect.StateStandby, StateDialing, StateListing, connect.StateSynchronised, connect.StateLost}
}

// Update writes values to the copies of resources that the runtime stores, one container after another. It returns the
// ids of the containers whose update failed.
func (a *Attachment) Update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	s := a.syncedSession.Load()
	if s == nil {
		return nil, ErrDetached
	}
	var failed []string
	for _, w := range what {
		if err := s.update(ctx, w); err != nil {
			if criclient.ConnectionFailed(ctx, err) {
				return failed, err
			}
			a.o.Log.Debug("the runtime did not update its stored copy of a container's resources", logkey.Container, w.Container, logkey.Err, err)
			failed = append(failed, w.Container)
		}
	}
	return failed, nil
}

var _ conductor.ResourcePoller = (*Attachment)(nil)

// Poll reads one container's resources again, for instance after another program wrote to the container's cgroup.
func (a *Attachment) Poll(id string) {
	if s := a.syncedSession.Load(); s != nil {
		s.hintContainer(id, askStatus)
	}
}

// Run keeps the attachment connected until ctx ends, and then returns nil. Run may be called again after it has
// returned.
func (a *Attachment) Run(ctx context.Context) error {
	defer a.enter(connect.StateIdle, nil)
	connect.Attempts{
		Backoff: a.o.Backoff, Enter: a.enter, Admit: a.o.Admit, Attempt: a.attempt,
		OnFailure: func(err error) {
			a.o.Log.Warn("the agent has no connection to the runtime's CRI socket", logkey.Err, err)
		},
	}.Run(ctx)
	return nil
}

// attempt makes one connection and serves the connection until it is lost. worked reports whether the agent has read
// the running containers over this connection. The error is never nil.
func (a *Attachment) attempt(ctx context.Context) (worked bool, err error) {
	a.enter(StateDialing, nil)
	s, err := newSession(ctx, a)
	if err != nil {
		return false, err
	}
	defer s.finish()
	a.enter(StateListing, nil)
	if err := s.synchronise(); err != nil {
		return false, err
	}
	a.syncedSession.Store(s)
	a.enter(connect.StateSynchronised, nil)
	a.o.Log.Info("attached to runtime", logkey.Runtime, a.About())
	s.recoverPanic("Attached", func() { a.o.Handler.Attached(a, a) })
	err = s.serve()
	a.syncedSession.Store(nil)
	s.finish()
	s.recoverPanic("Detached", func() { a.o.Handler.Detached(a, err) })
	return true, fmt.Errorf("connection to the runtime: %w", err)
}

// enter moves the attachment to a state, and logs a change of state.
func (a *Attachment) enter(state string, err error) {
	_ = a.state.Enter(a.o.Log, "the state of the CRI connection has changed", state, err)
}
