package hookserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/internal/extend/breaker"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// maxAnswerBytes limits one answer, in bytes.
	maxAnswerBytes = 4 << 20
)

const servicePrefix = "/runtime.v1alpha1.RuntimeHookService/"

// server is one hook server. All registrations of a server share its connection.
type server struct {
	name         string // the name of its file
	registration Registration
	opts         Options
	connection   *connection
}

// connection is the connection to a server, and its recent results.
type connection struct {
	conn *grpc.ClientConn
	err  error // the reason why there is no connection

	mu       sync.Mutex // guards all below
	calls    uint64
	failed   uint64
	lastErr  error
	breaker  breaker.Breaker
	inFlight int  // running calls
	closing  bool // close was called: conn must be closed after the last running call
}

// close closes the connection now, or after the last running call.
func (l *connection) close() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	l.closeIdle()
}

// closeIdle closes the connection if close was called, and no call is running.
func (l *connection) closeIdle() {
	l.mu.Lock()
	now := l.closing && l.inFlight == 0 && l.conn != nil
	l.mu.Unlock()
	if now {
		_ = l.conn.Close() // a second close only returns an error
	}
}

func newServer(name string, r Registration, o Options) *server {
	l := &connection{}
	l.conn, l.err = grpc.NewClient("passthrough:///"+r.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(socket.DialTrusted),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second,
		}))
	return &server{name: name, registration: r, opts: o, connection: l}
}

// withRegistration returns the same server with another registration.
func (s *server) withRegistration(r Registration) *server {
	n := *s
	n.registration = r
	return &n
}

// servesStage reports whether the server is registered for a stage.
func (s *server) servesStage(stage Stage) bool { return slices.Contains(s.registration.Stages, stage) }

// circuitOpenError is the error of a call that the agent did not make, because the circuit breaker is open.
type circuitOpenError struct {
	remaining time.Duration
	lastErr   error
}

func (r *circuitOpenError) Error() string {
	return fmt.Sprintf("not called, because %d calls in a row had no answer; the agent calls it again in %v; the last error: %v", breaker.MaxFailures, r.remaining.Round(time.Millisecond), r.lastErr)
}

// call makes one call. The call ends after the server's timeout, or at the time end if end is earlier. A zero end means
// no such limit.
func (s *server) call(ctx context.Context, end time.Time, stage StageDescription, req, resp proto.Message) error {
	own := time.Now().Add(s.opts.Timeout)
	cut := false // less than half of the server's timeout is left before end
	if !end.IsZero() && end.Before(own) {
		own = end
		cut = time.Until(end) < s.opts.Timeout/2
	}
	if ctx.Err() != nil || time.Until(own) <= 0 {
		s.opts.Recorder.Call(s.name, stage.Stage, EventEnded, 0)
		return &eventEndedError{requestSent: false, cancelled: errors.Is(ctx.Err(), context.Canceled)}
	}
	if err := s.connection.beginCall(s.opts.Now()); err != nil {
		s.opts.Recorder.Call(s.name, stage.Stage, Skipped, 0)
		return err
	}
	start := s.opts.Now()
	err, late := s.connection.err, false
	if err == nil {
		limited, cancel := context.WithDeadline(ctx, own)
		err = s.connection.conn.Invoke(limited, servicePrefix+stage.Call, req, resp)
		late = err != nil && endedWith(limited, err)
		cancel()
	}
	now := s.opts.Now()
	took := now.Sub(start)
	given := err != nil && errors.Is(ctx.Err(), context.Canceled)
	if given || late && cut {
		// The caller cancelled the event, or the event left the server too little time: not a failure of the server.
		s.opts.Recorder.Call(s.name, stage.Stage, EventEnded, took)
		s.connection.endCall(errEventEnded, now)
		s.connection.closeIdle()
		return &eventEndedError{requestSent: true, cancelled: given}
	}
	s.opts.Recorder.Call(s.name, stage.Stage, resultOf(err, late), took)
	err = s.describeError(err, late, took)
	s.connection.endCall(err, now)
	s.connection.closeIdle()
	return err
}

// deadlineSlack is the time before a deadline in which the error DeadlineExceeded counts as a timeout. The server also
// knows the deadline, so its error may arrive before the client's own timeout.
const deadlineSlack = 20 * time.Millisecond

// endedWith reports whether a call ended because its context ended.
func endedWith(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	end, bounded := ctx.Deadline()
	return bounded && status.Code(err) == codes.DeadlineExceeded && time.Until(end) < deadlineSlack
}

// resultOf returns the result of a call, for metrics. late means that the call took too long.
func resultOf(err error, late bool) Result {
	switch {
	case err == nil:
		return Done
	case late:
		return TimedOut
	case status.Code(err) == codes.Unavailable:
		return Unreachable
	}
	return Failed
}

// describeError converts the error of a call to a *callError with a message for users.
func (s *server) describeError(err error, late bool, took time.Duration) error {
	if err == nil {
		return nil
	}
	text := status.Convert(err)
	switch {
	case late:
		return &callError{true, fmt.Sprintf("no answer within %v (hookServers.timeoutMilliseconds)", took.Round(time.Millisecond))}
	case text.Code() == codes.Unavailable:
		why := strings.TrimPrefix(text.Message(), `connection error: desc = "transport: Error while dialing: `)
		return &callError{true, "cannot be reached: " + shorten(strings.TrimSuffix(why, `"`))}
	}
	return &callError{false, fmt.Sprintf("answered with the gRPC error %s: %s", text.Code(), shorten(text.Message()))}
}

// errEventEnded is the result of a call that ended with its event. It does not count as a failure of the server.
var errEventEnded = errors.New("the event ended before the hook server answered")

// eventEndedError is the error of a call that ended with its event.
type eventEndedError struct {
	requestSent bool // the agent sent the request to the server
	cancelled   bool // the caller cancelled the event; false means that the deadline passed
}

func (e *eventEndedError) Error() string {
	why := "the event's deadline passed"
	if e.cancelled {
		why = "the caller cancelled the event"
	}
	if e.requestSent {
		return why + " before the hook server answered"
	}
	return "not called: " + why
}

// callError describes a failed call.
type callError struct {
	unreachable bool // the server did not answer
	message     string
}

func (e *callError) Error() string { return e.message }

// beginCall starts a call. It returns an error if the circuit breaker is open.
func (l *connection) beginCall(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait, ok := l.breaker.Begin(now); !ok {
		return &circuitOpenError{wait, l.lastErr}
	}
	l.inFlight++
	return nil
}

// endCall records the result of a call. An answer with an error does not open the circuit breaker, because the error
// may concern only one pod.
func (l *connection) endCall(err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	if errors.Is(err, errEventEnded) {
		l.breaker.End(breaker.NotCounted, now)
		return
	}
	l.calls++
	if err != nil {
		l.failed++
		l.lastErr = err
	}
	var call *callError
	if err == nil || errors.As(err, &call) && !call.unreachable {
		l.breaker.End(breaker.Answered, now)
		if err == nil {
			l.lastErr = nil
		}
		return
	}
	l.breaker.End(breaker.NoAnswer, now)
}
