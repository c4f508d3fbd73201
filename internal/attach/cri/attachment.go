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
var ErrDetached = errors.New("the agent is not connected to the runtime")

// Options configure an Attachment. Socket, Runtime, Handler and Log are required.
type Options struct {
	Socket  string // the socket that the kubelet connects to
	Runtime string // the runtime's socket
	// Images is the socket of a separate image service. The attachment serves this image service, too, on the path that
	// ImageSocket returns. If Images is empty, the runtime's socket also serves images.
	Images string
	// Listeners are sockets that systemd has already opened. The first stands in for Socket, and the second for the
	// socket of the image service. The attachment opens only the sockets that are missing in this list.
	Listeners []net.Listener
	Handler   conductor.Handler
	Log       *slog.Logger
	// If FailClosed is set (failurePolicy.agent: Fail), the attachment refuses CreateContainer while the agent does not
	// know the running containers, and when the agent panics during a decision. It also refuses StartContainer if the
	// agent could not write the decision for trimtab-oci.
	FailClosed bool
	// Hooks, if not nil, makes the attachment the hook server of a runtime proxy. The attachment then does not serve
	// Socket.
	Hooks *HookService
	// UnchangedCalls are the calls to which the attachment adds no values, because the configuration lists them.
	UnchangedCalls []runtimes.Call
	// ListInterval is the pause between two comparisons of the runtime's lists with the pods and containers that the
	// attachment has stored. No call reports a container that ends by itself, and the agent must learn of this end
	// within a second. The attachment does not use containerd's event stream: containerd 1.7 sends each event to one
	// listener only, so the kubelet would miss events. Default: 800 ms.
	ListInterval time.Duration
	// RuntimeTimeout is how long Run waits for the runtime's first answer before it opens the socket. Default: 5 s.
	RuntimeTimeout time.Duration
	// Run calls Admit before the agent decides anything. While Admit returns an error, every call is forwarded
	// unchanged, even if FailClosed is set. If Admit is nil, the agent may always decide.
	Admit func() error
	Dial  socket.Dialer // connects to the runtime
	// FreeMemory returns memory to the operating system. The attachment calls it after it has read the verbose statuses
	// of all containers. It may be nil.
	FreeMemory func()
	// DecisionsDir is the directory into which the agent writes its decisions for the OCI runtime wrapper trimtab-oci.
	// The wrapper reads there what to change in a new container. If DecisionsDir is empty, the node does not use the
	// wrapper.
	DecisionsDir string
	// NRIHost serves the connections of the callers, and forwards their calls to the relay. If NRIHost is nil, the
	// relay serves these connections itself.
	NRIHost NRIHost
}

// Attachment is a proxy between a kubelet and its runtime. To the conductor, which decides about events, it is the
// source of the events (conductor.Carrier). While the runtime answers, it also is the way to the runtime
// (conductor.Runtime).
type Attachment struct {
	*sharedState

	o     Options
	calls *callHandler // decides about the calls that the relay holds
	front *frontend    // accepts the connections of callers
}

var (
	_ conductor.Carrier = (*Attachment)(nil)
	_ conductor.Runtime = (*Attachment)(nil)
)

// New returns an Attachment that does nothing until Run is called.
func New(o Options) *Attachment {
	o.ListInterval, o.RuntimeTimeout = cmp.Or(max(o.ListInterval, 0), 800*time.Millisecond), cmp.Or(max(o.RuntimeTimeout, 0), 5*time.Second)
	if o.Admit == nil {
		o.Admit = func() error { return nil }
	}
	if o.FreeMemory == nil {
		o.FreeMemory = func() {}
	}
	p := &sharedState{log: o.Log, link: newLink(o.Log, o.Hooks != nil, o.DecisionsDir != "", o.Admit), store: newStore(), retries: newRetries(), wrapper: wrapper{o.DecisionsDir, o.Log}}
	p.queues = newCallQueues(o.Log, &p.store.serial)
	p.paths = &pathLearner{sharedState: p, forms: map[string]pathForm{}}
	p.lists = &listSynchroniser{sharedState: p, unannounced: newUnannouncedObjects(time.Now), freeMemory: o.FreeMemory}
	if o.Hooks != nil {
		p.hookService = &hookService{sharedState: p, creating: map[creatingKey]*lifecycle.Container{}, sandboxIDs: map[string]string{}}
	}
	a := &Attachment{sharedState: p, o: o, calls: &callHandler{sharedState: p, failClosed: o.FailClosed}}
	p.events = &events{sharedState: p, handler: o.Handler, carrier: a}
	a.front = &frontend{log: o.Log, dial: o.Dial, queues: p.queues, handlingFor: a.calls.handlingFor, conns: map[*relay.Conn]struct{}{}}
	return a
}

// Name is the attachment's name in status, journal and docs.
func (a *Attachment) Name() string { return attachmentName(a.o.Hooks != nil) }

// Capabilities returns the fields that the attachment can change in the connected runtime. It changes them in calls of
// the kubelet, which it holds until the agent has decided, and with calls of its own. They are fields of containers
// only, because the CRI cannot transport decided values of a pod.
func (a *Attachment) Capabilities() conductor.Capabilities {
	can := a.link.lastRuntime.Load().capabilities
	can.UnchangedCalls = a.o.UnchangedCalls
	return can
}

// About names the runtime and its version. It is empty until the runtime has answered once.
func (a *Attachment) About() string { return a.Capabilities().RuntimeName }

// Status returns the state of the attachment, and the name and version of the runtime. err is the last error, or nil if
// the attachment has worked after this error.
func (a *Attachment) Status() (state, runtime string, err error) {
	state, err = a.link.state.Get()
	return state, a.About(), err
}

// Update changes the resources that the runtime stores for containers, with one call for each container. It returns the
// ids of the containers whose update the runtime refused, or that the runtime does not know.
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
			a.log.Debug("the runtime refused to update the resources that it stores for a container", logkey.Container, w.Container, logkey.Err, err)
			failed = append(failed, w.Container)
		}
	}
	return failed, nil
}

// Run serves until ctx ends. It opens the socket when the agent knows the running containers, or after RuntimeTimeout
// if the runtime does not answer. In the second case it forwards every call unchanged until the runtime answers. But if
// FailClosed is set, it refuses CreateContainer. Run may be called only once.
func (a *Attachment) Run(ctx context.Context) error {
	defer a.link.enter(connect.StateIdle, nil)
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
		a.log.Info("the agent serves the CRI on a socket", logkey.Socket, s.listener.Addr().String(), logkey.Runtime, s.backend)
		if i == 0 && a.o.NRIHost != nil {
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
	if a.o.NRIHost != nil {
		a.o.NRIHost.Stop(gracePeriod, maxGracePeriod)
	}
	a.front.stopNewCalls()
	a.front.awaitCallsEnd()
	stop()
	err = group.Wait()
	a.queues.work.Wait()
	return err
}

// watchRuntime runs until ctx ends. It first stores all pods and containers of the runtime's lists. It then compares
// the lists with the stored pods and containers every ListInterval.
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

// notifyConnected sets the state of the attachment after a request to the runtime. The parameter err is the result of
// this request, and live means that the runtime answered the request before it. If the runtime has connected or
// disconnected, notifyConnected notifies the handler.
func (a *Attachment) notifyConnected(live bool, err error) {
	a.link.runtimeAnswers.Store(err == nil)
	switch {
	case err == nil:
		a.link.enter(connect.StateSynchronised, nil)
		if !live {
			connect.RecoverPanic(a.log, "Attached", func() { a.o.Handler.Attached(a, a) })
		}
	case a.link.containersKnown.Load():
		a.paths.forgetForms()
		a.link.enter(connect.StateLost, err)
		if live {
			connect.RecoverPanic(a.log, "Detached", func() { a.o.Handler.Detached(a, err) })
		}
	default:
		if a.link.isNewError(err) {
			a.log.Warn("the agent does not know the running containers yet, so it makes no decisions", logkey.Err, err)
		}
		state := StatePassing
		if a.link.standby.Load() {
			state = connect.StateStandby
		}
		a.link.enter(state, err)
	}
}
