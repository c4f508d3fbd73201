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

// maxMessage is the size limit of one message of the kubelet. An object in the API server's store has at most about
// 1.5 MiB.
const maxMessage = 16 << 20

// PodsAPI is a client of the kubelet's local Pods API (v1alpha1), whose socket only
// root can open.
type PodsAPI struct{ kubeletSocket }

// NewPodsAPI returns a client of the socket. It does not connect yet.
func NewPodsAPI(socket string) *PodsAPI {
	return &PodsAPI{newKubeletSocket(socket, nil)}
}

// kubeletSocket is a socket of the kubelet, with one connection that the first call makes.
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
		return nil //nolint:nilerr // there is none to close
	}
	return conn.Close()
}

// client returns a client on the one connection.
func (p *PodsAPI) client() (pods.PodsClient, error) {
	conn, err := p.conn()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.socket, err)
	}
	return pods.NewPodsClient(conn), nil
}

// connect makes a connection to a socket of the kubelet. by connects; nil means the system's call. The short
// back-off suits a kubelet that restarts: it answers again within seconds.
func connect(socket string, by func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	redial := backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}
	target, options := "unix://"+socket, []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket's permissions protect it
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: 2 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if by != nil {
		target, options = "passthrough:///"+socket, append(options, grpc.WithContextDialer(by))
	}
	return grpc.NewClient(target, options...)
}

// connectionError returns a message for an error of a connection to a socket. absent is the usual reason for a
// missing socket.
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

// Get reads one pod.
func (p *PodsAPI) Get(ctx context.Context, uid string) (Update, error) {
	client, err := p.client()
	if err != nil {
		return Update{}, err
	}
	answer, err := client.GetPod(ctx, &pods.GetPodRequest{PodUID: uid})
	if status.Code(err) == codes.NotFound {
		return Update{}, ErrUnknown
	}
	if err != nil {
		return Update{}, p.explain(err)
	}
	s, of, _, err := decodePod(answer.GetPod())
	switch {
	case err != nil:
		return Update{}, err
	case s.UID != uid:
		return Update{}, fmt.Errorf("asked for pod %.60q, got pod %.60q", uid, s.UID)
	}
	return singleUpdate(s, of), nil
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
			u, err := first.update("")
			if err != nil {
				return err
			}
			report(u)
			first, synced = nil, true
		case pods.EventType_DELETED, pods.EventType_ADDED, pods.EventType_MODIFIED: // a newer kubelet may have other events
			gone := ev.GetType() == pods.EventType_DELETED
			if s, of, uid, err := decodePod(ev.GetPod()); synced {
				report(eventUpdate(s, of, uid, gone, err))
			} else if err := first.add(s, of, uid, gone, err); err != nil {
				return err
			}
		}
	}
}

// eventUpdate returns the update for an event after the first list. A pod that cannot be read does not end the
// stream.
func eventUpdate(s *lifecycle.PodSpec, of *Pending, uid string, gone bool, err error) Update {
	switch {
	case gone && uid != "":
		return Update{EndedUID: uid}
	case err != nil:
		return Update{Unread: []UnreadPod{{uid, err}}}
	}
	return singleUpdate(s, of)
}

// explain returns a message for an error of the connection.
func (p *PodsAPI) explain(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%s serves another version of the Pods API than v1alpha1", p.socket)
	}
	return connectionError(err, p.socket, "kubelets have this socket since 1.37, or since 1.36 with the feature gate PodsAPI")
}
