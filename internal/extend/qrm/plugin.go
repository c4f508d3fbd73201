package qrm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/breaker"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// maxAnswer limits one answer, in bytes.
	maxAnswer = 4 << 20
	// maxSocket is the longest path in the kernel's sockaddr_un, without its NUL.
	maxSocket = 107
)

const service = "/resourceplugin.v1alpha1.ResourcePlugin/"

// Result is the result of a call.
type Result string

// The results.
const (
	Done        Result = "done"
	Failed      Result = "failed"      // the plugin answered with an error
	TimedOut    Result = "timeout"     // it did not answer in time
	Unreachable Result = "unreachable" // no process serves its socket, or a process of another user does
	Skipped     Result = "skipped"     // it was not called, because its circuit breaker is open
	Ahead       Result = "ahead"       // it was not called, because it had answered ahead of the creation
)

// Results lists the results of calls.
func Results() []Result { return []Result{Done, Failed, TimedOut, Unreachable, Skipped, Ahead} }

// options are the options that a plugin sent.
type options struct {
	preStart, aligned, reconcile bool
	associated                   []string
}

func optionsOf(o *api.ResourcePluginOptions) options {
	return options{o.GetPreStartRequired(), o.GetWithTopologyAlignment(), o.GetNeedReconcile(), o.GetAssociatedDevices()}
}

// plugin is one registration of a plugin.
type plugin struct {
	registration

	o    *Options
	conn *grpc.ClientConn
	err  error // why there is no connection

	replaced int // earlier registrations of the resource; set before the plugin is in force

	mu      sync.Mutex // guards all below
	calls   uint64
	failed  uint64
	lastErr string
	gone    bool // its socket was removed
	breaker breaker.Breaker
	listed  bool            // the manager has asked for its allocations
	lacks   map[string]bool // optional methods that it does not have
}

// unlisted reports whether the manager never asked the plugin for its allocations, and notes that it asks
// now.
func (p *plugin) unlisted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.listed
	p.listed = true
	return !was
}

func newPlugin(r registration, o *Options) *plugin {
	p := &plugin{registration: r, o: o}
	p.conn, p.err = grpc.NewClient("passthrough:///"+r.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(socket.DialTrusted), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second,
		}))
	return p
}

func (p *plugin) close() {
	if p.conn != nil {
		_ = p.conn.Close() // a second close only returns an error
	}
}

func (p *plugin) noteGone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone, p.lastErr = true, "its socket was removed"
}

// checkSocket returns why a path is not a socket of root or of the agent's user; nil if it is one.
func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return socket.CheckTrusted(path, info)
}

// callError is a failed call.
type callError struct {
	result Result
	text   string
	// unimplemented: the plugin does not have the method.
	unimplemented bool
}

// isUnimplemented reports whether a call failed because the plugin does not have its method.
func isUnimplemented(err error) bool {
	var call *callError
	return errors.As(err, &call) && call.unimplemented
}

func (e *callError) Error() string { return e.text }

// resultOf returns the result of a call by its error.
func resultOf(err error) Result {
	var call *callError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &call):
		return call.result
	}
	return Failed
}

// call makes one call within the plugin's time limit. raw is the answer as it was sent, if the caller wants
// it. Errors are *callError.
func (p *plugin) call(ctx context.Context, method string, req, resp proto.Message, raw *[]byte) error {
	now := p.o.Now()
	if err := p.begin(now); err != nil {
		p.o.Recorder.Call(p.resource, method, Skipped, 0)
		return err
	}
	err := p.err
	limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	if err == nil {
		err = p.conn.Invoke(limited, service+method, req, &rawAnswer{resp, raw}, grpc.ForceCodecV2(codec{}))
	}
	took := p.o.Now().Sub(now)
	if err != nil {
		err = describe(limited, err, took)
	}
	p.o.Recorder.Call(p.resource, method, resultOf(err), took)
	p.end(err, p.o.Now(), errors.Is(ctx.Err(), context.Canceled))
	return err
}

// describe returns the error of a call as a message.
func describe(ctx context.Context, err error, took time.Duration) error {
	text := status.Convert(err)
	switch {
	case ctx.Err() != nil || text.Code() == codes.DeadlineExceeded:
		return &callError{result: TimedOut, text: fmt.Sprintf("no answer within %v", took.Round(time.Millisecond))}
	case text.Code() == codes.Unavailable, text.Code() == codes.Canceled:
		why := strings.TrimPrefix(text.Message(), `connection error: desc = "transport: Error while dialing: `)
		return &callError{result: Unreachable, text: "cannot be reached: " + short(strings.TrimSuffix(why, `"`))}
	}
	return &callError{result: Failed, text: fmt.Sprintf("answers %s: %s", text.Code(), short(text.Message())), unimplemented: text.Code() == codes.Unimplemented}
}

// begin reports whether the plugin may be called now.
func (p *plugin) begin(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait, ok := p.breaker.Begin(now); !ok {
		return &callError{result: Skipped, text: fmt.Sprintf("not called for another %v, because %d calls in a row failed; the last error: %s",
			wait.Round(time.Millisecond), breaker.MaxFailures, p.lastErr)}
	}
	return nil
}

// end notes the result of a call. An error in an answer does not count as a failure of the plugin, and
// neither does a call that its caller ended.
func (p *plugin) end(err error, now time.Time, cancelled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancelled && err != nil {
		p.breaker.End(breaker.NotCounted, now)
		return
	}
	p.calls++
	if err == nil {
		p.breaker.End(breaker.Answered, now)
		p.lastErr, p.gone = "", false
		return
	}
	if isUnimplemented(err) { // it works, and lacks an optional method
		p.breaker.End(breaker.Answered, now)
		p.gone = false
		return
	}
	p.failed, p.lastErr = p.failed+1, err.Error()
	if resultOf(err) == Failed {
		p.breaker.End(breaker.Answered, now)
		return
	}
	p.breaker.End(breaker.Missing, now)
}

func (p *plugin) askOptions(ctx context.Context) (options, error) {
	var out api.ResourcePluginOptions
	err := p.call(ctx, "GetResourcePluginOptions", &api.Empty{}, &out, nil)
	return optionsOf(&out), err
}
