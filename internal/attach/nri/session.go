package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// grace bounds the wait for handlers and the stub when a connection ends.
const grace = 5 * time.Second

var errAborted = errors.New("handshake abandoned")

// session is one connection with its own stub: a stub whose Start failed can
// never be started again. It is also the plugin that stub serves.
type session struct {
	a      *Attachment
	stub   stub.Stub
	conn   *watchedConn
	ctx    context.Context // of everything this connection runs; ends with it
	cancel context.CancelFunc

	registered signal // RegisterPlugin was answered
	synced     signal // the Synchronize event was handled
	working    signal // an event came, and no Synchronize before it
	closed     signal // the stub has cleaned up
	known      *identities
	requests   requests

	updating  chan struct{}   // holds one token: one unsolicited update at a time
	updateCtx context.Context // of the update under way; owned by the token's holder

	started bool // Start succeeded; Stop would wait for one that is stuck
	// mute: registered because the runtime waits for it, and nothing is decided.
	mute bool

	mu         sync.Mutex
	configured bool // Configure arrived: it alone ends the stub's Start
	aborted    bool // Configure must not be answered any more
	asked      bool // Synchronize arrived
}

// watchedConn reports when it is closed, by whichever side. A write that the other side
// leaves unread for too long closes it: half a message may be out.
type watchedConn struct {
	net.Conn
	within time.Duration // of one write
	writes atomic.Int64  // that returned
	dead   signal
}

// Write writes within bounds.
func (c *watchedConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.within)) // of a closed connection, which the write finds
	n, err := c.Conn.Write(b)
	c.writes.Add(1)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// Close closes the connection. The multiplexer above calls it as soon as
// reading fails.
func (c *watchedConn) Close() error {
	c.dead.raise()
	return c.Conn.Close()
}

func newSession(ctx context.Context, a *Attachment, conn net.Conn) (*session, error) {
	s := &session{
		a:          a,
		conn:       &watchedConn{Conn: conn, within: a.o.WriteTimeout, dead: newSignal()},
		registered: newSignal(),
		synced:     newSignal(),
		working:    newSignal(),
		closed:     newSignal(),
		known:      newIdentities(),
		requests:   requests{idle: newSignal()},
		updating:   make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	opts := []stub.Option{
		stub.WithLogger(stubLog{a.o.Log}),
		stub.WithConnection(s.conn),
		stub.WithOnClose(s.closed.raise),
		stub.WithFailurePolicy(&api.FailurePolicy{KeepConnected: true, FailRequest: a.o.FailRequest}),
		stub.WithTTRPCOptions(
			[]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(s.interceptCall)},
			[]ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(s.interceptRequest)},
		),
	}
	// The stub reads these two from the environment first, and refuses an
	// index that is set twice.
	if os.Getenv(api.PluginNameEnvVar) == "" {
		opts = append(opts, stub.WithPluginName(a.o.Name))
	}
	if os.Getenv(api.PluginIdxEnvVar) == "" {
		opts = append(opts, stub.WithPluginIdx(a.o.Index))
	}
	st, err := stub.New(s, opts...)
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("create nri stub: %w", err)
	}
	s.stub = st
	return s, nil
}

// start registers and waits until the runtime has configured us. The stub's
// Start ends neither with its context nor with a lost connection once it is
// registered, so it runs beside a watchdog.
func (s *session) start() error {
	done := make(chan error, 1)
	go func() { done <- s.stub.Start(s.ctx) }()
	t := time.NewTimer(s.a.o.Handshake)
	defer t.Stop()

	var cause error
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("register with runtime: %w", err)
		}
		s.started = true
		return nil
	case <-s.conn.dead.ch:
		cause = errors.New("runtime closed the connection while registering")
	case <-t.C:
		cause = fmt.Errorf("runtime did not register us within %v", s.a.o.Handshake)
	case <-s.ctx.Done():
		cause = s.ctx.Err()
	}
	_ = s.conn.Close()
	select {
	case err := <-done:
		s.started = err == nil
	case <-s.registered.ch:
		if s.abort() {
			s.started = <-done == nil
		}
	}
	return cause
}

// abort ends a Start that waits for a Configure which can no longer come, by
// giving the stub one that fails. It reports whether Start will return.
func (s *session) abort() bool {
	s.mu.Lock()
	if s.configured {
		s.mu.Unlock()
		return true
	}
	s.aborted = true
	s.mu.Unlock()
	c, ok := s.stub.(interface {
		Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error)
	})
	if !ok {
		s.a.o.Log.Error("nri stub cannot be stopped while it registers")
		return false
	}
	_, _ = c.Configure(s.ctx, &api.ConfigureRequest{})
	return true
}

// interceptRequest sees requests before the stub. The stub survives only one
// Configure, and none once its Start was given up.
func (s *session) interceptRequest(ctx context.Context, u ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, m ttrpc.Method) (any, error) {
	if strings.HasSuffix(info.FullMethod, "/Configure") {
		s.mu.Lock()
		refuse := s.aborted || s.configured
		s.configured = true
		s.mu.Unlock()
		if refuse {
			return nil, errAborted
		}
	}
	deepen()
	return m(ctx, u)
}

// deepen makes room on the stack of a request's goroutine at once. It starts
// with a small one, and would otherwise be moved to one of twice the size
// several times, each time with more calls on it. A decision with pools takes
// between 16 and 32 KiB: sets of CPUs are values.
//
//go:noinline
func deepen() {
	var room [24 << 10]byte
	touch(&room)
}

//go:noinline
func touch(room *[24 << 10]byte) { room[0] = 1 }

// interceptCall sees our calls to the runtime. It marks the end of
// RegisterPlugin, and gives UpdateContainers, which the stub calls without
// context, the context of the update under way.
func (s *session) interceptCall(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, info *ttrpc.UnaryClientInfo, call ttrpc.Invoker) error {
	if strings.HasSuffix(info.FullMethod, "/UpdateContainers") {
		ctx = s.updateCtx
		if dl, ok := ctx.Deadline(); ok {
			req.TimeoutNano = time.Until(dl).Nanoseconds()
		}
	}
	err := call(ctx, req, resp)
	if err == nil && strings.HasSuffix(info.FullMethod, "/RegisterPlugin") {
		s.registered.raise()
	}
	return err
}

// wait blocks until the connection is lost, or ctx ends.
func (s *session) wait(ctx context.Context) error {
	select {
	case <-s.conn.dead.ch:
		return errors.New("runtime closed the connection")
	case <-ctx.Done():
		s.rest()
		return nil
	}
}

// What rest waits for after the last answer was made: until it is written, and until
// nothing was written for a while, as one answer is several writes.
const (
	answerWritten = time.Second
	answerQuiet   = 5 * time.Millisecond
)

// rest waits, within bounds, until no event is being answered and the last answer is
// written: the runtime takes the end of the connection for no answer, and may fail the
// request. The server of the library does not say when it has written an answer.
func (s *session) rest() {
	late := time.NewTimer(grace)
	defer late.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	var made, quiet time.Time // since when no handler runs, and the same number of writes
	for last := int64(-1); ; {
		now := time.Now()
		running, answered, written := s.requests.state()
		writes := s.conn.writes.Load()
		if running || made.IsZero() {
			made = now
		}
		if writes != last {
			last, quiet = writes, now
		}
		sent := !answered || writes > written && now.Sub(quiet) >= answerQuiet
		if !running && (sent || now.Sub(made) > answerWritten) {
			return
		}
		select {
		case <-again.C:
		case <-late.C:
			return
		case <-s.conn.dead.ch:
			return
		}
	}
}

// finish closes everything and waits for it, so that nothing of this
// connection overlaps with the next. It is not called from the stub's OnClose.
func (s *session) finish() {
	s.cancel()
	if s.started {
		s.stub.Stop()
	}
	_ = s.conn.Close()
	s.requests.finish()
	t := time.NewTimer(grace)
	defer t.Stop()
	for _, c := range []chan struct{}{s.closed.ch, s.requests.idle.ch} {
		select {
		case <-c:
		case <-t.C:
			s.a.o.Log.Warn("nri connection closed with requests still running")
			return
		}
	}
}

// works notes an event of a runtime that sent no Synchronize: iSulad never sends it
// to the plugins that it starts, nor did containerd before NRI 0.7.
func (s *session) works(kind lifecycle.Kind) {
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	if !asked && kind != lifecycle.Synchronize {
		s.working.raise()
	}
}

// end counts a request out.
func (s *session) end() {
	var writes int64
	if s.conn != nil {
		writes = s.conn.writes.Load()
	}
	s.requests.end(writes)
}

// contain keeps a panic of what it calls from ending the agent.
func (s *session) contain(what string, f func()) { connect.RecoverPanic(s.a.o.Log, what, f) }

// updateBound is the longest an unsolicited update may take when its caller
// sets no deadline.
const updateBound = 10 * time.Second

// update sends one unsolicited update and waits for its answer.
func (s *session) update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	ups := s.updates(0, what, "", false)
	if len(ups) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, updateBound)
	defer cancel()
	select {
	case s.updating <- struct{}{}:
	case <-s.conn.dead.ch:
		return nil, ErrDetached
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.updating }()
	s.updateCtx = ctx
	refused, err := s.stub.UpdateContainers(ups)
	if err != nil {
		return nil, err
	}
	failed := make([]string, 0, len(refused))
	for _, u := range refused {
		failed = append(failed, u.GetContainerId())
	}
	return failed, nil
}
