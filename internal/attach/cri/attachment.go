package cri

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/socket"
)

// ErrDetached is the error of Update while the runtime does not answer.
var ErrDetached = errors.New("no runtime attached")

// Options configure an Attachment. Socket, Runtime, Handler and Log are
// required.
type Options struct {
	Socket  string // the socket that the kubelet connects to
	Runtime string // the runtime's socket
	// Images is the socket of a separate image service. The attachment relays it on ImageSocket. If it is empty,
	// the runtime serves images, too.
	Images string
	// Listeners are sockets that are already open: the runtime's first, then the image
	// service's. If there are any, the attachment does not open Socket.
	Listeners []net.Listener
	Handler   conductor.Handler
	Log       *slog.Logger
	// FailClosed means that the attachment refuses to create containers while the agent does not know the node's
	// state, and if an error kept the agent from deciding (failurePolicy.agent).
	FailClosed bool
	// Hooks, if not nil, makes the attachment the hook server of a runtime proxy. The attachment then does not serve
	// Socket.
	Hooks *HookService
	// UnchangedCalls are the calls whose answers the attachment does not change.
	UnchangedCalls []runtimes.Call
	// ListInterval is how often the attachment compares the runtime's lists with what the calls reported.
	// Containers also end by themselves, and the agent must know that within a second. containerd's event stream
	// would report it sooner. But containerd 1.7 sends each event to one listener only, and the kubelet would then
	// miss it. Default: 800 ms.
	ListInterval time.Duration
	// RuntimeTimeout is how long to wait for the runtime before the socket opens. Default: 5 s.
	RuntimeTimeout time.Duration
	// Run calls Admit before it decides anything. While Admit returns an error, every call is forwarded unchanged,
	// even if FailClosed is set. If it is nil, the agent may always decide.
	Admit func() error
	Dial  socket.Dialer // to the runtime
	// FreeMemory returns memory to the system after the runtime's whole list was read. It may be nil.
	FreeMemory func()
	// Decisions is the directory in which the OCI runtime wrapper finds what to change in new containers. Empty
	// means that the OCI runtime is not our wrapper.
	Decisions string
	// Host is a server that receives callers' connections before the relay does; nil if there is none.
	Host Host
}

// Attachment is a proxy between a kubelet and its runtime. It is a conductor.Carrier
// and, while the runtime answers, a conductor.Runtime.
type Attachment struct {
	*shared

	o     Options
	calls *calls
	front *frontend
}

var (
	_ conductor.Carrier = (*Attachment)(nil)
	_ conductor.Runtime = (*Attachment)(nil)
)

// New returns an Attachment that does nothing until Run.
func New(o Options) *Attachment {
	o.ListInterval, o.RuntimeTimeout = cmp.Or(max(o.ListInterval, 0), 800*time.Millisecond), cmp.Or(max(o.RuntimeTimeout, 0), 5*time.Second)
	if o.Admit == nil {
		o.Admit = func() error { return nil }
	}
	if o.FreeMemory == nil {
		o.FreeMemory = func() {}
	}
	p := &shared{log: o.Log, link: newLink(o.Log, o.Hooks != nil, o.Decisions != "", o.Admit), store: newStore(), retries: newRetries(), wrapper: wrapper{o.Decisions, o.Log}}
	p.queues = newCallQueues(o.Log, &p.store.serial)
	p.paths = &paths{shared: p, forms: map[string]pathForm{}}
	p.lists = &lists{shared: p, unannounced: newUnannounced(time.Now), freeMemory: o.FreeMemory}
	if o.Hooks != nil {
		p.hookService = &hookService{shared: p, creating: map[attemptKey]*lifecycle.Container{}, sandboxIDs: map[string]string{}}
	}
	a := &Attachment{shared: p, o: o, calls: &calls{shared: p, failClosed: o.FailClosed}}
	p.events = &events{shared: p, handler: o.Handler, carrier: a}
	a.front = &frontend{log: o.Log, dial: o.Dial, queues: p.queues, pick: a.calls.pick, conns: map[*relay.Conn]struct{}{}}
	return a
}

// Name is the attachment's name in status, journal and docs.
func (a *Attachment) Name() string { return nameOf(a.o.Hooks != nil) }

// Capabilities are what calls to the connected runtime can change. The CRI carries no values of pods.
func (a *Attachment) Capabilities() conductor.Capabilities {
	can := a.link.runtimeSeen.Load().capabilities
	can.UnchangedCalls = a.o.UnchangedCalls
	return can
}

// About names the runtime and its version. It is empty until the runtime has answered once.
func (a *Attachment) About() string { return a.Capabilities().About }

// Status returns the state of the attachment, the runtime, and the last error since the attachment last worked.
func (a *Attachment) Status() (state, runtime string, err error) {
	state, err = a.link.state.Get()
	return state, a.About(), err
}

// Update writes values to the runtime's copies of containers, with one call for each container. It returns the ids
// of containers that the runtime does not know, or for which it refuses the update.
func (a *Attachment) Update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	if !a.link.runtimeAnswers.Load() {
		return nil, ErrDetached
	}
	var failed []string
	for _, w := range what {
		err := a.events.send(ctx, w.Container, w.Values)
		switch status.Code(err) {
		case codes.OK:
		case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
			return failed, err
		default:
			a.log.Debug("the runtime refused an update", logkey.Container, w.Container, logkey.Err, err)
			failed = append(failed, w.Container)
		}
	}
	return failed, nil
}

// Run serves until ctx ends. It opens the socket when the agent knows the running containers, or when the runtime
// does not answer. In the second case it forwards every call unchanged until the runtime answers; but if FailClosed is
// set, it refuses CreateContainer. Run may be called only once.
func (a *Attachment) Run(ctx context.Context) error {
	defer a.link.enter(connect.Idle, nil)
	var err error
	if a.client, err = criclient.New(a.o.Runtime, a.o.Dial, a.log); err != nil {
		return err
	}
	defer a.client.Close()
	var stop context.CancelFunc
	a.queues.ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	a.link.enter(StateListing, nil)
	first, cancel := context.WithTimeout(ctx, a.o.RuntimeTimeout)
	a.notifyConnected(false, a.lists.synchronise(first))
	cancel()

	if a.o.Hooks != nil {
		return a.runHooks(ctx, stop)
	}
	sockets, err := openSocketsWhenAdmitted(ctx, a, a.listen)
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, closeAll(sockets))
	}
	var accepting sync.WaitGroup
	served := ctx
	for i, s := range sockets {
		a.log.Info("serving the cri", logkey.Socket, s.listener.Addr().String(), logkey.Runtime, s.backend)
		if i == 0 && a.o.Host != nil {
			accepting.Go(func() { a.serveHost(served, s) })
			continue
		}
		accepting.Go(func() { a.front.accept(s) })
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { a.watchRuntime(ctx); return nil })
	<-ctx.Done()
	_ = closeAll(sockets)
	accepting.Wait()
	if a.o.Host != nil {
		a.o.Host.Stop(grace, maxGrace)
	}
	a.front.freeze()
	a.front.drain()
	stop()
	err = group.Wait()
	a.queues.work.Wait()
	return err
}

// watchRuntime runs until ctx ends: it synchronises first, and then compares the
// runtime's lists with the store.
func (a *Attachment) watchRuntime(ctx context.Context) {
	for ctx.Err() == nil {
		live := a.link.runtimeAnswers.Load()
		var err error
		if a.link.containersKnown.Load() {
			err = a.lists.compare(ctx)
		} else {
			err = a.lists.synchronise(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		a.notifyConnected(live, err)
		sleep.For(ctx, a.o.ListInterval)
	}
	if a.link.runtimeAnswers.Swap(false) {
		connect.RecoverPanic(a.log, "Detached", func() { a.o.Handler.Detached(a, nil) })
	}
}

// notifyConnected enters the state that follows from err, the result of the last request to the runtime. It notifies
// the handler if the runtime has connected or disconnected. live means that the runtime answered before.
func (a *Attachment) notifyConnected(live bool, err error) {
	a.link.runtimeAnswers.Store(err == nil)
	switch {
	case err == nil:
		a.link.enter(connect.Synchronised, nil)
		if !live {
			connect.RecoverPanic(a.log, "Attached", func() { a.o.Handler.Attached(a, a) })
		}
	case a.link.containersKnown.Load():
		a.paths.forget()
		a.link.enter(connect.Lost, err)
		if live {
			connect.RecoverPanic(a.log, "Detached", func() { a.o.Handler.Detached(a, err) })
		}
	default:
		if a.link.isNew(err) {
			a.log.Warn("the agent does not know the running containers yet, so it decides about no call", logkey.Err, err)
		}
		state := StatePassing
		if a.link.standby.Load() {
			state = connect.Standby
		}
		a.link.enter(state, err)
	}
}
