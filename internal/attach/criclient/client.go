package criclient

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// callTimeout bounds one call to the runtime.
	callTimeout = 10 * time.Second
	// describeTimeout bounds the call that describes one pod or container. It is short, because such a call without an
	// answer delays the calls about the other pods and containers.
	describeTimeout = 2 * time.Second
	// maxMessage is the size in bytes of the longest answer that the client accepts. The kubelet has the same limit. On
	// a node with many pods, the answers to list calls are long.
	maxMessage = 16 << 20
	// podUIDLabel is the label in which every runtime stores the UID of a pod of the kubelet.
	podUIDLabel = "io.kubernetes.pod.uid"
)

// Client is a client of one runtime.
type Client struct {
	conn  *grpc.ClientConn
	calls cri.RuntimeServiceClient // makes the calls of the CRI over conn
	log   *slog.Logger

	listMu     sync.Mutex // held while a list is read; guards listBuffer
	listBuffer []byte     // the bytes of the last list; the next list reuses the buffer
}

// New returns a client of the runtime at the socket path. The client connects at its first call.
func New(path string, dialer socket.Dialer, log *slog.Logger) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialer.Dial(ctx, path) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// The callers already pause between their attempts to connect. Long pauses of gRPC have no use: they delay the
		// connection after a restart of the runtime.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}))
	if err != nil {
		return nil, fmt.Errorf("dial the runtime at %s (cri.endpoint): %w", path, err)
	}
	return &Client{conn: conn, calls: cri.NewRuntimeServiceClient(conn), log: log}, nil
}

// Close ends the connection and all calls.
func (c *Client) Close() { _ = c.conn.Close() }

// Watch watches the connection until the runtime closes the connection or ctx ends. It returns an error in the first
// case, and nil in the second. If gRPC is still making the connection at the start, Watch also calls relist after each
// change of the connection's state until the connection is ready.
func (c *Client) Watch(ctx context.Context, relist func()) error {
	// A connection that is not ready is a new connection: earlier calls used a connection that has ended. The agent may
	// have missed changes between the two connections, and relist finds these changes.
	for state := c.conn.GetState(); state == connectivity.Connecting; state = c.conn.GetState() {
		if !c.conn.WaitForStateChange(ctx, state) {
			return nil
		}
		relist()
	}
	for {
		state := c.conn.GetState()
		if state != connectivity.Ready {
			return fmt.Errorf("the runtime closed the connection (%s)", state)
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return nil
		}
	}
}

// invoke makes one call to the runtime. An error begins with the purpose of the call.
func invoke[Q, A any](
	ctx context.Context, timeout time.Duration, call func(context.Context, Q, ...grpc.CallOption) (A, error), purpose string, q Q, o ...grpc.CallOption,
) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a, err := call(ctx, q, o...)
	if err != nil {
		return a, fmt.Errorf("%s: %w", purpose, err)
	}
	return a, nil
}

// ConnectionFailed reports whether a call failed because the agent cannot reach the runtime, or because ctx ended. It
// returns false if the runtime refused the call, or did not answer the call in time.
func ConnectionFailed(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || status.Code(err) == codes.Unavailable)
}

// NotFound reports whether an error means that the runtime does not have the requested pod or container.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Runtime identifies the runtime that answers at the socket.
type Runtime struct {
	About string // the runtime's name and version, as text for users
	Kind  runtimes.Runtime
	// StreamsEvents means that the agent may call Events, because the runtime sends each event to all clients.
	// containerd does so since 2.0. containerd 1.7 sends each event to one client only: the kubelet does not get the
	// events that another client receives. containerd 1.6 sends no events.
	StreamsEvents bool
}

// About requests the runtime's name and version.
func (c *Client) About(ctx context.Context, o ...grpc.CallOption) (Runtime, error) {
	v, err := invoke(ctx, callTimeout, c.calls.Version, "read the runtime's version", &cri.VersionRequest{}, o...)
	if err != nil {
		return Runtime{}, err
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(v.RuntimeVersion, "v"), ".")
	n, err := strconv.Atoi(major)
	return Runtime{
		About:         fmt.Sprintf("%s %s (CRI %s)", v.RuntimeName, v.RuntimeVersion, v.RuntimeApiVersion),
		Kind:          runtimes.Identify(v.RuntimeName, v.RuntimeVersion, runtimes.Version{}),
		StreamsEvents: v.RuntimeName != "containerd" || err == nil && n >= 2, // Events returns an error if the runtime sends no events
	}, nil
}

// Events streams the runtime's events until ctx ends.
func (c *Client) Events(ctx context.Context) (grpc.ServerStreamingClient[cri.ContainerEventResponse], error) {
	return c.calls.GetContainerEvents(ctx, &cri.GetEventsRequest{})
}

// SandboxOf returns the newest ready sandbox of the pod with this UID, or nil if there is none.
func (c *Client) SandboxOf(ctx context.Context, uid string) (*cri.PodSandbox, error) {
	if uid == "" {
		return nil, nil
	}
	all, err := invoke(ctx, callTimeout, c.calls.ListPodSandbox, "list the pod's sandboxes", &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}, LabelSelector: map[string]string{podUIDLabel: uid},
	}})
	var newest *cri.PodSandbox
	for _, l := range all.GetItems() {
		if l.GetMetadata().GetUid() == uid && (newest == nil || isNewer(l, newest)) {
			newest = l
		}
	}
	return newest, err
}

// isNewer reports whether sandbox a of a pod was created after sandbox b. It compares the attempt numbers of the
// kubelet before the creation times, because the wall clock may have been set back between the two creations.
func isNewer(a, b *cri.PodSandbox) bool {
	return cmp.Or(cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), cmp.Compare(a.CreatedAt, b.CreatedAt)) > 0
}

// ListedPod returns the entry of a pod in the runtime's list, or nil if the list does not have the pod.
func (c *Client) ListedPod(ctx context.Context, id string) (*cri.PodSandbox, error) {
	all, err := invoke(ctx, describeTimeout, c.calls.ListPodSandbox, "list pod "+id, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}})
	return byID(all.GetItems(), id), err
}

// ListedContainer returns the entry of a container in the runtime's list, or nil if the list does not have the
// container.
func (c *Client) ListedContainer(ctx context.Context, id string) (*cri.Container, error) {
	all, err := invoke(ctx, describeTimeout, c.calls.ListContainers, "list container "+id, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
	return byID(all.GetContainers(), id), err
}

// byID returns the item with this id, or the zero value if there is none.
func byID[L interface{ GetId() string }](all []L, id string) (none L) {
	if at := slices.IndexFunc(all, func(l L) bool { return l.GetId() == id }); at >= 0 {
		return all[at]
	}
	return none
}

// Update requests that the runtime change the resources of a container.
func (c *Client) Update(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	_, err := invoke(ctx, callTimeout, c.calls.UpdateContainerResources, "update container "+id,
		&cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// LogReadability logs a change: the runtime cannot describe a pod or container any more, or can describe it again. The
// parameter key is the log key for the name: logkey.Pod or logkey.Container. The parameter undescribed is the reason
// why the runtime cannot describe the object now, or "" if it can. wasUndescribed means that the runtime could not
// describe the object before.
func LogReadability(log *slog.Logger, key, name, undescribed string, wasUndescribed bool) {
	switch {
	case undescribed != "" && !wasUndescribed:
		log.Warn("the runtime lists a pod or container, but cannot return its status; the agent keeps the values of the pod or container and reads the status again", key, name, logkey.Err, undescribed)
	case undescribed == "" && wasUndescribed:
		log.Info("the runtime returns the status of a pod or container again", key, name)
	}
}

// containerStates maps the CRI's container states to those of package lifecycle.
var containerStates = map[cri.ContainerState]lifecycle.State{
	cri.ContainerState_CONTAINER_CREATED: lifecycle.StateCreated,
	cri.ContainerState_CONTAINER_RUNNING: lifecycle.StateRunning,
	cri.ContainerState_CONTAINER_EXITED:  lifecycle.StateStopped,
	cri.ContainerState_CONTAINER_UNKNOWN: lifecycle.StateUnknown,
}
