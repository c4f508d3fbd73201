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

// hookProxy is a runtime proxy that works like Koordinator's (1.8, pkg/runtimeproxy): it calls a hook server before or
// after it sends a call to the runtime. It stores the request that created each container. So an update always has all
// resources of the container. If the hook server returns an error, the kubelet's call fails (failure policy Fail).
type hookProxy struct {
	v1.RuntimeServiceClient

	hooks hooks.RuntimeHookServiceClient // the client of the hook server
	conn  *grpc.ClientConn               // the connection to the hook server
	*storedRequests
}

// storedRequests has the last requests for pods and containers that a proxy stores, by the id of the pod or
// container.
type storedRequests struct {
	pods map[string]*v1.PodSandboxConfig
	ctrs map[string]*hooks.ContainerResourceHookRequest
}

// newStoredRequests returns an empty storedRequests.
func newStoredRequests() *storedRequests {
	return &storedRequests{map[string]*v1.PodSandboxConfig{}, map[string]*hooks.ContainerResourceHookRequest{}}
}

// newHookProxy returns a proxy that calls the hook server at a socket and sends the kubelet's calls to runtime.
func newHookProxy(runtime v1.RuntimeServiceClient, socket string, k *storedRequests) (*hookProxy, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), quickReconnect, waitForReady)
	if err != nil {
		return nil, err
	}
	return &hookProxy{runtime, hooks.NewRuntimeHookServiceClient(conn), conn, k}, nil
}

// podMeta returns the identity of a pod for the hook server.
func podMeta(c *v1.PodSandboxConfig) *hooks.PodSandboxMetadata {
	m := c.GetMetadata()
	return &hooks.PodSandboxMetadata{Name: m.GetName(), Uid: m.GetUid(), Namespace: m.GetNamespace()}
}

// RunPodSandbox calls the hook server before the runtime, and stores the pod.
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

// StopPodSandbox calls the hook server after the runtime, and deletes the stored pod.
func (p *hookProxy) StopPodSandbox(ctx context.Context, q *v1.StopPodSandboxRequest, o ...grpc.CallOption) (*v1.StopPodSandboxResponse, error) {
	resp, err := p.RuntimeServiceClient.StopPodSandbox(ctx, q, o...)
	if c := p.pods[q.PodSandboxId]; c != nil && err == nil {
		_, err = p.hooks.PostStopPodSandboxHook(ctx, &hooks.PodSandboxHookRequest{PodMeta: podMeta(c), Labels: c.Labels, Annotations: c.Annotations})
	}
	delete(p.pods, q.PodSandboxId)
	return resp, err
}

// CreateContainer calls the hook server before the runtime, when the container has no id yet. It stores the request.
func (p *hookProxy) CreateContainer(ctx context.Context, q *v1.CreateContainerRequest, o ...grpc.CallOption) (*v1.CreateContainerResponse, error) {
	pod := p.pods[q.PodSandboxId]
	if pod == nil {
		return nil, errors.New("the proxy has no stored request for this pod")
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

// StartContainer calls the hook server before the runtime and after the runtime. It does not use the answers.
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

// UpdateContainerResources calls the hook server before the runtime, with all resources of the container.
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

// StopContainer calls the hook server after the runtime, and deletes the stored request.
func (p *hookProxy) StopContainer(ctx context.Context, q *v1.StopContainerRequest, o ...grpc.CallOption) (*v1.StopContainerResponse, error) {
	resp, err := p.RuntimeServiceClient.StopContainer(ctx, q, o...)
	if req := p.ctrs[q.ContainerId]; req != nil && err == nil {
		_, err = p.hooks.PostStopContainerHook(ctx, req)
	}
	delete(p.ctrs, q.ContainerId)
	return resp, err
}

// union returns the keys and values of both maps. If both have a key, the value is from b.
func union(a, b map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// mergeRequest merges a kubelet's request q into the stored resources r. It ignores values of q that are 0 or empty, and
// negative values except the CPU quota.
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

// mergeAnswer merges a hook server's answer r into the request q. It does not change the huge page limits of q.
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
	q.CpusetCpus, q.CpusetMems = r.CpusetCpus, r.CpusetMems // like Koordinator's proxy, also if the answer has no lists
	if len(r.Unified) > 0 {
		q.Unified = union(q.Unified, r.Unified)
	}
}
