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
	// maxAnswerBytes limits one answer, in bytes.
	maxAnswerBytes = 4 << 20
	// maxSocketPath is the longest path of a socket (the kernel's sockaddr_un without its NUL).
	maxSocketPath = 107
)

// servicePrefix is the part of a gRPC method's full name before the method, such as Allocate.
const servicePrefix = "/resourceplugin.v1alpha1.ResourcePlugin/"

// Result is the result of a call.
type Result string

// The results.
const (
	Done           Result = "done"
	Failed         Result = "failed"      // the plugin answered with an error
	TimedOut       Result = "timeout"     // the plugin did not answer in time
	Unreachable    Result = "unreachable" // no process serves the socket, or a process of an untrusted user serves it
	Skipped        Result = "skipped"     // the agent did not call the plugin, because the plugin's circuit breaker is open
	AnsweredBefore Result = "ahead"       // the agent used the plugin's answer from before the container's creation
)

// Results lists the results of calls.
func Results() []Result {
	return []Result{Done, Failed, TimedOut, Unreachable, Skipped, AnsweredBefore}
}

// options are the options that a plugin sent when it registered.
type options struct {
	preStartRequired  bool     // the manager must call PreStartContainer before a container starts
	topologyAligned   bool     // the manager must ask for hints, and send the NUMA nodes that the agent chose
	needReconcile     bool     // the manager must regularly ask for the plugin's allocations
	associatedDevices []string // the resource names of the devices that the plugin chooses in addition to its resource
}

func optionsOf(o *api.ResourcePluginOptions) options {
	return options{o.GetPreStartRequired(), o.GetWithTopologyAlignment(), o.GetNeedReconcile(), o.GetAssociatedDevices()}
}

// plugin is one registration of a plugin.
type plugin struct {
	registration

	opts *Options
	conn *grpc.ClientConn
	err  error // the reason why there is no connection

	// sentDevices are the devices that were last sent to the plugin, by resource. Only updateDevices uses this field.
	sentDevices map[string]*api.UpdateAllocatableAssociatedDevicesRequest

	replaced int // the number of earlier registrations for the resource

	mu                   sync.Mutex // guards all below
	calls                uint64     // all calls that were made
	failed               uint64     // the calls that failed
	lastErr              string     // the error of the last failed call; "" after a call without an error
	socketRemoved        bool       // the plugin's socket was removed
	breaker              breaker.Breaker
	allocationsRequested bool            // the manager has requested the plugin's allocations
	unimplemented        map[string]bool // optional methods that the plugin does not implement
}

// markAllocationsRequested marks that the manager has requested the plugin's allocations. It reports whether this is
// the first request.
func (p *plugin) markAllocationsRequested() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.allocationsRequested
	p.allocationsRequested = true
	return !was
}

func newPlugin(r registration, o *Options) *plugin {
	p := &plugin{registration: r, opts: o}
	p.conn, p.err = grpc.NewClient("passthrough:///"+r.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(socket.DialTrusted), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
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

func (p *plugin) markSocketRemoved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.socketRemoved, p.lastErr = true, "the plugin's socket was removed"
}

// checkSocket returns an error unless a path is a socket of root or of the agent's user.
func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return socket.CheckTrusted(path, info)
}

// callError is the error of a failed call.
type callError struct {
	result  Result
	message string
	// unimplemented means that the plugin does not implement the method.
	unimplemented bool
}

// isUnimplemented reports whether a call failed because the plugin does not implement the method.
func isUnimplemented(err error) bool {
	var call *callError
	return errors.As(err, &call) && call.unimplemented
}

func (e *callError) Error() string { return e.message }

// resultOf returns the result of a call from its error.
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

// call makes one call within Options.Timeout. If raw is not nil, call stores the bytes of the answer in *raw. Errors
// are *callError.
func (p *plugin) call(ctx context.Context, method string, req, resp proto.Message, raw *[]byte) error {
	now := p.opts.Now()
	if err := p.beginCall(now); err != nil {
		p.opts.Recorder.CountCall(p.resource, method, Skipped, 0)
		return err
	}
	err := p.err
	limited, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	if err == nil {
		err = p.conn.Invoke(limited, servicePrefix+method, req, &rawAnswer{resp, raw}, grpc.ForceCodecV2(rawAnswerCodec{}))
	}
	took := p.opts.Now().Sub(now)
	if err != nil {
		err = describeError(limited, err, took)
	}
	p.opts.Recorder.CountCall(p.resource, method, resultOf(err), took)
	p.endCall(err, p.opts.Now(), errors.Is(ctx.Err(), context.Canceled))
	return err
}

// describeError converts the error of a call to a *callError with a message for users.
func describeError(ctx context.Context, err error, took time.Duration) error {
	text := status.Convert(err)
	switch {
	case ctx.Err() != nil || text.Code() == codes.DeadlineExceeded:
		return &callError{result: TimedOut, message: fmt.Sprintf("no answer within %v", took.Round(time.Millisecond))}
	case text.Code() == codes.Unavailable, text.Code() == codes.Canceled:
		why := strings.TrimPrefix(text.Message(), `connection error: desc = "transport: Error while dialing: `)
		return &callError{result: Unreachable, message: "cannot be reached: " + shorten(strings.TrimSuffix(why, `"`))}
	}
	return &callError{result: Failed, message: fmt.Sprintf("answered with the gRPC error %s: %s", text.Code(), shorten(text.Message())), unimplemented: text.Code() == codes.Unimplemented}
}

// beginCall returns an error if the circuit breaker of the plugin is open.
func (p *plugin) beginCall(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait, ok := p.breaker.Begin(now); !ok {
		return &callError{result: Skipped, message: fmt.Sprintf("the plugin was not called, because it did not answer %d calls in a row; the agent calls it again in %v; the last error: %s",
			breaker.MaxFailures, wait.Round(time.Millisecond), p.lastErr)}
	}
	return nil
}

// endCall records the result of a call. Only calls without an answer open the circuit breaker, not answers with an
// error. A call that the caller cancelled does not count.
func (p *plugin) endCall(err error, now time.Time, cancelled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancelled && err != nil {
		p.breaker.End(breaker.NotCounted, now)
		return
	}
	p.calls++
	if err == nil {
		p.breaker.End(breaker.Answered, now)
		p.lastErr, p.socketRemoved = "", false
		return
	}
	if isUnimplemented(err) { // the plugin works, but lacks an optional method
		p.breaker.End(breaker.Answered, now)
		p.socketRemoved = false
		return
	}
	p.failed, p.lastErr = p.failed+1, err.Error()
	if resultOf(err) == Failed {
		p.breaker.End(breaker.Answered, now)
		return
	}
	p.breaker.End(breaker.NoAnswer, now)
}

// askOptions requests the plugin's options.
func (p *plugin) askOptions(ctx context.Context) (options, error) {
	var out api.ResourcePluginOptions
	err := p.call(ctx, "GetResourcePluginOptions", &api.Empty{}, &out, nil)
	return optionsOf(&out), err
}
