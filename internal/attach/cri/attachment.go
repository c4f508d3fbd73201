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

// ErrDetached is the error of Update while the runtime is away.
var ErrDetached = errors.New("no runtime attached")

// Options configure an Attachment. Socket, Runtime, Handler and Log are
// required.
type Options struct {
	Socket  string // that the kubelet is given
	Runtime string // the runtime's
	// Images is the socket of an image service of its own; it is relayed on
	// ImageSocket. Empty means that the runtime has both.
	Images string
	// Listeners are sockets that are open already, for the runtime and then for
	// images; Socket is not opened where there is one.
	Listeners []net.Listener
	Handler   conductor.Handler
	Log       *slog.Logger
	// Fail refuses to create containers while the agent does not know the node's
	// state, and if an error of the agent kept it from deciding (failurePolicy.agent).
	Fail bool
	// Hooks, where not nil, has the attachment asked by a runtime proxy; Socket
	// is not served then.
	Hooks *HookService
	// Disabled are the calls whose answers change nothing.
	Disabled []runtimes.Call
	// Look is how often the runtime's list is compared with what is known from calls:
	// containers end by themselves, and the agent must know within a second.
	// containerd's stream of events would tell sooner, but in 1.7 each event goes
	// to one listener alone, and so would be lost to the kubelet. Default: 800 ms.
	Look time.Duration
	// Patience is how long to wait for the runtime before the socket opens.
	// Default: 5 s.
	Patience time.Duration
	// Admit is asked before anything is decided; while it returns an error every
	// call passes, whatever Fail says. nil admits always.
	Admit func() error
	Dial  socket.Dialer // to the runtime
}

// Attachment is Trimtab between a kubelet and its runtime. It is a
// conductor.Carrier and, while the runtime is there, a conductor.Runtime.
type Attachment struct {
	*parts

	o     Options
	calls *calls
	front *front
}

var (
	_ conductor.Carrier = (*Attachment)(nil)
	_ conductor.Runtime = (*Attachment)(nil)
)

// New returns an Attachment that does nothing until Run.
func New(o Options) *Attachment {
	o.Look, o.Patience = cmp.Or(max(o.Look, 0), 800*time.Millisecond), cmp.Or(max(o.Patience, 0), 5*time.Second)
	if o.Admit == nil {
		o.Admit = func() error { return nil }
	}
	p := &parts{log: o.Log, link: newLink(o.Log, o.Hooks != nil, o.Admit), store: newStore(), retries: newRetries()}
	p.order = newOrder(o.Log, &p.store.serial)
	p.paths = &paths{parts: p, forms: map[string]pathForm{}}
	p.lists = &lists{parts: p, unannounced: newUnannounced(time.Now)}
	if o.Hooks != nil {
		p.hookService = &hookService{parts: p, creating: map[attemptOf]*lifecycle.Container{}, sandbox: map[string]string{}}
	}
	a := &Attachment{parts: p, o: o, calls: &calls{parts: p, fail: o.Fail}}
	p.events = &events{parts: p, handler: o.Handler, from: a}
	a.front = &front{log: o.Log, dial: o.Dial, order: p.order, pick: a.calls.pick, conns: map[*relay.Conn]struct{}{}}
	return a
}

// Name is the attachment's name in status, journal and docs.
func (a *Attachment) Name() string { return nameOf(a.o.Hooks != nil) }

// Capabilities are what calls can do with the runtime that answers. Values of pods
// are never carried.
func (a *Attachment) Capabilities() conductor.Capabilities {
	can := a.link.met.Load().can
	can.Disabled = a.o.Disabled
	return can
}

// About names the runtime and its version; empty before it was first asked.
func (a *Attachment) About() string { return a.Capabilities().About }

// Status returns the state of the attachment, the runtime, and the last error
// since it last worked.
func (a *Attachment) Status() (state, runtime string, err error) {
	state, err = a.link.state.Get()
	return state, a.About(), err
}

// Update brings values into the runtime's copy of containers, one call each. It
// returns the ids of those the runtime does not know or refuses.
func (a *Attachment) Update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	if !a.link.live.Load() {
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

// Run serves until ctx ends. The socket opens when it is known what runs, or when
// the runtime does not answer; then every call passes until it does. It is called
// once.
func (a *Attachment) Run(ctx context.Context) error {
	defer a.link.enter(StateIdle, nil)
	var err error
	if a.client, err = criclient.New(a.o.Runtime, a.o.Dial, a.log); err != nil {
		return err
	}
	defer a.client.Close()
	var stop context.CancelFunc
	a.order.ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	a.link.enter(StateListing, nil)
	first, cancel := context.WithTimeout(ctx, a.o.Patience)
	a.noteLive(false, a.lists.synchronise(first))
	cancel()

	if a.o.Hooks != nil {
		return a.runHooks(ctx, stop)
	}
	sockets, err := opened(ctx, a, a.listen)
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, closeAll(sockets))
	}
	var accepting sync.WaitGroup
	for _, s := range sockets {
		a.log.Info("serving the cri", logkey.Socket, s.listener.Addr().String(), logkey.Runtime, s.to)
		accepting.Go(func() { a.front.accept(s) })
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { a.follow(ctx); return nil })
	<-ctx.Done()
	_ = closeAll(sockets)
	accepting.Wait()
	a.front.freeze()
	a.front.drain()
	stop()
	err = group.Wait()
	a.order.work.Wait()
	return err
}

// follow keeps up with the runtime until ctx ends: first until it is known what
// runs, then by comparing its list with what is known.
func (a *Attachment) follow(ctx context.Context) {
	for ctx.Err() == nil {
		live := a.link.live.Load()
		var err error
		if a.link.known.Load() {
			err = a.lists.compare(ctx)
		} else {
			err = a.lists.synchronise(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		a.noteLive(live, err)
		sleep.For(ctx, a.o.Look)
	}
	if a.link.live.Swap(false) {
		connect.RecoverPanic(a.log, "Detached", func() { a.o.Handler.Detached(a, nil) })
	}
}

// noteLive notifies the handler of a runtime that comes or goes.
func (a *Attachment) noteLive(live bool, err error) {
	a.link.live.Store(err == nil)
	switch {
	case err == nil:
		a.link.enter(StateSynchronised, nil)
		if !live {
			connect.RecoverPanic(a.log, "Attached", func() { a.o.Handler.Attached(a, a) })
		}
	case a.link.known.Load():
		a.paths.forget()
		a.link.enter(StateLost, err)
		if live {
			connect.RecoverPanic(a.log, "Detached", func() { a.o.Handler.Detached(a, err) })
		}
	default:
		if a.link.isNew(err) {
			a.log.Warn("it is not known what runs; every call passes", logkey.Err, err)
		}
		state := StatePassing
		if a.link.standby.Load() {
			state = StateStandby
		}
		a.link.enter(state, err)
	}
}
