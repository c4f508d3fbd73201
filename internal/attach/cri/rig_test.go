package cri_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

func TestMain(m *testing.M) {
	if runtime := os.Getenv(childRuntime); runtime != "" {
		os.Exit(serveHandedDown(runtime))
	}
	goleak.VerifyTestMain(m)
}

// fakeRuntime is a CRI runtime in memory. Its answers are the protocol's own.
type fakeRuntime struct {
	api.UnimplementedRuntimeServiceServer

	path string
	stop func() // ends what serve began

	mu    sync.Mutex
	pods  map[string]*api.PodSandbox
	ctrs  map[string]*fakeContainer
	next  int
	calls []string // in the order they came, with what they ask for
	last  map[string]proto.Message
	fail  map[string]error         // by method
	wait  map[string]chan struct{} // by method: not answered before it closes
	bad   map[string]error         // of statuses, by id; a nil error is one that is never answered
}

type fakeContainer struct {
	listed  *api.Container
	asked   *api.ContainerConfig
	asks    int                          // for its status
	updated *api.LinuxContainerResources // by the last update
}

func startRuntime(t *testing.T, path string) *fakeRuntime {
	t.Helper()
	r := &fakeRuntime{
		path: path, pods: map[string]*api.PodSandbox{}, ctrs: map[string]*fakeContainer{}, last: map[string]proto.Message{},
		fail: map[string]error{}, wait: map[string]chan struct{}{},
	}
	r.serve(t)
	return r
}

func (r *fakeRuntime) serve(t *testing.T) {
	t.Helper()
	r.stop = attachtest.Serve(t, r.path, r, grpc.UnaryInterceptor(r.intercept))
}

func (r *fakeRuntime) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	r.mu.Lock()
	r.last[method] = req.(proto.Message)
	if !strings.HasPrefix(method, "List") && method != "Version" {
		r.calls = append(r.calls, method)
	}
	err, wait := r.fail[method], r.wait[method]
	r.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return h(ctx, req)
}

func (r *fakeRuntime) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// told returns the calls since the last time, without those that only ask.
func (r *fakeRuntime) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.DeleteFunc(r.calls, func(c string) bool { return strings.HasSuffix(c, "Status") })
	r.calls = nil
	return out
}

func (r *fakeRuntime) request(method string) proto.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[method]
}

func (r *fakeRuntime) Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error) {
	return &api.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (r *fakeRuntime) RunPodSandbox(_ context.Context, q *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	id := fmt.Sprintf("pod-%d", r.next)
	r.pods[id] = &api.PodSandbox{
		Id: id, Metadata: q.Config.Metadata, Labels: q.Config.Labels, Annotations: q.Config.Annotations, CreatedAt: time.Now().UnixNano(),
	}
	return &api.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (r *fakeRuntime) CreateContainer(_ context.Context, q *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	id := fmt.Sprintf("ctr-%d", r.next)
	r.ctrs[id] = &fakeContainer{asked: q.Config, listed: &api.Container{
		Id: id, PodSandboxId: q.PodSandboxId, Metadata: q.Config.Metadata, Labels: q.Config.Labels, Annotations: q.Config.Annotations,
		CreatedAt: time.Now().UnixNano(),
	}}
	return &api.CreateContainerResponse{ContainerId: id}, nil
}

func (r *fakeRuntime) state(id string, s api.ContainerState) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ctrs[id]
	if c == nil {
		return status.Error(codes.NotFound, "no such container")
	}
	c.listed = proto.CloneOf(c.listed)
	c.listed.State = s
	return nil
}

func (r *fakeRuntime) StartContainer(_ context.Context, q *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	return &api.StartContainerResponse{}, r.state(q.ContainerId, api.ContainerState_CONTAINER_RUNNING)
}

func (r *fakeRuntime) StopContainer(_ context.Context, q *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	return &api.StopContainerResponse{}, r.state(q.ContainerId, api.ContainerState_CONTAINER_EXITED)
}

func (r *fakeRuntime) RemoveContainer(_ context.Context, q *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error) {
	r.set(func() { delete(r.ctrs, q.ContainerId) })
	return &api.RemoveContainerResponse{}, nil
}

func (r *fakeRuntime) StopPodSandbox(context.Context, *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	return &api.StopPodSandboxResponse{}, nil
}

func (r *fakeRuntime) RemovePodSandbox(_ context.Context, q *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	r.set(func() { delete(r.pods, q.PodSandboxId) })
	return &api.RemovePodSandboxResponse{}, nil
}

func (r *fakeRuntime) UpdateContainerResources(_ context.Context, q *api.UpdateContainerResourcesRequest) (*api.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.ctrs[q.ContainerId]; c != nil {
		c.updated = q.GetLinux()
	}
	return &api.UpdateContainerResourcesResponse{}, nil
}

func (r *fakeRuntime) ListPodSandbox(_ context.Context, q *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.ListPodSandboxResponse{}
	for id, p := range r.pods {
		if want := q.GetFilter().GetId(); want == "" || want == id {
			out.Items = append(out.Items, p)
		}
	}
	return out, nil
}

func (r *fakeRuntime) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.ListContainersResponse{}
	for _, c := range r.ctrs {
		out.Containers = append(out.Containers, c.listed)
	}
	return out, nil
}

func (r *fakeRuntime) GetContainerEvents(_ *api.GetEventsRequest, s api.RuntimeService_GetContainerEventsServer) error {
	for i := range 50 {
		if err := s.Send(&api.ContainerEventResponse{ContainerId: fmt.Sprint("c", i)}); err != nil {
			return err
		}
	}
	return status.Error(codes.DataLoss, "no more")
}

func (r *fakeRuntime) PodSandboxStatus(ctx context.Context, q *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	if err := attachtest.Broken(ctx, &r.mu, &r.bad, q.PodSandboxId); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[q.PodSandboxId]
	if p == nil {
		return nil, status.Error(codes.NotFound, "no such pod")
	}
	s := &api.PodSandboxStatus{Id: p.Id, Metadata: p.Metadata, State: p.State, Labels: p.Labels, Annotations: p.Annotations}
	return &api.PodSandboxStatusResponse{Status: s, Info: map[string]string{
		"info": `{"pid":7,"config":{"linux":{"cgroup_parent":"/kubepods/` + q.PodSandboxId + `"}}}`,
	}}, nil
}

func (r *fakeRuntime) ContainerStatus(ctx context.Context, q *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	if err := attachtest.Broken(ctx, &r.mu, &r.bad, q.ContainerId); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ctrs[q.ContainerId]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	c.asks++
	cpu := map[string]any{"cpus": c.asked.GetLinux().GetResources().GetCpusetCpus(), "quota": 5000}
	if u := c.updated; u != nil {
		cpu["shares"] = u.CpuShares
		if u.CpusetCpus != "" {
			cpu["cpus"] = u.CpusetCpus
		}
	}
	info, err := json.Marshal(map[string]any{
		"sandboxID": c.listed.PodSandboxId,
		"runtimeSpec": map[string]any{
			"process": map[string]any{"env": []string{"A=b"}, "oomScoreAdj": 3},
			"linux": map[string]any{
				"cgroupsPath": "/kubepods/podu-1/" + q.ContainerId,
				"resources":   map[string]any{"cpu": cpu},
			},
		},
	})
	return &api.ContainerStatusResponse{
		Status: &api.ContainerStatus{
			Id: q.ContainerId, Metadata: c.listed.Metadata, State: c.listed.State, Labels: c.listed.Labels, Annotations: c.listed.Annotations,
		},
		Info: map[string]string{"info": string(info)},
	}, err
}

// handler plays the conductor.
type handler struct {
	mu     sync.Mutex
	events []lifecycle.Event
	answer map[lifecycle.Kind]func(ev lifecycle.Event) (conductor.Answer, error)

	detached atomic.Int64
}

func (h *handler) Handle(_ context.Context, _ conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	h.mu.Lock()
	h.events = append(h.events, ev)
	f := h.answer[ev.Kind]
	h.mu.Unlock()
	if f == nil {
		return conductor.Answer{}, nil
	}
	return f(ev)
}

func (h *handler) Wants() []lifecycle.Kind                       { return nil }
func (h *handler) Attached(conductor.Carrier, conductor.Runtime) {}
func (h *handler) Detached(conductor.Carrier, error)             { h.detached.Add(1) }

func (h *handler) on(k lifecycle.Kind, f func(ev lifecycle.Event) (conductor.Answer, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer[k] = f
}

// says has events of a kind answered with values.
func (h *handler) says(k lifecycle.Kind, values ...lifecycle.Value) {
	h.on(k, func(lifecycle.Event) (conductor.Answer, error) { return conductor.Answer{Values: values}, nil })
}

// found returns the first event of a kind about a container or pod whose id
// ends so, once there is one.
func (h *handler) found(t *testing.T, k lifecycle.Kind, id string) lifecycle.Event {
	t.Helper()
	var out lifecycle.Event
	attachtest.Until(t, fmt.Sprintf("%v of %s", k, id), func() bool { ev, ok := h.look(k, id); out = ev; return ok })
	return out
}

func (h *handler) look(k lifecycle.Kind, id string) (lifecycle.Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range h.events {
		if ev.Kind == k && (ev.Container != nil && ev.Container.ID == id || ev.Container == nil && ev.Pod != nil && ev.Pod.ID == id || id == "") {
			return ev, true
		}
	}
	return lifecycle.Event{}, false
}

// rig is an attachment between a caller and a runtime in memory.
type rig struct {
	t       *testing.T
	dir     string
	runtime *fakeRuntime
	h       *handler
	a       *cri.Attachment
	client  api.RuntimeServiceClient
	stop    func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	g := &rig{t: t, dir: dir, runtime: startRuntime(t, filepath.Join(dir, "r.sock")), h: newHandler()}
	g.attach(false)
	return g
}

func newHandler() *handler {
	return &handler{answer: map[lifecycle.Kind]func(lifecycle.Event) (conductor.Answer, error){}}
}

func (g *rig) socket() string { return filepath.Join(g.dir, "t.sock") }

// again is another attachment at the same place.
func (g *rig) again() *cri.Attachment { return cri.New(g.options(false)) }

func (g *rig) options(fail bool) cri.Options {
	return cri.Options{
		Socket: g.socket(), Runtime: g.runtime.path, Handler: g.h, Log: slog.New(slog.DiscardHandler),
		Look: 20 * time.Millisecond, Patience: 2 * time.Second, Fail: fail,
	}
}

func (g *rig) attach(fail bool) {
	g.t.Helper()
	g.attachWith(g.options(fail))
}

func (g *rig) attachWith(o cri.Options) {
	g.t.Helper()
	g.a = cri.New(o)
	end := attachtest.Run(g.t, g.a.Run)
	attachtest.Until(g.t, "the socket opens", func() bool {
		c, err := net.Dial("unix", g.socket())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	conn, err := grpc.NewClient("unix://"+g.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.t.Fatal(err)
	}
	g.client = api.NewRuntimeServiceClient(conn)
	g.stop = sync.OnceFunc(func() {
		_ = conn.Close()
		end()
	})
	g.t.Cleanup(func() { g.stop() })
}

func (g *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(g.t.Context(), 20*time.Second)
	g.t.Cleanup(cancel)
	return ctx
}

func (g *rig) runPod() string {
	g.t.Helper()
	r, err := g.client.RunPodSandbox(g.ctx(), &api.RunPodSandboxRequest{Config: podConfig(), RuntimeHandler: "kata"})
	if err != nil {
		g.t.Fatal(err)
	}
	return r.PodSandboxId
}

func podConfig() *api.PodSandboxConfig {
	return &api.PodSandboxConfig{
		Metadata: &api.PodSandboxMetadata{Name: "web-0", Uid: "u-1", Namespace: "shop"},
		Labels:   map[string]string{"app": "web"}, Annotations: map[string]string{"k": "v"},
		Linux: &api.LinuxPodSandboxConfig{CgroupParent: "/kubepods/podu-1", Resources: &api.LinuxContainerResources{CpuShares: 512}},
	}
}

func config() *api.ContainerConfig {
	return &api.ContainerConfig{
		Metadata: &api.ContainerMetadata{Name: "app"}, Command: []string{"sleep"}, Args: []string{"1"},
		Envs:  []*api.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "B", Value: []byte("2")}},
		Linux: &api.LinuxContainerConfig{Resources: &api.LinuxContainerResources{CpuShares: 100, CpuPeriod: 100_000, CpuQuota: 20_000, OomScoreAdj: 5}},
	}
}

func (g *rig) create(pod string, c *api.ContainerConfig) (string, error) {
	r, err := g.client.CreateContainer(g.ctx(), &api.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: podConfig()})
	return r.GetContainerId(), err
}

func (g *rig) run(pod string) string {
	g.t.Helper()
	id, err := g.create(pod, config())
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.client.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: id}); err != nil {
		g.t.Fatal(err)
	}
	return id
}
