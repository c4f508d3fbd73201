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
	// maxAnswer limits one answer, in bytes.
	maxAnswer = 4 << 20
)

const service = "/runtime.v1alpha1.RuntimeHookService/"

// server is one hook server. All registrations of a server share its link.
type server struct {
	name         string // the name of its file
	registration Registration
	o            Options
	link         *link
}

// link is the connection to a server, and its recent results.
type link struct {
	conn *grpc.ClientConn
	err  error // the reason why there is no connection

	mu       sync.Mutex // guards all below
	calls    uint64
	failed   uint64
	lastErr  error
	breaker  breaker.Breaker
	inFlight int  // running calls
	closing  bool // conn must be closed after the last running call
}

// close makes the connection close after the last running call.
func (l *link) close() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	l.closeIdle()
}

// closeIdle closes the connection if close was called, and no call is running.
func (l *link) closeIdle() {
	l.mu.Lock()
	now := l.closing && l.inFlight == 0 && l.conn != nil
	l.mu.Unlock()
	if now {
		_ = l.conn.Close() // a second close only returns an error
	}
}

func newServer(name string, r Registration, o Options) *server {
	l := &link{}
	l.conn, l.err = grpc.NewClient("passthrough:///"+r.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(socket.DialTrusted),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second,
		}))
	return &server{name: name, registration: r, o: o, link: l}
}

// withRegistration returns the same server with another registration.
func (s *server) withRegistration(r Registration) *server {
	n := *s
	n.registration = r
	return &n
}

// serves reports whether the server is registered for a stage.
func (s *server) serves(stage Stage) bool { return slices.Contains(s.registration.Stages, stage) }

// circuitOpenError is the error of a call that the agent did not make, because the circuit breaker is open.
type circuitOpenError struct {
	remaining time.Duration
	lastErr   error
}

func (r *circuitOpenError) Error() string {
	return fmt.Sprintf("not called, because %d calls in a row had no answer; the agent calls it again in %v; the last error: %v", breaker.MaxFailures, r.remaining.Round(time.Millisecond), r.lastErr)
}

// call makes one call. The call ends after the server's timeout, or at end if that is earlier.
func (s *server) call(ctx context.Context, end time.Time, stage StageInfo, req, resp proto.Message) error {
	own := time.Now().Add(s.o.Timeout)
	cut := false // less than half of the server's timeout is left before end
	if !end.IsZero() && end.Before(own) {
		own = end
		cut = time.Until(end) < s.o.Timeout/2
	}
	if ctx.Err() != nil || time.Until(own) <= 0 {
		s.o.Recorder.Call(s.name, stage.Stage, Ended, 0)
		return &eventEndedError{sent: false, cancelled: errors.Is(ctx.Err(), context.Canceled)}
	}
	if err := s.link.begin(s.o.Now()); err != nil {
		s.o.Recorder.Call(s.name, stage.Stage, Skipped, 0)
		return err
	}
	start := s.o.Now()
	err, late := s.link.err, false
	if err == nil {
		limited, cancel := context.WithDeadline(ctx, own)
		err = s.link.conn.Invoke(limited, service+stage.Call, req, resp)
		late = err != nil && endedWith(limited, err)
		cancel()
	}
	now := s.o.Now()
	took := now.Sub(start)
	given := err != nil && errors.Is(ctx.Err(), context.Canceled)
	if given || late && cut {
		// The caller cancelled the event, or the event left the server too little time: not a failure of the server.
		s.o.Recorder.Call(s.name, stage.Stage, Ended, took)
		s.link.end(errEventEnded, now)
		s.link.closeIdle()
		return &eventEndedError{sent: true, cancelled: given}
	}
	s.o.Recorder.Call(s.name, stage.Stage, result(err, late), took)
	err = s.describe(err, late, took)
	s.link.end(err, now)
	s.link.closeIdle()
	return err
}

// deadlineSlack is the time before a deadline in which an error DeadlineExceeded counts as a timeout. The server also
// knows the deadline, and its error may arrive first.
const deadlineSlack = 20 * time.Millisecond

// endedWith reports whether a call ended because its context ended.
func endedWith(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	end, bounded := ctx.Deadline()
	return bounded && status.Code(err) == codes.DeadlineExceeded && time.Until(end) < deadlineSlack
}

// result returns the result of a call, for metrics. late means that the call took too long.
func result(err error, late bool) Result {
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

// describe converts the error of a call to a *callError with a message for users.
func (s *server) describe(err error, late bool, took time.Duration) error {
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
	return &callError{false, fmt.Sprintf("answers %s: %s", text.Code(), shorten(text.Message()))}
}

// errEventEnded is the result of a call that ended with its event. It does not count as a failure of the server.
var errEventEnded = errors.New("the event ended before the hook server answered")

// eventEndedError is the error of a call that ended with its event.
type eventEndedError struct {
	sent      bool // the agent sent the request to the server
	cancelled bool // the caller cancelled the event; false means that the deadline passed
}

func (e *eventEndedError) Error() string {
	why := "the event's deadline passed"
	if e.cancelled {
		why = "the caller cancelled the event"
	}
	if e.sent {
		return why + " before the hook server answered"
	}
	return "not called: " + why
}

// callError describes a failed call.
type callError struct {
	unreachable bool // the server did not answer
	text        string
}

func (e *callError) Error() string { return e.text }

// begin starts a call. It returns an error if the circuit breaker is open.
func (l *link) begin(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait, ok := l.breaker.Begin(now); !ok {
		return &circuitOpenError{wait, l.lastErr}
	}
	l.inFlight++
	return nil
}

// end records the result of a call. An answer with an error does not open the circuit breaker, because the error may
// concern only one pod.
func (l *link) end(err error, now time.Time) {
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
