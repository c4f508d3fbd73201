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
	"github.com/trimtab/trimtab/internal/attach/workerpool"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// gracePeriod is the longest wait for handlers and the stub when a connection ends.
const gracePeriod = 5 * time.Second

// errAborted is the answer to a Configure request that the session no longer accepts.
var errAborted = errors.New("the agent has stopped waiting for this registration, or is registered already")

// session is one connection to the runtime. Each session has its own stub (the NRI library's client for plugins),
// because a stub whose Start failed cannot be started again. The stub passes the runtime's requests to the session.
type session struct {
	a      *Attachment
	stub   stub.Stub
	conn   *watchedConn
	ctx    context.Context // for everything that this connection runs; canceled when the connection ends
	cancel context.CancelFunc

	registered      signal // the runtime answered RegisterPlugin
	synced          signal // the handler has handled the Synchronize event
	eventBeforeSync signal // the runtime sent another event before Synchronize
	stubClosed      signal // the stub has closed and called OnClose
	identities      *identities
	requests        requests

	updateToken chan struct{}   // semaphore with one token: one unsolicited update at a time
	updateCtx   context.Context // the context of the current update; only the holder of the token uses it

	// stubStarted means that the stub's Start succeeded. If it is false, finish does not call the stub's Stop, because
	// Stop waits until Start returns, and Start possibly never returns.
	stubStarted bool
	// registerOnly means that the session only registers, because the runtime waits for the registration. The session
	// decides nothing, because another agent works on the node.
	registerOnly bool

	mu           sync.Mutex // guards the fields below
	configured   bool       // a Configure request arrived; without such a request, the stub's Start does not return
	aborted      bool       // start has given up, so Configure is refused
	syncReceived bool       // the runtime has sent Synchronize
}

// watchedConn is a connection that raises the signal dead when either side closes the connection. If a write takes
// longer than writeTimeout, watchedConn closes the connection, because possibly the runtime got only a part of the
// message.
type watchedConn struct {
	net.Conn
	writeTimeout time.Duration // of one write
	writes       atomic.Int64  // number of writes that have returned
	dead         signal        // raised when the connection is closed
}

// Write writes with a deadline.
func (c *watchedConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.writeTimeout)) // fails only on a closed connection, which the write then reports
	n, err := c.Conn.Write(b)
	c.writes.Add(1)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// Close closes the connection and raises dead. ttrpc's multiplexer calls Close as soon as reading fails.
func (c *watchedConn) Close() error {
	c.dead.raise()
	return c.Conn.Close()
}

// newSession returns a session with a new stub over conn. It sends nothing to the runtime.
func newSession(ctx context.Context, a *Attachment, conn net.Conn) (*session, error) {
	s := &session{
		a:               a,
		conn:            &watchedConn{Conn: conn, writeTimeout: a.o.WriteTimeout, dead: newSignal()},
		registered:      newSignal(),
		synced:          newSignal(),
		eventBeforeSync: newSignal(),
		stubClosed:      newSignal(),
		identities:      newIdentities(),
		requests:        requests{idle: newSignal()},
		updateToken:     make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	opts := []stub.Option{
		stub.WithLogger(stubLog{a.o.Log}),
		stub.WithConnection(s.conn),
		stub.WithOnClose(s.stubClosed.raise),
		stub.WithFailurePolicy(&api.FailurePolicy{KeepConnected: true, FailRequest: a.o.FailRequest}),
		stub.WithTTRPCOptions(
			[]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(s.interceptCall)},
			[]ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(s.interceptRequest)},
		),
	}
	// A launched plugin has its name and index in the environment. The stub reads them, and refuses an index that an
	// option sets again. So the options set only a name and an index that the environment lacks.
	if os.Getenv(api.PluginNameEnvVar) == "" {
		opts = append(opts, stub.WithPluginName(a.o.Name))
	}
	if os.Getenv(api.PluginIdxEnvVar) == "" {
		opts = append(opts, stub.WithPluginIdx(a.o.Index))
	}
	st, err := stub.New(s, opts...)
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("create the NRI stub: %w", err)
	}
	s.stub = st
	return s, nil
}

// start registers the plugin and waits for the runtime's Configure request. Once the plugin has registered, the stub's
// Start waits for this request without end, even if its context ends or the connection is lost. So start calls the
// stub's Start on a goroutine. start stops waiting if the connection is lost, the context ends or HandshakeTimeout is
// over.
func (s *session) start() error {
	done := make(chan error, 1)
	go func() { done <- s.stub.Start(s.ctx) }()
	t := time.NewTimer(s.a.o.HandshakeTimeout)
	defer t.Stop()

	var cause error
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("register the agent with the runtime: %w", err)
		}
		s.stubStarted = true
		return nil
	case <-s.conn.dead.ch:
		cause = errors.New("the runtime closed the connection while the agent registered")
	case <-t.C:
		cause = fmt.Errorf("the runtime did not register the agent within %v", s.a.o.HandshakeTimeout)
	case <-s.ctx.Done():
		cause = s.ctx.Err()
	}
	_ = s.conn.Close()
	select {
	case err := <-done:
		s.stubStarted = err == nil
	case <-s.registered.ch:
		if s.abortStart() {
			s.stubStarted = <-done == nil
		}
	}
	return cause
}

// abortStart makes the stub's Start return if Start waits for a Configure request that can no longer arrive. For this
// purpose it calls the stub with a Configure request of its own, which the method Configure of session refuses with
// errAborted. abortStart reports whether Start will return.
func (s *session) abortStart() bool {
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
		s.a.o.Log.Error("the agent cannot stop the NRI stub while the stub registers")
		return false
	}
	_, _ = c.Configure(s.ctx, &api.ConfigureRequest{})
	return true
}

// interceptRequest gets requests before the stub does. It refuses a second Configure request, and any Configure request
// after abortStart, because the stub cannot handle them.
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
	workerpool.GrowStack()
	return m(ctx, u)
}

// interceptCall is called for each call of the stub to the runtime. When the runtime has answered RegisterPlugin,
// interceptCall raises the signal registered. The stub calls UpdateContainers without the caller's context, so
// interceptCall makes this call with the context of the current update.
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

// awaitEnd returns when the connection is lost. If ctx ends first, it returns when all requests are answered.
func (s *session) awaitEnd(ctx context.Context) error {
	select {
	case <-s.conn.dead.ch:
		return errors.New("the runtime closed the connection")
	case <-ctx.Done():
		s.awaitAnswers()
		return nil
	}
}

// maxWriteWait is the longest wait until the last answer is written. An answer takes several writes. The last answer
// counts as written when nothing was written for answerQuietTime.
const (
	maxWriteWait    = time.Second
	answerQuietTime = 5 * time.Millisecond
)

// awaitAnswers waits until every request is answered and the last answer is written, at most for gracePeriod. If the
// connection ended earlier, the runtime would have no answer and might fail the request. awaitAnswers counts writes,
// because ttrpc does not report when it has written an answer.
func (s *session) awaitAnswers() {
	late := time.NewTimer(gracePeriod)
	defer late.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	var made, quiet time.Time // since when no handler runs, and since when the number of writes is the same
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
		sent := !answered || writes > written && now.Sub(quiet) >= answerQuietTime
		if !running && (sent || now.Sub(made) > maxWriteWait) {
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

// finish closes the connection, and waits until the stub and all handlers have ended, so that a connection never
// overlaps with the next one. The stub's OnClose must not call finish, because finish waits for OnClose.
func (s *session) finish() {
	s.cancel()
	if s.stubStarted {
		s.stub.Stop()
	}
	_ = s.conn.Close()
	s.requests.finish()
	t := time.NewTimer(gracePeriod)
	defer t.Stop()
	for _, c := range []chan struct{}{s.stubClosed.ch, s.requests.idle.ch} {
		select {
		case <-c:
		case <-t.C:
			s.a.o.Log.Warn("the NRI connection has ended, but a handler or the NRI stub still runs")
			return
		}
	}
}

// noteEventBeforeSync raises eventBeforeSync if an event arrives and the runtime has not sent Synchronize. iSulad never
// sends Synchronize to plugins that it launches. containerd did not send it to such plugins before NRI 0.7.
func (s *session) noteEventBeforeSync(kind lifecycle.Kind) {
	s.mu.Lock()
	received := s.syncReceived
	s.mu.Unlock()
	if !received && kind != lifecycle.Synchronize {
		s.eventBeforeSync.raise()
	}
}

// endRequest counts a request that has been answered.
func (s *session) endRequest() {
	var writes int64
	if s.conn != nil {
		writes = s.conn.writes.Load()
	}
	s.requests.end(writes)
}

// recoverPanic runs f. If f panics, it logs the panic with workName, and the agent continues.
func (s *session) recoverPanic(workName string, f func()) {
	connect.RecoverPanic(s.a.o.Log, workName, f)
}

// updateTimeout is how long an unsolicited update may take. The caller may set a shorter deadline.
const updateTimeout = 10 * time.Second

// update sends one unsolicited update and waits for the answer. It returns the ids of the containers whose update the
// runtime refused.
func (s *session) update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	ups := s.toUpdates(0, what, "", false)
	if len(ups) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	select {
	case s.updateToken <- struct{}{}:
	case <-s.conn.dead.ch:
		return nil, ErrDetached
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.updateToken }()
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
