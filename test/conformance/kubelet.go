package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// Kubelet runs a scenario's pods through a CRI socket of the runtime or of a proxy.
type Kubelet struct {
	runtime *sim.Runtime            // for the ids and cgroups of pods and containers
	conn    *grpc.ClientConn        // the connection to the CRI socket
	calls   v1.RuntimeServiceClient // the client for the kubelet's calls: proxy, or the CRI socket itself
	proxy   *hookProxy              // the runtime proxy that calls a hook server; nil if the kubelet uses none
}

// With these options, a client retries until the socket is open. Real kubelets do the same.
var (
	waitForReady   = grpc.WithDefaultCallOptions(grpc.WaitForReady(true))
	quickReconnect = grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
		// Without this timeout, gRPC gives up an HTTP/2 handshake that takes longer than the first backoff.
		MinConnectTimeout: 5 * time.Second,
	})
)

// NewKubelet returns a kubelet that uses a CRI socket. The caller closes it.
func NewKubelet(r *sim.Runtime, socket string, more ...grpc.DialOption) (*Kubelet, error) {
	conn, err := grpc.NewClient("unix://"+socket, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()), quickReconnect, waitForReady)...)
	if err != nil {
		return nil, err
	}
	return &Kubelet{runtime: r, conn: conn, calls: v1.NewRuntimeServiceClient(conn)}, nil
}

// sendThroughProxy sends the kubelet's calls through a new runtime proxy, which calls the hook server at a socket.
func (k *Kubelet) sendThroughProxy(socket string, known *storedRequests) (err error) {
	if k.proxy, err = newHookProxy(k.calls, socket, known); err == nil {
		k.calls = k.proxy
	}
	return err
}

// Close closes the connections of the kubelet and of the proxy.
func (k *Kubelet) Close() error {
	if k.proxy != nil {
		return errors.Join(k.proxy.conn.Close(), k.conn.Close())
	}
	return k.conn.Close()
}

// Act performs a step's actions on pods and containers.
func (k *Kubelet) Act(ctx context.Context, s *scenario.Step) error {
	for i := range s.Run {
		if err := k.Run(ctx, &s.Run[i]); err != nil {
			return err
		}
	}
	switch {
	case s.Create != nil:
		return k.create(ctx, s.Create.Pod, s.Create.Container)
	case s.Start != "":
		_, err := k.calls.StartContainer(ctx, &v1.StartContainerRequest{ContainerId: k.containerID(s.Start)})
		return err
	case s.Update != nil:
		return k.update(ctx, s.Update)
	}
	var errs []error
	for _, ref := range s.Stop {
		errs = append(errs, k.stop(ctx, ref))
	}
	for _, ref := range s.Remove {
		errs = append(errs, k.stop(ctx, ref), k.remove(ctx, ref))
	}
	return errors.Join(errs...)
}

// Run starts a pod's sandbox, then creates and starts its containers.
func (k *Kubelet) Run(ctx context.Context, run *scenario.Run) error {
	resources := sim.SumResources(run.Pod.QoS, run.Containers)
	if run.Pod.Resources != nil {
		resources = *run.Pod.Resources
	}
	ref := scenario.PodRef(run.Pod.Namespace, run.Pod.Name)
	_, err := k.calls.RunPodSandbox(ctx, &v1.RunPodSandboxRequest{Config: k.podConfig(&run.Pod, resources), RuntimeHandler: run.Pod.Handler})
	if err != nil {
		return fmt.Errorf("run pod %s: %w", ref, err)
	}
	for _, c := range run.Containers {
		if err := k.create(ctx, ref, c); err != nil {
			return err
		}
		if _, err := k.calls.StartContainer(ctx, &v1.StartContainerRequest{ContainerId: k.containerID(ref.In(c.Name))}); err != nil {
			return fmt.Errorf("start %s: %w", ref.In(c.Name), err)
		}
	}
	return nil
}

// podConfig returns the CRI configuration of a pod with the given resources.
func (k *Kubelet) podConfig(p *scenario.Pod, resources scenario.Resources) *v1.PodSandboxConfig {
	uid := cmp.Or(p.UID, k.runtime.UID(scenario.PodRef(p.Namespace, p.Name)))
	return &v1.PodSandboxConfig{
		Metadata: &v1.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: uid}, Labels: p.Labels, Annotations: p.Annotations,
		Linux: &v1.LinuxPodSandboxConfig{CgroupParent: "/" + k.runtime.PodDir(p.QoS, uid), Resources: cri.AsCRI(resources)},
	}
}

// create creates a container in a pod.
func (k *Kubelet) create(ctx context.Context, pod scenario.Ref, c scenario.Container) error {
	config := &v1.ContainerConfig{
		Metadata: &v1.ContainerMetadata{Name: c.Name}, Image: &v1.ImageSpec{Image: "sim.invalid/none"},
		Labels: c.Labels, Annotations: c.Annotations, Args: c.Args, Linux: &v1.LinuxContainerConfig{Resources: cri.AsCRI(c.Resources)},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		config.Envs = append(config.Envs, &v1.KeyValue{Key: name, Value: []byte(c.Env[name])})
	}
	for _, name := range c.CDI {
		config.CDIDevices = append(config.CDIDevices, &v1.CDIDevice{Name: name})
	}
	request := &v1.CreateContainerRequest{Config: config}
	for _, p := range k.runtime.Sandboxes() {
		if p.Ref == pod {
			request.PodSandboxId, request.SandboxConfig = p.ID, k.podConfig(&p.Pod, p.Resources)
		}
	}
	_, err := k.calls.CreateContainer(ctx, request)
	if err != nil {
		return fmt.Errorf("create %s: %w", pod.In(c.Name), err)
	}
	return nil
}

// update updates a container's resources, and also writes to the pod's cgroup. A real kubelet does both for a resize.
func (k *Kubelet) update(ctx context.Context, u *scenario.Update) error {
	return u.WithPodWrites(k.runtime.SetPodCgroup, func() error {
		_, err := k.calls.UpdateContainerResources(ctx, &v1.UpdateContainerResourcesRequest{
			ContainerId: k.containerID(u.Container), Linux: cri.AsCRI(u.Resources),
		})
		return err
	})
}

// repeat sends an update again if the container's status has another quota, other shares or another memory limit than
// the update. Like a real kubelet, it does nothing if the status has no resources.
func (k *Kubelet) repeat(ctx context.Context, u *scenario.Update) error {
	status, err := k.calls.ContainerStatus(ctx, &v1.ContainerStatusRequest{ContainerId: k.containerID(u.Container)})
	if err != nil {
		return err
	}
	has, wanted := status.GetStatus().GetResources().GetLinux(), cri.AsCRI(u.Resources)
	differs := func(has, wanted int64) bool { return wanted != 0 && has != wanted }
	if has == nil || !differs(has.CpuQuota, wanted.CpuQuota) && !differs(has.CpuShares, wanted.CpuShares) &&
		!differs(has.MemoryLimitInBytes, wanted.MemoryLimitInBytes) {
		return nil
	}
	return k.update(ctx, u)
}

// stop stops a pod or a container.
func (k *Kubelet) stop(ctx context.Context, ref scenario.Ref) (err error) {
	if ref.Container() == "" {
		_, err = k.calls.StopPodSandbox(ctx, &v1.StopPodSandboxRequest{PodSandboxId: k.podID(ref)})
	} else {
		_, err = k.calls.StopContainer(ctx, &v1.StopContainerRequest{ContainerId: k.containerID(ref)})
	}
	return err
}

// remove removes a stopped pod or container.
func (k *Kubelet) remove(ctx context.Context, ref scenario.Ref) (err error) {
	if ref.Container() == "" {
		_, err = k.calls.RemovePodSandbox(ctx, &v1.RemovePodSandboxRequest{PodSandboxId: k.podID(ref)})
	} else {
		_, err = k.calls.RemoveContainer(ctx, &v1.RemoveContainerRequest{ContainerId: k.containerID(ref)})
	}
	return err
}

// podID returns the id of a pod's sandbox; "" if the runtime has no such pod.
func (k *Kubelet) podID(ref scenario.Ref) string {
	for _, p := range k.runtime.Sandboxes() {
		if p.Ref == ref {
			return p.ID
		}
	}
	return ""
}

// containerID returns the id of a container; "" if the runtime has no such container.
func (k *Kubelet) containerID(ref scenario.Ref) string {
	for _, c := range k.runtime.Containers() {
		if c.Ref == ref {
			return c.ID
		}
	}
	return ""
}
