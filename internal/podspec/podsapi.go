package podspec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxMessage is the largest size of one message of the kubelet, in bytes. An object in the API server's store has at
// most about 1.5 MiB.
const maxMessage = 16 << 20

// PodsAPI reads pods from the kubelet's local Pods API (v1alpha1). Only root can open the socket of this API.
type PodsAPI struct{ kubeletSocket }

// NewPodsAPI returns a source that reads from the Pods API at a socket. It does not connect before the first call.
func NewPodsAPI(socket string) *PodsAPI {
	return &PodsAPI{newKubeletSocket(socket, nil)}
}

// kubeletSocket is the path of a socket of the kubelet, and one connection to the socket. The first call of conn makes
// the connection; later calls return the same connection.
type kubeletSocket struct {
	socket string
	conn   func() (*grpc.ClientConn, error)
}

func newKubeletSocket(path string, dial func(context.Context, string) (net.Conn, error)) kubeletSocket {
	return kubeletSocket{path, sync.OnceValues(func() (*grpc.ClientConn, error) { return connect(path, dial) })}
}

// Close ends the connection.
func (k kubeletSocket) Close() error {
	conn, err := k.conn()
	if err != nil {
		return nil //nolint:nilerr // there is no connection to close
	}
	return conn.Close()
}

// client returns a client of the Pods API that uses the connection of p.
func (p *PodsAPI) client() (pods.PodsClient, error) {
	conn, err := p.conn()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.socket, err)
	}
	return pods.NewPodsClient(conn), nil
}

// connect returns a gRPC connection to a socket of the kubelet. The function dial opens the connection; if it is nil,
// gRPC opens the connection itself. The back-off is short, because a kubelet that restarts answers again within
// seconds.
func connect(socket string, dial func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	redial := backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}
	target, options := "unix://"+socket, []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket's permissions protect it
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: 2 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if dial != nil {
		target, options = "passthrough:///"+socket, append(options, grpc.WithContextDialer(dial))
	}
	return grpc.NewClient(target, options...)
}

// connectionError adds the socket's path to an error of a connection. If the socket does not exist, it returns another
// error, with the text of the parameter absent: the usual reason why the socket is missing.
func connectionError(err error, socket, absent string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: %s", socket, absent)
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", socket, s.Message())
	}
	return fmt.Errorf("%s: %w", socket, err)
}

// Source names the source.
func (*PodsAPI) Source() lifecycle.Source { return lifecycle.FromPodsAPI }

// Get asks the kubelet for one pod.
func (p *PodsAPI) Get(ctx context.Context, uid string) (Update, error) {
	client, err := p.client()
	if err != nil {
		return Update{}, err
	}
	answer, err := client.GetPod(ctx, &pods.GetPodRequest{PodUID: uid})
	if status.Code(err) == codes.NotFound {
		return Update{}, ErrNoSuchPod
	}
	if err != nil {
		return Update{}, p.explain(err)
	}
	s, pending, _, err := decodePod(answer.GetPod())
	switch {
	case err != nil:
		return Update{}, err
	case s.UID != uid:
		return Update{}, fmt.Errorf("the agent asked for the pod with UID %.60q, and the kubelet returned the pod with UID %.60q", uid, s.UID)
	}
	return singleUpdate(s, pending), nil
}

// Started reports whether the kubelet's socket exists.
func (p *PodsAPI) Started() bool {
	_, err := os.Stat(p.socket)
	return err == nil
}

// PollSoon does nothing, because the kubelet's stream reports changes.
func (*PodsAPI) PollSoon() {}

// Watch reports all pods, and then each change, until the stream ends.
func (p *PodsAPI) Watch(ctx context.Context, report func(Update)) error {
	if _, err := os.Stat(p.socket); err != nil {
		return p.explain(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := p.client()
	if err != nil {
		return err
	}
	stream, err := client.WatchPods(ctx, &pods.WatchPodsRequest{})
	if err != nil {
		return p.explain(err)
	}
	first, synced := &podList{}, false
	for {
		ev, err := stream.Recv()
		if err != nil {
			return p.explain(err)
		}
		switch ev.GetType() {
		case pods.EventType_INITIAL_SYNC_COMPLETE:
			u, err := first.toUpdate("")
			if err != nil {
				return err
			}
			report(u)
			first, synced = nil, true
		case pods.EventType_DELETED, pods.EventType_ADDED, pods.EventType_MODIFIED: // ignore the other events that a newer kubelet may have
			gone := ev.GetType() == pods.EventType_DELETED
			if s, pending, uid, err := decodePod(ev.GetPod()); synced {
				report(eventUpdate(s, pending, uid, gone, err))
			} else if err := first.add(s, pending, uid, gone, err); err != nil {
				return err
			}
		}
	}
}

// eventUpdate returns the update for an event after the first list. gone means that the pod was deleted. pending is nil
// if the pod has started or is being deleted. err is the reason why the pod cannot be read, or nil. A pod that cannot
// be read does not end the stream.
func eventUpdate(s *lifecycle.PodSpec, pending *PendingPod, uid string, gone bool, err error) Update {
	switch {
	case gone && uid != "":
		return Update{EndedUID: uid}
	case err != nil:
		return Update{Unread: []UnreadPod{{uid, err}}}
	}
	return singleUpdate(s, pending)
}

// explain adds to an error of the connection the path of the socket, and what the operator can do.
func (p *PodsAPI) explain(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%s serves another version of the Pods API than v1alpha1", p.socket)
	}
	return connectionError(err, p.socket, "kubelets have this socket since 1.37, or since 1.36 with the feature gate PodsAPI")
}
