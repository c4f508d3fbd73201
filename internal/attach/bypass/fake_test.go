package bypass

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/test/attachtest"
)

// fakeCRI is a runtime on a socket that behaves like containerd: a created container has no cgroup, and its
// start makes one and writes the stored resources into it.
type fakeCRI struct {
	cri.UnimplementedRuntimeServiceServer
	version string
	kernel  *noticed
	socket  string
	close   func()       // ends what listen started
	asked   atomic.Int64 // calls
	lists   atomic.Int64 // of all pods

	mu      sync.Mutex
	pods    map[string]*fakePod
	ctrs    map[string]*fakeCtr
	events  map[chan *cri.ContainerEventResponse]bool
	updates []*cri.UpdateContainerResourcesRequest
	n       int
	// bad are the errors of statuses by id; a nil error is one that is never answered.
	bad map[string]error
	// onStart runs after the cgroup is created and before the container runs.
	onStart func(dir string)
}

type fakePod struct {
	status *cri.PodSandboxStatus
	parent string
	hidden bool // the runtime does not report it yet
}

type fakeCtr struct {
	status *cri.ContainerStatus
	pod    *fakePod
	spec   specs.Spec
	hidden bool
}

func newCRI(t *testing.T, k *noticed, version string) *fakeCRI {
	t.Helper()
	r := &fakeCRI{
		version: version, kernel: k, socket: filepath.Join(t.TempDir(), "s"),
		pods: map[string]*fakePod{}, ctrs: map[string]*fakeCtr{}, events: map[chan *cri.ContainerEventResponse]bool{},
	}
	r.listen(t)
	return r
}

func (r *fakeCRI) listen(t *testing.T) {
	t.Helper()
	r.close = attachtest.Serve(t, r.socket, r, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		r.asked.Add(1)
		if err := attachtest.StatusError(ctx, &r.mu, &r.bad, req); err != nil {
			return nil, err
		}
		return h(ctx, req)
	}))
}

func (r *fakeCRI) streams() bool { return strings.HasPrefix(r.version, "v2") }

// id makes ids of a runtime's form.
func (r *fakeCRI) id() string {
	r.n++
	return fmt.Sprintf("%064x", r.n)
}

func (r *fakeCRI) tell(kind cri.ContainerEventType, id string, p *fakePod) {
	for c := range r.events {
		c <- &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, PodSandboxStatus: proto.CloneOf(p.status)}
	}
}

// pod runs a pod; QoS is the directory below kubepods.
func (r *fakeCRI) pod(name, uid string, labels, annotations map[string]string) string {
	dir := "kubepods/burstable/pod" + uid
	r.kernel.mkdir(dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.id()
	r.kernel.mkdir(dir + "/" + id)
	p := &fakePod{parent: "/" + dir, status: &cri.PodSandboxStatus{
		Id: id, Metadata: &cri.PodSandboxMetadata{Name: name, Uid: uid, Namespace: "shop"}, Labels: labels, Annotations: annotations,
	}}
	r.pods[id] = p
	r.tell(cri.ContainerEventType_CONTAINER_CREATED_EVENT, id, p)
	return id
}

func (r *fakeCRI) create(podID, name string, cpu *specs.LinuxCPU) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[podID]
	id := r.id()
	c := &fakeCtr{pod: p, status: &cri.ContainerStatus{
		Id: id, Metadata: &cri.ContainerMetadata{Name: name}, State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: int64(r.n),
	}}
	c.spec.Process = &specs.Process{Env: []string{"A=b"}}
	c.spec.Linux = &specs.Linux{CgroupsPath: p.parent + "/" + id, Resources: &specs.LinuxResources{CPU: cpu}}
	r.ctrs[id] = c
	r.tell(cri.ContainerEventType_CONTAINER_CREATED_EVENT, id, p)
	return id
}

func (c *fakeCtr) dir() string { return strings.TrimPrefix(c.spec.Linux.CgroupsPath, "/") }

func (r *fakeCRI) start(id string) {
	r.mu.Lock()
	c, then := r.ctrs[id], r.onStart
	r.mu.Unlock()
	r.kernel.mkdir(c.dir())
	r.write(c)
	if then != nil {
		then(c.dir())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.status.State = cri.ContainerState_CONTAINER_RUNNING
	r.tell(cri.ContainerEventType_CONTAINER_STARTED_EVENT, id, c.pod)
}

// write puts the stored resources into the cgroup, as runc does.
func (r *fakeCRI) write(c *fakeCtr) {
	cpu := c.spec.Linux.Resources.CPU
	if cpu == nil {
		return
	}
	prefix := ""
	if r.kernel.version == cgroup.V1 {
		prefix = "cpuset/"
	}
	if cpu.Cpus != "" {
		_ = r.kernel.WriteFile(prefix+c.dir()+"/cpuset.cpus", []byte(cpu.Cpus))
	}
}

// exit ends a container's process: its cgroup is removed first.
func (r *fakeCRI) exit(id string) {
	r.mu.Lock()
	c := r.ctrs[id]
	r.mu.Unlock()
	r.kernel.rmdir(c.dir())
	r.mu.Lock()
	defer r.mu.Unlock()
	c.status.State = cri.ContainerState_CONTAINER_EXITED
	r.tell(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, id, c.pod)
}

func (r *fakeCRI) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ctrs[id]
	delete(r.ctrs, id)
	r.tell(cri.ContainerEventType_CONTAINER_DELETED_EVENT, id, c.pod)
}

// endPod stops and removes a pod and its cgroup.
func (r *fakeCRI) endPod(id string) {
	r.mu.Lock()
	p := r.pods[id]
	dir := strings.TrimPrefix(p.parent, "/")
	r.mu.Unlock()
	r.kernel.rmdir(dir + "/" + id)
	r.mu.Lock()
	delete(r.pods, id)
	r.tell(cri.ContainerEventType_CONTAINER_DELETED_EVENT, id, p)
	r.mu.Unlock()
	r.kernel.rmdir(dir)
}

func (r *fakeCRI) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *fakeCRI) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: r.version, RuntimeApiVersion: "v1"}, nil
}

func (r *fakeCRI) ListPodSandbox(_ context.Context, q *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	if q.GetFilter().GetId() == "" {
		r.lists.Add(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &cri.ListPodSandboxResponse{}
	for id, p := range r.pods {
		if want := q.GetFilter().GetId(); !p.hidden && (want == "" || want == id) {
			out.Items = append(out.Items, &cri.PodSandbox{
				Id: id, Metadata: p.status.Metadata, State: p.status.State, Labels: p.status.Labels, Annotations: p.status.Annotations,
			})
		}
	}
	return out, nil
}

func (r *fakeCRI) ListContainers(_ context.Context, q *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &cri.ListContainersResponse{}
	for id, c := range r.ctrs {
		if want := q.GetFilter().GetId(); !c.hidden && (want == "" || want == id) {
			out.Containers = append(out.Containers, &cri.Container{
				Id: id, PodSandboxId: c.pod.status.Id, State: c.status.State, Metadata: c.status.Metadata, Annotations: c.status.Annotations,
			})
		}
	}
	return out, nil
}

func (r *fakeCRI) PodSandboxStatus(_ context.Context, q *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[q.PodSandboxId]
	if p == nil || p.hidden {
		return nil, status.Error(codes.NotFound, "no such pod")
	}
	info, err := json.Marshal(map[string]any{"config": map[string]any{"linux": map[string]any{"cgroup_parent": p.parent}}})
	return &cri.PodSandboxStatusResponse{Status: proto.CloneOf(p.status), Info: map[string]string{"info": string(info)}}, err
}

func (r *fakeCRI) ContainerStatus(_ context.Context, q *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ctrs[q.ContainerId]
	if c == nil || c.hidden {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	info, err := json.Marshal(map[string]any{"sandboxID": c.pod.status.Id, "runtimeSpec": c.spec})
	return &cri.ContainerStatusResponse{Status: proto.CloneOf(c.status), Info: map[string]string{"info": string(info)}}, err
}

func (r *fakeCRI) UpdateContainerResources(_ context.Context, q *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ctrs[q.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	r.updates = append(r.updates, q)
	if c.spec.Linux.Resources.CPU == nil {
		c.spec.Linux.Resources.CPU = &specs.LinuxCPU{}
	}
	cpu := c.spec.Linux.Resources.CPU
	if q.Linux.CpusetCpus != "" {
		cpu.Cpus = q.Linux.CpusetCpus
	}
	if q.Linux.CpuShares != 0 {
		cpu.Shares = new(uint64(q.Linux.CpuShares))
	}
	if q.Linux.CpuQuota != 0 {
		cpu.Quota = new(q.Linux.CpuQuota)
	}
	r.write(c)
	return &cri.UpdateContainerResourcesResponse{}, nil
}

func (r *fakeCRI) GetContainerEvents(_ *cri.GetEventsRequest, s cri.RuntimeService_GetContainerEventsServer) error {
	if !r.streams() {
		return status.Error(codes.Unimplemented, "no events")
	}
	events := make(chan *cri.ContainerEventResponse, 256)
	r.set(func() { r.events[events] = true })
	defer r.set(func() { delete(r.events, events) })
	for {
		select {
		case <-s.Context().Done():
			return nil
		case e := <-events:
			if err := s.Send(e); err != nil {
				return err
			}
		}
	}
}
