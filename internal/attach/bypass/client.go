package bypass

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// callTimeout bounds one question to the runtime.
	callTimeout = 10 * time.Second
	// maxMessage is what a kubelet accepts: lists of a full node are large.
	maxMessage = 16 << 20
)

// client asks one runtime.
type client struct {
	ctx    context.Context // of the connection
	conn   *grpc.ClientConn
	calls  cri.RuntimeServiceClient
	log    *slog.Logger
	stream atomic.Bool // the runtime tells events
}

func dial(ctx context.Context, o Options) (*client, error) {
	conn, err := grpc.NewClient(o.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return o.Dial.Dial(ctx, strings.TrimPrefix(o.Endpoint, "unix://"))
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// Our own loop waits between attempts; gRPC's own backoff only hides that
		// the socket is there again.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}))
	if err != nil {
		return nil, fmt.Errorf("dial the runtime at %s (cri.endpoint): %w", o.Endpoint, err)
	}
	return &client{ctx: ctx, conn: conn, calls: cri.NewRuntimeServiceClient(conn), log: o.Log}, nil
}

func (r *client) close() { _ = r.conn.Close() }

// watch returns an error when the runtime closes the connection, and nil when we do.
func (r *client) watch(relist func()) error {
	// The connection may call itself ready a little after the first calls went through it. Should it have been another
	// one that they went through, the lists tell what was missed.
	for state := r.conn.GetState(); state == connectivity.Connecting; state = r.conn.GetState() {
		if !r.conn.WaitForStateChange(r.ctx, state) {
			return nil
		}
		relist()
	}
	for {
		state := r.conn.GetState()
		if state != connectivity.Ready {
			return fmt.Errorf("the runtime closed the connection (%s)", state)
		}
		if !r.conn.WaitForStateChange(r.ctx, state) {
			return nil
		}
	}
}

// ask makes one call within bounds. The error names the call.
func ask[Q, A any](ctx context.Context, call func(context.Context, Q, ...grpc.CallOption) (A, error), what string, q Q) (A, error) {
	return askWithin(ctx, callTimeout, call, what, q)
}

func askWithin[Q, A any](
	ctx context.Context, within time.Duration, call func(context.Context, Q, ...grpc.CallOption) (A, error), what string, q Q,
) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	a, err := call(ctx, q)
	if err != nil {
		return a, fmt.Errorf("%s: %w", what, err)
	}
	return a, nil
}

// notFound reports whether the runtime knows nothing of what it was asked for.
func notFound(err error) bool { return codeOf(err) == codes.NotFound }

// lost reports whether the runtime itself is away.
func lost(err error) bool { return codeOf(err) == codes.Unavailable }

func codeOf(err error) codes.Code {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code()
	}
	return codes.Unknown
}

// streams reports whether a runtime can tell its events to several listeners at
// once. containerd does since 2.0; 1.7 hands each event to one of them, which
// would take it from the kubelet, and 1.6 has none.
func streams(v *cri.VersionResponse) bool {
	if v.GetRuntimeName() != "containerd" {
		return true // who has none says so
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(v.GetRuntimeVersion(), "v"), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 2
}

// unimplemented reports whether the runtime has no such call.
func unimplemented(err error) bool { return codeOf(err) == codes.Unimplemented }
