package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/socket"
)

// States that Attachment.Status returns, in addition to the states of package connect.
const (
	StateWaiting     = "waiting for socket"
	StateDialing     = "dialing"
	StateRegistering = "registering"
	StateRegistered  = "registered"
)

// Errors of Update and Run.
var (
	// ErrDetached is the error of Update while no runtime is connected and synchronised.
	ErrDetached = errors.New("the agent is not connected to the runtime")
	// ErrInHandler means that a handler called Update while it answered an event. If the runtime handles one NRI
	// request at a time, Update would wait for the runtime, and the runtime would wait for the handler's answer.
	ErrInHandler = errors.New("update containers through NRI: a handler must not call Update while it answers an event")
	// ErrRuntimeGone is the error of Run in a launched plugin. It means that the runtime that launched this process
	// closed the connection. That runtime opens no other connection.
	ErrRuntimeGone = errors.New("the runtime that launched this plugin closed the connection")
)

// Options configure an Attachment. Handler and Log are required.
type Options struct {
	Socket  string            // the path of the runtime's NRI socket; default: /var/run/nri/nri.sock
	Name    string            // the name of the plugin; default: trimtab
	Index   string            // two digits; the runtime calls plugins in the order of their indices. Default: 50
	Handler conductor.Handler // decides about the runtime's events
	Log     *slog.Logger
	// FailRequest asks the runtime to fail a request that the agent does not answer in time, instead of continuing
	// without the agent. Runtimes with an NRI release before 0.12.4 ignore FailRequest.
	FailRequest bool
	// UnchangedCalls are the calls that the configuration key nri.disabledStages lists. The agent changes nothing in the
	// answers to these calls.
	UnchangedCalls []runtimes.Call
	// OnConfigure is called with the configuration that the runtime stores for a launched plugin, if the runtime has
	// one. If OnConfigure returns an error, the attachment refuses the connection.
	OnConfigure func(yaml string) error
	// Admit is called before each registration. It returns an error while the attachment must not connect, because
	// another agent works on the node. Until Admit returns nil, the attachment stays unconnected, in the state
	// connect.StateStandby. If Admit is nil, the attachment always connects.
	Admit func() error
	// OnState is called with each state that the attachment enters, in order, and with the error that Status then
	// returns. OnState must not call methods of the attachment.
	OnState          func(state string, err error)
	Backoff          connect.Backoff // default: 0.5 s to 15 s
	HandshakeTimeout time.Duration   // how long a registration may take; default: 10 s
	// WriteTimeout is how long a write to the runtime may take. After that the attachment closes the connection;
	// default: 10 s.
	WriteTimeout time.Duration
	// AdmitInterval is the pause between calls of Admit; default: 0.2 s.
	AdmitInterval time.Duration
	Dial          socket.Dialer // connects to the runtime's socket
	// Polls makes the attachment poll for the socket instead of using inotify.
	Polls bool
}

// Attachment is an NRI plugin that connects again whenever its connection ends. The agent gets the runtime's events
// from the attachment, and sends updates of containers through it (interfaces conductor.Carrier and conductor.Runtime).
type Attachment struct {
	o     Options
	state connect.State

	lastRuntime   atomic.Pointer[lastRuntime]
	syncedSession atomic.Pointer[session] // the synchronised session; nil if there is none
}

// lastRuntime is the runtime that sent the last Configure request.
type lastRuntime struct {
	peer         peer
	capabilities conductor.Capabilities // what the attachment can change in this runtime
	// The runtime's timeouts for a registration and for a request, from the Configure request; 0 if the request had
	// none.
	registration, request time.Duration
}

// newLastRuntime returns the runtime p with its two timeouts. If the request timeout is 0, the capabilities get the
// default timeout of the NRI library in its place.
func newLastRuntime(p peer, registration, request time.Duration) *lastRuntime {
	can := p.capabilities()
	can.AnswerTimeout = cmp.Or(max(request, 0), stub.DefaultRequestTimeout)
	return &lastRuntime{p, can, registration, request}
}

var (
	_ conductor.Carrier = (*Attachment)(nil)
	_ conductor.Runtime = (*Attachment)(nil)
)

// New returns an Attachment that does nothing until Run.
func New(o Options) *Attachment {
	o.Socket, o.Name, o.Index = cmp.Or(o.Socket, api.DefaultSocketPath), cmp.Or(o.Name, "trimtab"), cmp.Or(o.Index, "50")
	o.Backoff = o.Backoff.WithDefaults(connect.Backoff{Min: 500 * time.Millisecond, Max: 15 * time.Second})
	o.AdmitInterval = cmp.Or(max(o.AdmitInterval, 0), connect.DefaultAdmitInterval)
	if o.Admit == nil {
		o.Admit = func() error { return nil }
	}
	o.HandshakeTimeout, o.WriteTimeout = cmp.Or(max(o.HandshakeTimeout, 0), 10*time.Second), cmp.Or(max(o.WriteTimeout, 0), 10*time.Second)
	a := &Attachment{o: o}
	a.lastRuntime.Store(newLastRuntime(peer{}, 0, 0))
	return a
}

// Launched reports whether a runtime started this process as a pre-installed plugin and passed a connection to it.
func Launched() bool { return os.Getenv(api.PluginSocketEnvVar) != "" }

// Name is the attachment's name in status, journal and docs.
func (a *Attachment) Name() string { return "nri" }

// Capabilities returns which fields the runtime of the last connection lets the attachment set. It never lists fields
// of whole pods, because NRI has no call that changes a pod.
func (a *Attachment) Capabilities() conductor.Capabilities {
	can := a.lastRuntime.Load().capabilities
	can.UnchangedCalls = a.o.UnchangedCalls
	return can
}

// MissingFields lists the fields that newer runtimes apply from an answer to CreateContainer, and that the runtime of
// the last connection does not apply.
func (a *Attachment) MissingFields() []lifecycle.Field { return a.peer().missingFields() }

// peer returns the runtime of the last connection.
func (a *Attachment) peer() peer { return a.lastRuntime.Load().peer }

// About returns the name, release and NRI release of the runtime of the last connection; "" if there was none.
func (a *Attachment) About() string { return a.peer().about }

// Status returns the state of the connection, the runtime of the last connection, and the last error. The error is nil
// if none has occurred since the attachment was last synchronised.
func (a *Attachment) Status() (state, runtime string, err error) {
	state, err = a.state.Get()
	return state, a.About(), err
}

// Timeouts returns how long the runtime waits for a registration and for an answer, according to the last Configure
// request. A timeout is 0 if the Configure request did not have it.
func (a *Attachment) Timeouts() (registration, request time.Duration) {
	m := a.lastRuntime.Load()
	return m.registration, m.request
}

// States lists the states that Status may return.
func States() []string {
	return []string{connect.StateIdle, StateWaiting, connect.StateStandby, StateDialing, StateRegistering, StateRegistered, connect.StateSynchronised, connect.StateLost}
}

// Update sends unsolicited updates to the runtime, and returns the ids of the containers whose update the runtime
// refused. It makes one call at a time. A call ends when ctx ends, or after updateTimeout. A handler must not call
// Update while it answers an event. If ctx is the context of a handler, Update returns ErrInHandler.
func (a *Attachment) Update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	if ctx.Value(inHandlerKey{}) != nil {
		return nil, ErrInHandler
	}
	s := a.syncedSession.Load()
	if s == nil {
		return nil, ErrDetached
	}
	failed, err := s.update(ctx, what)
	if err != nil {
		return nil, fmt.Errorf("update %d containers through NRI: %w", len(what), err)
	}
	return failed, nil
}

// enter sets the state of the attachment, logs a change of state, and calls OnState. The parameter err is the error
// that caused the change, or nil.
func (a *Attachment) enter(state string, err error) {
	cause := a.state.Enter(a.o.Log, "the state of the NRI connection has changed", state, err)
	if a.o.OnState != nil {
		a.o.OnState(state, cause)
	}
}
