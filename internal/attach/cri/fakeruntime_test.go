package cri_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/attachtest"
)

// fakeRuntime is a CRI runtime in memory. It answers with the protocol's own messages.
type fakeRuntime struct {
	api.UnimplementedRuntimeServiceServer

	path string
	stop func() // ends what serve started

	mu    sync.Mutex
	pods  map[string]*api.PodSandbox
	ctrs  map[string]*fakeContainer
	next  int
	calls []string // in the order of their arrival, with the requests
	last  map[string]proto.Message
	fail  map[string]error         // by method
	wait  map[string]chan struct{} // by method: does not answer before it is closed
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
	if err == nil {
		err = attachtest.StatusError(ctx, &r.mu, &r.bad, req)
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

// told returns the calls since the last time, without read calls.
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

func (r *fakeRuntime) PodSandboxStatus(_ context.Context, q *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
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

func (r *fakeRuntime) ContainerStatus(_ context.Context, q *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
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
