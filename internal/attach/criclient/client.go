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
	// maxMessage is the longest answer in bytes, as in the kubelet. The lists of a full node are long.
	maxMessage = 16 << 20
	// podUIDLabel is the label in which every runtime stores the UID of a pod of the kubelet.
	podUIDLabel = "io.kubernetes.pod.uid"
)

// Client is a client of one runtime.
type Client struct {
	conn  *grpc.ClientConn
	calls cri.RuntimeServiceClient
	log   *slog.Logger

	listMu     sync.Mutex // held while a list is read; guards listBuffer
	listBuffer []byte     // the bytes of the last list; the next list reuses the buffer
}

// New returns a client of the runtime at a socket. The client connects at its first call.
func New(path string, by socket.Dialer, log *slog.Logger) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return by.Dial(ctx, path) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// Attachments pause between their attempts. A longer pause of gRPC would only delay the connection when the
		// runtime listens again.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}))
	if err != nil {
		return nil, fmt.Errorf("dial the runtime at %s (cri.endpoint): %w", path, err)
	}
	return &Client{conn: conn, calls: cri.NewRuntimeServiceClient(conn), log: log}, nil
}

// Close ends the connection and all calls.
func (c *Client) Close() { _ = c.conn.Close() }

// Watch returns an error when the runtime closes the connection, and nil when ctx ends. It calls relist if earlier
// calls may have used another connection than the one that Watch watches.
func (c *Client) Watch(ctx context.Context, relist func()) error {
	// The connection may become ready only after the first calls. These calls may then have used an earlier connection,
	// and relist finds the changes that the agent missed in between.
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

// ask makes one call with the timeout within. what is the purpose of the call, for errors.
func ask[Q, A any](
	ctx context.Context, within time.Duration, call func(context.Context, Q, ...grpc.CallOption) (A, error), what string, q Q, o ...grpc.CallOption,
) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	a, err := call(ctx, q, o...)
	if err != nil {
		return a, fmt.Errorf("%s: %w", what, err)
	}
	return a, nil
}

// ConnectionFailed reports whether an error means that the runtime cannot be reached, or that ctx ended. It is false
// if the runtime refused the call, or did not answer this call in time.
func ConnectionFailed(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || status.Code(err) == codes.Unavailable)
}

// NotFound reports whether an error means that the runtime does not have the pod or container that the agent asked
// about.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Runtime identifies the runtime that answers at the socket.
type Runtime struct {
	About string // the runtime's name and version, for status
	Kind  runtimes.Runtime
	// StreamsEvents means that the agent may listen for the runtime's events, because the runtime sends each event to
	// all listeners. containerd does so since 2.0. containerd 1.7 sends each event to one listener only, so the kubelet
	// would miss the events that the agent receives. containerd 1.6 sends no events.
	StreamsEvents bool
}

// About asks the runtime for its name and version.
func (c *Client) About(ctx context.Context, o ...grpc.CallOption) (Runtime, error) {
	v, err := ask(ctx, callTimeout, c.calls.Version, "ask for the runtime's version", &cri.VersionRequest{}, o...)
	if err != nil {
		return Runtime{}, err
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(v.RuntimeVersion, "v"), ".")
	n, err := strconv.Atoi(major)
	return Runtime{
		About:         fmt.Sprintf("%s %s (CRI %s)", v.RuntimeName, v.RuntimeVersion, v.RuntimeApiVersion),
		Kind:          runtimes.Identify(v.RuntimeName, v.RuntimeVersion, runtimes.Version{}),
		StreamsEvents: v.RuntimeName != "containerd" || err == nil && n >= 2, // a runtime without events returns an error
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
	all, err := ask(ctx, callTimeout, c.calls.ListPodSandbox, "list the pod's sandboxes", &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
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

// isNewer reports whether sandbox a of a pod was created after sandbox b. It compares the kubelet's attempt numbers
// first, because the wall clock may have been set back between the two.
func isNewer(a, b *cri.PodSandbox) bool {
	return cmp.Or(cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), cmp.Compare(a.CreatedAt, b.CreatedAt)) > 0
}

// ListedPod returns the entry of a pod in the runtime's list, or nil if there is none.
func (c *Client) ListedPod(ctx context.Context, id string) (*cri.PodSandbox, error) {
	all, err := ask(ctx, describeTimeout, c.calls.ListPodSandbox, "list pod "+id, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: id}})
	return byID(all.GetItems(), id), err
}

// ListedContainer returns the entry of a container in the runtime's list, or nil if there is none.
func (c *Client) ListedContainer(ctx context.Context, id string) (*cri.Container, error) {
	all, err := ask(ctx, describeTimeout, c.calls.ListContainers, "list container "+id, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
	return byID(all.GetContainers(), id), err
}

// byID returns the item with this id, or the zero value if there is none.
func byID[L interface{ GetId() string }](all []L, id string) (none L) {
	if at := slices.IndexFunc(all, func(l L) bool { return l.GetId() == id }); at >= 0 {
		return all[at]
	}
	return none
}

// Update changes the resources in the runtime's copy of a container.
func (c *Client) Update(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	_, err := ask(ctx, callTimeout, c.calls.UpdateContainerResources, "update container "+id,
		&cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// LogReadability logs that the runtime cannot describe a pod or container and why, or that it can again. unread is the
// reason, or "" if the runtime can describe the object. before means that the runtime could not describe the object
// before: only a change is logged.
func LogReadability(log *slog.Logger, what, name, unread string, before bool) {
	switch {
	case unread != "" && !before:
		log.Warn("the runtime lists an object that it cannot describe; the agent keeps the object's values and asks the runtime again", what, name, logkey.Err, unread)
	case unread == "" && before:
		log.Info("the runtime can describe an object again", what, name)
	}
}

// containerStates maps the CRI's container states to those of package lifecycle.
var containerStates = map[cri.ContainerState]lifecycle.State{
	cri.ContainerState_CONTAINER_CREATED: lifecycle.StateCreated,
	cri.ContainerState_CONTAINER_RUNNING: lifecycle.StateRunning,
	cri.ContainerState_CONTAINER_EXITED:  lifecycle.StateStopped,
	cri.ContainerState_CONTAINER_UNKNOWN: lifecycle.StateUnknown,
}
