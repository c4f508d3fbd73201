package conformance

import (
	"context"
	"errors"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
)

// hookProxy is a runtime proxy that calls hook servers like Koordinator's (1.8, pkg/runtimeproxy). PreCreateContainer
// has no container id. The proxy remembers each container's creation request, sends the runtime complete sets of
// resources, and merges answers by the same rules. If the server fails a call, the call fails (policy Fail).
type hookProxy struct {
	v1.RuntimeServiceClient

	hooks hooks.RuntimeHookServiceClient
	conn  *grpc.ClientConn
	*rememberedRequests
}

// rememberedRequests has the pods and containers that a proxy remembers, by id.
type rememberedRequests struct {
	pods map[string]*v1.PodSandboxConfig
	ctrs map[string]*hooks.ContainerResourceHookRequest
}

func newRememberedRequests() *rememberedRequests {
	return &rememberedRequests{map[string]*v1.PodSandboxConfig{}, map[string]*hooks.ContainerResourceHookRequest{}}
}

// newHookProxy returns a proxy that calls the hook server at a socket.
func newHookProxy(runtime v1.RuntimeServiceClient, socket string, k *rememberedRequests) (*hookProxy, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), quickReconnect, waitForReady)
	if err != nil {
		return nil, err
	}
	return &hookProxy{runtime, hooks.NewRuntimeHookServiceClient(conn), conn, k}, nil
}

func podMeta(c *v1.PodSandboxConfig) *hooks.PodSandboxMetadata {
	m := c.GetMetadata()
	return &hooks.PodSandboxMetadata{Name: m.GetName(), Uid: m.GetUid(), Namespace: m.GetNamespace()}
}

// RunPodSandbox calls the hook server first and remembers the pod.
func (p *hookProxy) RunPodSandbox(ctx context.Context, q *v1.RunPodSandboxRequest, o ...grpc.CallOption) (*v1.RunPodSandboxResponse, error) {
	c := q.Config
	resp, err := p.hooks.PreRunPodSandboxHook(ctx, &hooks.PodSandboxHookRequest{
		PodMeta: podMeta(c), RuntimeHandler: q.RuntimeHandler, Labels: c.Labels, Annotations: c.Annotations, CgroupParent: c.GetLinux().GetCgroupParent(),
	})
	if err != nil {
		return nil, err
	}
	c.Labels, c.Annotations = union(c.Labels, resp.Labels), union(c.Annotations, resp.Annotations)
	if resp.CgroupParent != "" {
		c.Linux.CgroupParent = resp.CgroupParent
	}
	made, err := p.RuntimeServiceClient.RunPodSandbox(ctx, q, o...)
	if err == nil {
		p.pods[made.PodSandboxId] = c
	}
	return made, err
}

// StopPodSandbox calls the hook server afterwards and forgets the pod.
func (p *hookProxy) StopPodSandbox(ctx context.Context, q *v1.StopPodSandboxRequest, o ...grpc.CallOption) (*v1.StopPodSandboxResponse, error) {
	resp, err := p.RuntimeServiceClient.StopPodSandbox(ctx, q, o...)
	if c := p.pods[q.PodSandboxId]; c != nil && err == nil {
		_, err = p.hooks.PostStopPodSandboxHook(ctx, &hooks.PodSandboxHookRequest{PodMeta: podMeta(c), Labels: c.Labels, Annotations: c.Annotations})
	}
	delete(p.pods, q.PodSandboxId)
	return resp, err
}

// CreateContainer calls the hook server first, when the container has no id yet.
func (p *hookProxy) CreateContainer(ctx context.Context, q *v1.CreateContainerRequest, o ...grpc.CallOption) (*v1.CreateContainerResponse, error) {
	pod := p.pods[q.PodSandboxId]
	if pod == nil {
		return nil, errors.New("the proxy knows no such pod")
	}
	c, res := q.Config, q.Config.Linux.Resources
	req := &hooks.ContainerResourceHookRequest{
		PodMeta: podMeta(pod), ContainerMeta: &hooks.ContainerMetadata{Name: c.Metadata.Name, Attempt: c.Metadata.Attempt},
		ContainerAnnotations: c.Annotations, PodLabels: pod.Labels, PodAnnotations: pod.Annotations, PodCgroupParent: q.SandboxConfig.GetLinux().GetCgroupParent(),
		ContainerEnvs: map[string]string{}, ContainerResources: &hooks.LinuxContainerResources{},
	}
	mergeRequest(req.ContainerResources, res)
	req.ContainerResources.OomScoreAdj = res.OomScoreAdj
	for _, e := range c.Envs {
		req.ContainerEnvs[e.Key] = string(e.Value)
	}
	resp, err := p.hooks.PreCreateContainerHook(ctx, req)
	if err != nil {
		return nil, err
	}
	c.Annotations = union(c.Annotations, resp.ContainerAnnotations)
	mergeAnswer(res, resp.ContainerResources)
	if resp.ContainerEnvs != nil {
		c.Envs = nil
		for _, name := range slices.Sorted(maps.Keys(resp.ContainerEnvs)) {
			c.Envs = append(c.Envs, &v1.KeyValue{Key: name, Value: []byte(resp.ContainerEnvs[name])})
		}
	}
	made, err := p.RuntimeServiceClient.CreateContainer(ctx, q, o...)
	if err == nil {
		req.ContainerMeta.Id = made.ContainerId
		p.ctrs[made.ContainerId] = req
	}
	return made, err
}

// StartContainer calls the hook server before, ignores the answer, and calls it again afterwards.
func (p *hookProxy) StartContainer(ctx context.Context, q *v1.StartContainerRequest, o ...grpc.CallOption) (*v1.StartContainerResponse, error) {
	req := p.ctrs[q.ContainerId]
	if _, err := p.hooks.PreStartContainerHook(ctx, req); err != nil {
		return nil, err
	}
	resp, err := p.RuntimeServiceClient.StartContainer(ctx, q, o...)
	if err == nil {
		_, err = p.hooks.PostStartContainerHook(ctx, req)
	}
	return resp, err
}

// UpdateContainerResources calls the hook server first, with all resources of the container.
func (p *hookProxy) UpdateContainerResources(ctx context.Context, q *v1.UpdateContainerResourcesRequest, o ...grpc.CallOption) (*v1.UpdateContainerResourcesResponse, error) {
	req := p.ctrs[q.ContainerId]
	mergeRequest(req.ContainerResources, q.Linux)
	resp, err := p.hooks.PreUpdateContainerResourcesHook(ctx, req)
	if err != nil {
		return nil, err
	}
	mergeAnswer(q.Linux, resp.ContainerResources)
	return p.RuntimeServiceClient.UpdateContainerResources(ctx, q, o...)
}

// StopContainer calls the hook server afterwards and forgets the container.
func (p *hookProxy) StopContainer(ctx context.Context, q *v1.StopContainerRequest, o ...grpc.CallOption) (*v1.StopContainerResponse, error) {
	resp, err := p.RuntimeServiceClient.StopContainer(ctx, q, o...)
	if req := p.ctrs[q.ContainerId]; req != nil && err == nil {
		_, err = p.hooks.PostStopContainerHook(ctx, req)
	}
	delete(p.ctrs, q.ContainerId)
	return resp, err
}

// union returns the pairs of both maps; those of b win.
func union(a, b map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// mergeRequest merges a kubelet's request into the remembered resources: each value that is positive or not empty.
func mergeRequest(r *hooks.LinuxContainerResources, q *v1.LinuxContainerResources) {
	more := &hooks.LinuxContainerResources{
		CpuPeriod: max(q.CpuPeriod, 0), CpuShares: max(q.CpuShares, 0), CpuQuota: q.CpuQuota, MemoryLimitInBytes: max(q.MemoryLimitInBytes, 0),
		MemorySwapLimitInBytes: max(q.MemorySwapLimitInBytes, 0), CpusetCpus: q.CpusetCpus, CpusetMems: q.CpusetMems, Unified: q.Unified,
	}
	for _, h := range q.HugepageLimits {
		more.HugepageLimits = append(more.HugepageLimits, &hooks.HugepageLimit{PageSize: h.PageSize, Limit: h.Limit})
	}
	if len(more.HugepageLimits) > 0 {
		r.HugepageLimits = nil
	}
	proto.Merge(r, more)
}

// mergeAnswer merges an answer into a request. Huge page limits stay those of the request.
func mergeAnswer(q *v1.LinuxContainerResources, r *hooks.LinuxContainerResources) {
	if r == nil {
		return
	}
	for _, n := range []struct {
		into *int64
		v    int64
	}{
		{&q.CpuPeriod, r.CpuPeriod}, {&q.CpuShares, r.CpuShares}, {&q.MemoryLimitInBytes, r.MemoryLimitInBytes}, {&q.MemorySwapLimitInBytes, r.MemorySwapLimitInBytes},
	} {
		if n.v > 0 {
			*n.into = n.v
		}
	}
	if r.CpuQuota != 0 {
		q.CpuQuota = r.CpuQuota
	}
	if r.OomScoreAdj >= -1000 && r.OomScoreAdj <= 1000 {
		q.OomScoreAdj = r.OomScoreAdj
	}
	q.CpusetCpus, q.CpusetMems = r.CpusetCpus, r.CpusetMems // always
	if len(r.Unified) > 0 {
		q.Unified = union(q.Unified, r.Unified)
	}
}
