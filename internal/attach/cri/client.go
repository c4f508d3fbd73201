package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri/relay"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// callTimeout bounds a call of our own to the runtime.
	callTimeout = 10 * time.Second
	// describeTimeout bounds the question about one pod or container: one that the
	// runtime hangs on must not keep all others waiting.
	describeTimeout = 2 * time.Second
)

// podUID is the label that every runtime keeps of a kubelet's pods.
const podUID = "io.kubernetes.pod.uid"

// client is our own connection to the runtime, beside those relayed.
type client struct {
	conn  *grpc.ClientConn
	calls cri.RuntimeServiceClient

	reading sync.Mutex // of a list
	room    []byte     // where it lies
}

func newClient(path string, by socket.Dialer) (*client, error) {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return by.Dial(ctx, path) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(relay.DefaultMaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}))
	if err != nil {
		return nil, fmt.Errorf("dial the runtime at %s: %w", path, err)
	}
	return &client{conn: conn, calls: cri.NewRuntimeServiceClient(conn)}, nil
}

func (c *client) close() { _ = c.conn.Close() }

// ask makes one call within bounds. The error says what it was for.
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

// about asks who the runtime is, once it is there.
func (c *client) about(ctx context.Context) (string, runtimes.Runtime, error) {
	v, err := ask(ctx, callTimeout, c.calls.Version, "ask for the runtime's version", &cri.VersionRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", runtimes.Runtime{}, err
	}
	return fmt.Sprintf("%s %s (CRI %s)", v.RuntimeName, v.RuntimeVersion, v.RuntimeApiVersion),
		runtimes.Of(v.RuntimeName, v.RuntimeVersion, runtimes.Version{}), nil
}

// pods lists pods with all that is known of them: one, or all for no id.
func (c *client) pods(ctx context.Context, id string) ([]*cri.PodSandbox, error) {
	q := &cri.ListPodSandboxRequest{}
	if id != "" {
		q.Filter = &cri.PodSandboxFilter{Id: id}
	}
	answer, err := ask(ctx, callTimeout, c.calls.ListPodSandbox, "list pods", q)
	return answer.GetItems(), err
}

// sandboxOf returns the newest ready sandbox of a pod, nil for none.
func (c *client) sandboxOf(ctx context.Context, uid string) (*cri.PodSandbox, error) {
	if uid == "" {
		return nil, nil
	}
	all, err := ask(ctx, callTimeout, c.calls.ListPodSandbox, "look for the pod's sandbox", &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}, LabelSelector: map[string]string{podUID: uid},
	}})
	var newest *cri.PodSandbox
	for _, l := range all.GetItems() {
		if l.GetMetadata().GetUid() == uid && (newest == nil || later(l, newest)) {
			newest = l
		}
	}
	return newest, err
}

// later reports whether one sandbox of a pod came after another. The kubelet counts
// a pod's sandboxes; the wall clock may have been set back between two of them.
func later(a, b *cri.PodSandbox) bool {
	return cmp.Or(cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), cmp.Compare(a.CreatedAt, b.CreatedAt)) > 0
}

// pod completes a pod of a list by its verbose status.
func (c *client) pod(ctx context.Context, l *cri.PodSandbox) (*lifecycle.Pod, error) {
	s, err := ask(ctx, describeTimeout, c.calls.PodSandboxStatus, "ask for pod "+l.Id, &cri.PodSandboxStatusRequest{PodSandboxId: l.Id, Verbose: true})
	if err != nil {
		return nil, err
	}
	p := podListed(l)
	verboseOf(s.GetInfo()).podIn(p)
	return p, nil
}

// podListed is a pod as a list tells it.
func podListed(l *cri.PodSandbox) *lifecycle.Pod {
	return &lifecycle.Pod{
		ID: l.Id, Name: l.GetMetadata().GetName(), UID: l.GetMetadata().GetUid(), Namespace: l.GetMetadata().GetNamespace(),
		Labels: l.Labels, Annotations: l.Annotations, RuntimeHandler: l.RuntimeHandler,
	}
}

// status asks for the verbose status of a container.
func (c *client) status(ctx context.Context, within time.Duration, id string) (*cri.ContainerStatusResponse, error) {
	return ask(ctx, within, c.calls.ContainerStatus, "ask for container "+id, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
}

// container asks for all there is to know of a container.
func (c *client) container(ctx context.Context, id, pod string) (*lifecycle.Container, error) {
	s, err := c.status(ctx, describeTimeout, id)
	if err != nil {
		return nil, err
	}
	st, i := s.GetStatus(), verboseOf(s.GetInfo())
	l := &lifecycle.Container{
		ID: id, PodID: cmp.Or(pod, i.SandboxID), Name: st.GetMetadata().GetName(), State: stateIn(st.GetState()), Labels: st.GetLabels(), Annotations: st.GetAnnotations(),
		PID: i.PID, CreatedAt: st.GetCreatedAt(), StartedAt: st.GetStartedAt(), FinishedAt: st.GetFinishedAt(), ExitCode: st.GetExitCode(),
	}
	if i.Spec != nil {
		i.specIn(l)
	} else if r := resourcesIn(st.GetResources().GetLinux()); r != nil {
		l.Resources = *r
	}
	return l, nil
}

// listedContainer is a container as a list tells it; nil where it is gone. What a
// runtime cannot tell the state of is taken for running: nothing of its is given away.
func (c *client) listedContainer(ctx context.Context, l listed, why error) *lifecycle.Container {
	out := &lifecycle.Container{
		ID: l.id, PodID: l.pod, Name: lifecycle.Unnamed, State: stateIn(cri.ContainerState(l.state)), Unread: why.Error(),
	}
	if out.State == lifecycle.StateUnknown {
		out.State = lifecycle.StateRunning
	}
	found, err := ask(ctx, describeTimeout, c.calls.ListContainers, "list containers", &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: l.id}})
	if err != nil {
		return out
	}
	at := slices.IndexFunc(found.Containers, func(c *cri.Container) bool { return c.Id == l.id })
	if at < 0 {
		return nil
	}
	full := found.Containers[at]
	out.Name, out.Labels, out.Annotations, out.CreatedAt = full.GetMetadata().GetName(), full.Labels, full.Annotations, full.CreatedAt
	return out
}

// place asks where a container's cgroup is, or will be; empty where the runtime
// does not tell.
func (c *client) place(ctx context.Context, id string) (string, error) {
	s, err := c.status(ctx, callTimeout, id)
	if err != nil {
		return "", err
	}
	var v struct {
		Spec struct {
			Linux struct {
				CgroupsPath string `json:"cgroupsPath"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	_ = json.Unmarshal([]byte(s.GetInfo()["info"]), &v) // runtimes are free in what they tell
	return v.Spec.Linux.CgroupsPath, nil
}

// update changes the runtime's copy of a container.
func (c *client) update(ctx context.Context, id string, r *pRes) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.calls.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}
