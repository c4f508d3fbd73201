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

// servicePrefix is the part of a gRPC method's full name before StageDescription.Call.
const servicePrefix = "/runtime.v1alpha1.RuntimeHookService/"

// server is one hook server. It is immutable, except for its connection. A new registration with the same endpoint uses
// the same connection.
type server struct {
	name         string // the name of the server's file
	registration Registration
	opts         Options
	connection   *connection
}

// connection is the connection to a server, and the results of the calls over it.
type connection struct {
	conn *grpc.ClientConn
	err  error // the reason why conn is nil

	mu       sync.Mutex // guards all fields below
	calls    uint64     // the number of ended calls; a call that was stopped because its event ended does not count
	failed   uint64     // the number of calls in the field calls that failed
	lastErr  error      // the error of the last call in the field calls; nil if that call succeeded
	breaker  breaker.Breaker
	inFlight int  // the number of running calls
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

// withRegistration returns a copy of the server with another registration.
func (s *server) withRegistration(r Registration) *server {
	n := *s
	n.registration = r
	return &n
}

// servesStage reports whether the server is registered for a stage.
func (s *server) servesStage(stage Stage) bool { return slices.Contains(s.registration.Stages, stage) }

// circuitOpenError is the error of a call that the agent did not make, because the circuit breaker is open.
type circuitOpenError struct {
	remaining time.Duration // the time until the circuit breaker allows a call again
	lastErr   error         // the error of the last call
}

func (r *circuitOpenError) Error() string {
	return fmt.Sprintf("the server was not called, because it did not answer %d calls in a row; the agent calls it again in %v; the last error: %v", breaker.MaxFailures, r.remaining.Round(time.Millisecond), r.lastErr)
}

// call sends req to the server, and stores the answer in resp. The call ends at the latest after the server's timeout,
// or at eventEnd if that is earlier. If eventEnd is zero, only the server's timeout limits the call.
func (s *server) call(ctx context.Context, eventEnd time.Time, stage StageDescription, req, resp proto.Message) error {
	deadline := time.Now().Add(s.opts.Timeout)
	tooShort := false // less than half of the server's timeout is left before eventEnd
	if !eventEnd.IsZero() && eventEnd.Before(deadline) {
		deadline = eventEnd
		tooShort = time.Until(eventEnd) < s.opts.Timeout/2
	}
	if ctx.Err() != nil || time.Until(deadline) <= 0 {
		s.opts.Recorder.CountCall(s.name, stage.Stage, EventEnded, 0)
		return &eventEndedError{requestSent: false, cancelled: errors.Is(ctx.Err(), context.Canceled)}
	}
	if err := s.connection.beginCall(s.opts.Now()); err != nil {
		s.opts.Recorder.CountCall(s.name, stage.Stage, Skipped, 0)
		return err
	}
	start := s.opts.Now()
	err, timedOut := s.connection.err, false
	if err == nil {
		limited, cancel := context.WithDeadline(ctx, deadline)
		err = s.connection.conn.Invoke(limited, servicePrefix+stage.Call, req, resp)
		timedOut = err != nil && endedWith(limited, err)
		cancel()
	}
	now := s.opts.Now()
	took := now.Sub(start)
	cancelled := err != nil && errors.Is(ctx.Err(), context.Canceled)
	if cancelled || timedOut && tooShort {
		// The caller cancelled the event, or the event left the server too little time: not a failure of the server.
		s.opts.Recorder.CountCall(s.name, stage.Stage, EventEnded, took)
		s.connection.endCall(errEventEnded, now)
		s.connection.closeIdle()
		return &eventEndedError{requestSent: true, cancelled: cancelled}
	}
	s.opts.Recorder.CountCall(s.name, stage.Stage, resultOf(err, timedOut), took)
	err = s.describeError(err, timedOut, took)
	s.connection.endCall(err, now)
	s.connection.closeIdle()
	return err
}

// deadlineSlack is the time before a deadline in which the error DeadlineExceeded counts as a timeout. The server also
// knows the deadline. Its error can arrive before the client's own timeout.
const deadlineSlack = 20 * time.Millisecond

// endedWith reports whether a call with the error err ended because ctx ended.
func endedWith(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	end, bounded := ctx.Deadline()
	return bounded && status.Code(err) == codes.DeadlineExceeded && time.Until(end) < deadlineSlack
}

// resultOf returns the result of a call, for metrics.
func resultOf(err error, timedOut bool) Result {
	switch {
	case err == nil:
		return Done
	case timedOut:
		return TimedOut
	case status.Code(err) == codes.Unavailable:
		return Unreachable
	}
	return Failed
}

// describeError converts the error of a call to a *callError with a message for users. It returns nil for nil.
func (s *server) describeError(err error, timedOut bool, took time.Duration) error {
	if err == nil {
		return nil
	}
	text := status.Convert(err)
	switch {
	case timedOut:
		return &callError{true, fmt.Sprintf("no answer within %v (hookServers.timeoutMilliseconds)", took.Round(time.Millisecond))}
	case text.Code() == codes.Unavailable:
		why := strings.TrimPrefix(text.Message(), `connection error: desc = "transport: Error while dialing: `)
		return &callError{true, "cannot be reached: " + shorten(strings.TrimSuffix(why, `"`))}
	}
	return &callError{false, fmt.Sprintf("answered with the gRPC error %s: %s", text.Code(), shorten(text.Message()))}
}

// errEventEnded is the result of a call that ended because its event ended. Such a call does not count as a failure of
// the server.
var errEventEnded = errors.New("the event ended before the hook server answered")

// eventEndedError is the error of a call that ended, or was not made, because its event ended.
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
	noAnswer bool // the server did not answer
	message  string
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

// endCall records the result of a call. Only a call without an answer counts against the server in the circuit breaker.
// An answer with an error does not, because the error possibly concerns only one pod.
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
	if err == nil || errors.As(err, &call) && !call.noAnswer {
		l.breaker.End(breaker.Answered, now)
		if err == nil {
			l.lastErr = nil
		}
		return
	}
	l.breaker.End(breaker.NoAnswer, now)
}
