package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri/relay"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/socket"
)

// callTimeout bounds a call of our own to the runtime.
const callTimeout = 10 * time.Second

// backend is our own connection to the runtime, beside those relayed.
type backend struct {
	conn  *grpc.ClientConn
	calls cri.RuntimeServiceClient

	reading sync.Mutex // of a list
	room    []byte     // where it lies
}

func newBackend(path string, by socket.Dialer) (*backend, error) {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return by.Dial(ctx, path) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(relay.DefaultMaxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}))
	if err != nil {
		return nil, fmt.Errorf("dial the runtime at %s: %w", path, err)
	}
	return &backend{conn: conn, calls: cri.NewRuntimeServiceClient(conn)}, nil
}

func (b *backend) close() { _ = b.conn.Close() }

// about asks who the runtime is, once it is there.
func (b *backend) about(ctx context.Context) (string, runtimes.Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := b.calls.Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", runtimes.Runtime{}, fmt.Errorf("ask for the runtime's version: %w", err)
	}
	return fmt.Sprintf("%s %s (CRI %s)", v.RuntimeName, v.RuntimeVersion, v.RuntimeApiVersion),
		runtimes.Of(v.RuntimeName, v.RuntimeVersion, runtimes.Version{}), nil
}

// pods lists pods with all that is known of them: one, or all for no id.
func (b *backend) pods(ctx context.Context, id string) ([]*cri.PodSandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	q := &cri.ListPodSandboxRequest{}
	if id != "" {
		q.Filter = &cri.PodSandboxFilter{Id: id}
	}
	answer, err := b.calls.ListPodSandbox(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return answer.Items, nil
}

// pod completes a pod of a list by its verbose status.
func (b *backend) pod(ctx context.Context, l *cri.PodSandbox) (*lifecycle.Pod, error) {
	p := &lifecycle.Pod{
		ID: l.Id, Name: l.GetMetadata().GetName(), UID: l.GetMetadata().GetUid(), Namespace: l.GetMetadata().GetNamespace(),
		Labels: l.Labels, Annotations: l.Annotations, RuntimeHandler: l.RuntimeHandler,
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	s, err := b.calls.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: l.Id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask for pod %s: %w", l.Id, err)
	}
	i := verboseOf(s.GetInfo())
	p.PID = i.PID
	if i.Config != nil && i.Config.Linux != nil {
		p.CgroupParent = i.Config.Linux.CgroupParent
		p.Overhead, p.Resources = i.Config.Linux.Overhead.words(), i.Config.Linux.Resources.words()
	}
	if i.Spec != nil { // CRI-O tells it in the spec alone
		annotated := runtimes.AnnotatedOf(i.Spec.Annotations, l.Annotations, l.Labels)
		p.CgroupParent = cmp.Or(p.CgroupParent, annotated.CgroupParent)
		if p.Overhead == nil && p.Resources == nil {
			p.Overhead, p.Resources = annotatedIn(annotated.Overhead), annotatedIn(annotated.Resources)
		}
	}
	return p, nil
}

// container asks for all there is to know of a container.
func (b *backend) container(ctx context.Context, id, pod string) (*lifecycle.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	s, err := b.calls.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	st, i := s.GetStatus(), verboseOf(s.GetInfo())
	c := &lifecycle.Container{
		ID: id, PodID: pod, Name: st.GetMetadata().GetName(), State: stateIn(st.GetState()), Labels: st.GetLabels(), Annotations: st.GetAnnotations(),
		PID: i.PID, CreatedAt: st.GetCreatedAt(), StartedAt: st.GetStartedAt(), FinishedAt: st.GetFinishedAt(), ExitCode: st.GetExitCode(),
	}
	if c.PodID == "" {
		c.PodID = i.SandboxID
	}
	if i.Spec == nil {
		if r := resourcesIn(st.GetResources().GetLinux()); r != nil {
			c.Resources = *r
		}
		return c, nil
	}
	i.specIn(c)
	return c, nil
}

// place asks where a container's cgroup is, or will be; empty where the runtime
// does not tell.
func (b *backend) place(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := b.calls.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return "", fmt.Errorf("ask for container %s: %w", id, err)
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

// stateIn translates a container's state.
func stateIn(s cri.ContainerState) lifecycle.State {
	switch s {
	case cri.ContainerState_CONTAINER_CREATED:
		return lifecycle.StateCreated
	case cri.ContainerState_CONTAINER_RUNNING:
		return lifecycle.StateRunning
	case cri.ContainerState_CONTAINER_EXITED:
		return lifecycle.StateStopped
	}
	return lifecycle.StateUnknown
}

// verbose is what we use of the JSON that containerd (1.6 to 2.x) and CRI-O put
// under the key "info" of a verbose status.
type verbose struct {
	SandboxID string `json:"sandboxID"`
	PID       uint32 `json:"pid"`
	Spec      *spec  `json:"runtimeSpec"`
	Config    *struct {
		Linux *struct {
			CgroupParent string         `json:"cgroup_parent"`
			Overhead     *jsonResources `json:"overhead"`
			Resources    *jsonResources `json:"resources"`
		} `json:"linux"`
		CDIDevices []struct {
			Name string `json:"name"`
		} `json:"CDI_devices"`
	} `json:"config"`
}

// spec is what we use of an OCI spec; seccomp alone would be most of it.
type spec struct {
	Annotations map[string]string `json:"annotations"`
	Process     *struct {
		Args        []string `json:"args"`
		Env         []string `json:"env"`
		OOMScoreAdj *int     `json:"oomScoreAdj"`
	} `json:"process"`
	Mounts []specs.Mount `json:"mounts"`
	Linux  *struct {
		CgroupsPath string                `json:"cgroupsPath"`
		Resources   *specs.LinuxResources `json:"resources"`
		Devices     []specs.LinuxDevice   `json:"devices"`
	} `json:"linux"`
}

// jsonResources are CRI resources as encoding/json writes them.
type jsonResources struct {
	Period int64  `json:"cpu_period"`
	Quota  int64  `json:"cpu_quota"`
	Shares int64  `json:"cpu_shares"`
	Memory int64  `json:"memory_limit_in_bytes"`
	CPUs   string `json:"cpuset_cpus"`
	Mems   string `json:"cpuset_mems"`
}

// annotatedIn reads resources of an annotation; nil where there are none.
func annotatedIn(text string) *lifecycle.Resources {
	var r *jsonResources
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	return r.words()
}

func (r *jsonResources) words() *lifecycle.Resources {
	if r == nil {
		return nil
	}
	return resourcesIn(&pRes{
		CpuPeriod: r.Period, CpuQuota: r.Quota, CpuShares: r.Shares, MemoryLimitInBytes: r.Memory, CpusetCpus: r.CPUs, CpusetMems: r.Mems,
	})
}

// verboseOf reads what it can: runtimes are free in what they tell.
func verboseOf(info map[string]string) verbose {
	var v verbose
	_ = json.Unmarshal([]byte(info["info"]), &v)
	return v
}

// specIn reads a container's OCI spec.
func (v *verbose) specIn(c *lifecycle.Container) {
	if p := v.Spec.Process; p != nil {
		c.Args, c.Env = p.Args, p.Env
		if p.OOMScoreAdj != nil {
			c.OOMScoreAdj = lifecycle.Some(int64(*p.OOMScoreAdj))
		}
	}
	for _, m := range v.Spec.Mounts {
		c.Mounts = append(c.Mounts, lifecycle.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	if v.Config != nil {
		for _, d := range v.Config.CDIDevices {
			c.CDIDevices = append(c.CDIDevices, d.Name)
		}
	}
	l := v.Spec.Linux
	if l == nil {
		return
	}
	c.CgroupsPath = l.CgroupsPath
	for _, d := range l.Devices {
		c.Devices = append(c.Devices, lifecycle.Device{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor})
	}
	if r := l.Resources; r != nil {
		c.Resources = specResources(r)
	}
}

func specResources(r *specs.LinuxResources) lifecycle.Resources {
	var out lifecycle.Resources
	if c := r.CPU; c != nil {
		out.CPU = lifecycle.CPU{CPUs: c.Cpus, Mems: c.Mems, Shares: opt(c.Shares), Quota: opt(c.Quota), Period: opt(c.Period)}
	}
	if m := r.Memory; m != nil {
		out.Memory = lifecycle.Memory{Limit: opt(m.Limit), Reservation: opt(m.Reservation), Swap: opt(m.Swap)}
	}
	if r.Pids != nil {
		out.Pids = opt(r.Pids.Limit)
	}
	for _, h := range r.HugepageLimits {
		out.Hugepages = append(out.Hugepages, lifecycle.HugepageLimit{Size: h.Pagesize, Limit: h.Limit})
	}
	out.Unified = r.Unified
	return out
}

func opt[T comparable](p *T) lifecycle.Opt[T] {
	if p == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(*p)
}
