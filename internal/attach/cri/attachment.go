package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri/crew"
	"github.com/trimtab/trimtab/internal/attach/cri/relay"
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
	StateListing      = "listing"
	StatePassing      = "passing everything through"
	StateSynchronised = "synchronised"
	StateLost         = "connection lost"
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
	// Fail refuses to create containers while it is not known how things stand,
	// and where a fault of ours kept one from being decided.
	Fail bool
	// Hooks, where not nil, has the attachment asked by a runtime proxy; Socket
	// is not served then.
	Hooks *HookService
	// Look is how often the runtime's list is compared with what was told:
	// containers end by themselves, and that is to be known within a second.
	// containerd's stream of events would tell sooner, but in 1.7 each event goes
	// to one listener alone, and so would be lost to the kubelet. Default: 500 ms.
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
	o       Options
	backend *backend
	work    crew.Crew
	ctx     context.Context // of everything Run started
	// strangers is of the goroutine that follows the runtime alone.
	strangers strangers

	mu      sync.Mutex // guards all below; never held across I/O
	state   string
	runtime string
	kind    runtimes.Runtime // what it takes
	can     conductor.Capabilities
	err     error
	known   bool // how things stand; from then on calls are held
	standby bool // another agent decides
	live    bool // the runtime answers
	store   store
	lanes   map[string]chan struct{} // by pod: what is still to be told of it
	starts  map[uint64]chan struct{} // containers that are starting
	forms   map[string]pathForm      // by runtime handler, where they are learned
	retries map[string]again         // by id: what the runtime could not describe
	serial  uint64
	conns   map[*relay.Conn]struct{}
	// dialling are callers that were accepted and have no connection to the
	// runtime yet.
	dialling int
	frozen   bool      // no call begins any more
	face     *hookFace // as proxies see it; nil where none asks
}

var (
	_ conductor.Carrier = (*Attachment)(nil)
	_ conductor.Runtime = (*Attachment)(nil)
)

// New returns an Attachment that does nothing until Run.
func New(o Options) *Attachment {
	if o.Look <= 0 {
		o.Look = 800 * time.Millisecond
	}
	if o.Patience <= 0 {
		o.Patience = 5 * time.Second
	}
	if o.Admit == nil {
		o.Admit = func() error { return nil }
	}
	a := &Attachment{
		o: o, strangers: newStrangers(time.Now), state: StateIdle, store: newStore(), lanes: map[string]chan struct{}{},
		starts: map[uint64]chan struct{}{}, forms: map[string]pathForm{}, retries: map[string]again{}, conns: map[*relay.Conn]struct{}{},
	}
	a.can = a.capabilities(runtimes.Runtime{})
	return a
}

// Name is the attachment's name in status, journal and docs.
func (a *Attachment) Name() string {
	if a.o.Hooks != nil {
		return "hooks"
	}
	return "cri"
}

// Capabilities are what calls can do with the runtime that answers. Values of pods
// are never carried.
func (a *Attachment) Capabilities() conductor.Capabilities {
	a.mu.Lock()
	defer a.mu.Unlock()
	can := a.can
	can.About = a.runtime
	return can
}

// capabilities are those with one runtime.
func (a *Attachment) capabilities(kind runtimes.Runtime) conductor.Capabilities {
	hooks := a.o.Hooks != nil
	fields := func(k lifecycle.Kind, call runtimes.Call) lifecycle.FieldSet {
		return lifecycle.FieldsWhere(func(f lifecycle.Field) bool {
			if hooks {
				return CarriesHooks(k, f)
			}
			return Carries(k, f) && kind.Has(runtimes.CRI, call, f)
		})
	}
	updates := fields(lifecycle.UpdateContainer, runtimes.Request)
	return conductor.Capabilities{
		Name: a.Name(), Create: fields(lifecycle.CreateContainer, runtimes.Create), Update: updates, Copy: updates,
		Takes: func(c runtimes.Call, v lifecycle.Value) string {
			if hooks && c != runtimes.Push && v.Field == lifecycle.MemoryLimit && v.Int < 0 {
				return "runtime proxies drop a memory limit below 0 from the answer of a hook server"
			}
			return kind.Takes(runtimes.CRI, c, v)
		},
		HoldsStart: true, RemovesEnv: true, AsksBeforePod: true,
	}
}

func (a *Attachment) takes() runtimes.Runtime {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kind
}

// taken parts values into those the runtime takes in a call and those that would
// fail the call or be dropped.
func (a *Attachment) taken(c runtimes.Call, values []lifecycle.Value) (send, left []lifecycle.Value) {
	kind := a.takes()
	for _, v := range values {
		if kind.Takes(runtimes.CRI, c, v) == "" {
			send = append(send, v)
		} else {
			left = append(left, v)
		}
	}
	return send, left
}

// About names the runtime and its version; empty before it was first asked.
func (a *Attachment) About() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runtime
}

// Status returns the state of the attachment, the runtime, and the last error
// since it last worked.
func (a *Attachment) Status() (state, runtime string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.runtime, a.err
}

// States lists the states Status may return.
func States() []string {
	return []string{StateIdle, StateStandby, StateListing, StatePassing, StateSynchronised, StateLost}
}

// enter moves to a state; an error stays for people to read until it works.
func (a *Attachment) enter(state string, err error) {
	a.mu.Lock()
	changed := a.state != state
	a.state = state
	if err != nil || state == StateSynchronised {
		a.err = err
	}
	a.mu.Unlock()
	if changed {
		a.o.Log.Debug("cri attachment", logkey.State, state, logkey.Err, err)
	}
}

// Update brings values into the runtime's copy of containers, one call each. It
// returns the ids of those the runtime does not know or refuses.
func (a *Attachment) Update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	a.mu.Lock()
	live := a.live
	a.mu.Unlock()
	if !live {
		return nil, ErrDetached
	}
	var failed []string
	for _, w := range what {
		err := a.send(ctx, w.Container, w.Values)
		switch status.Code(err) {
		case codes.OK:
		case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
			return failed, fmt.Errorf("update container %s through the cri: %w", w.Container, err)
		default:
			a.o.Log.Debug("the runtime refused an update", logkey.Container, w.Container, logkey.Err, err)
			failed = append(failed, w.Container)
		}
	}
	return failed, nil
}

// send makes one update of our own.
func (a *Attachment) send(ctx context.Context, id string, values []lifecycle.Value) error {
	r := &pRes{}
	values, left := a.taken(runtimes.Push, values)
	a.report(id, left)
	if left := update(r, values); len(left) == len(values) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := a.backend.calls.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}
