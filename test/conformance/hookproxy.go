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

// hookProxy is a runtime proxy that asks hook servers, as the one in the field
// does (koordinator 1.8, pkg/runtimeproxy): it tells a creation no id, keeps what
// containers were created with, sends the runtime whole sets of resources, and
// takes answers by that proxy's own merge rules. A call that is failed by the
// server fails, as by the policy Fail.
type hookProxy struct {
	v1.RuntimeServiceClient

	hooks hooks.RuntimeHookServiceClient
	conn  *grpc.ClientConn
	*kept
}

// kept is what a proxy knows of pods and containers, by their ids.
type kept struct {
	pods map[string]*v1.PodSandboxConfig
	ctrs map[string]*hooks.ContainerResourceHookRequest
}

func newKept() *kept {
	return &kept{map[string]*v1.PodSandboxConfig{}, map[string]*hooks.ContainerResourceHookRequest{}}
}

// newHookProxy asks the server at a socket before it calls the runtime.
func newHookProxy(runtime v1.RuntimeServiceClient, socket string, k *kept) (*hookProxy, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), quick, waiting)
	if err != nil {
		return nil, err
	}
	return &hookProxy{runtime, hooks.NewRuntimeHookServiceClient(conn), conn, k}, nil
}

func podMeta(c *v1.PodSandboxConfig) *hooks.PodSandboxMetadata {
	m := c.GetMetadata()
	return &hooks.PodSandboxMetadata{Name: m.GetName(), Uid: m.GetUid(), Namespace: m.GetNamespace()}
}

// RunPodSandbox asks before and keeps the pod.
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

// StopPodSandbox reports it afterwards, and forgets the pod.
func (p *hookProxy) StopPodSandbox(ctx context.Context, q *v1.StopPodSandboxRequest, o ...grpc.CallOption) (*v1.StopPodSandboxResponse, error) {
	resp, err := p.RuntimeServiceClient.StopPodSandbox(ctx, q, o...)
	if c := p.pods[q.PodSandboxId]; c != nil && err == nil {
		_, err = p.hooks.PostStopPodSandboxHook(ctx, &hooks.PodSandboxHookRequest{PodMeta: podMeta(c), Labels: c.Labels, Annotations: c.Annotations})
	}
	delete(p.pods, q.PodSandboxId)
	return resp, err
}

// CreateContainer asks before; the container has no id yet.
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
	keep(req.ContainerResources, res)
	req.ContainerResources.OomScoreAdj = res.OomScoreAdj
	for _, e := range c.Envs {
		req.ContainerEnvs[e.Key] = string(e.Value)
	}
	resp, err := p.hooks.PreCreateContainerHook(ctx, req)
	if err != nil {
		return nil, err
	}
	c.Annotations = union(c.Annotations, resp.ContainerAnnotations)
	take(res, resp.ContainerResources)
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

// StartContainer asks before, whatever the answer, and tells afterwards.
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

// UpdateContainerResources asks before, with all the resources there are.
func (p *hookProxy) UpdateContainerResources(ctx context.Context, q *v1.UpdateContainerResourcesRequest, o ...grpc.CallOption) (*v1.UpdateContainerResourcesResponse, error) {
	req := p.ctrs[q.ContainerId]
	keep(req.ContainerResources, q.Linux)
	resp, err := p.hooks.PreUpdateContainerResourcesHook(ctx, req)
	if err != nil {
		return nil, err
	}
	take(q.Linux, resp.ContainerResources)
	return p.RuntimeServiceClient.UpdateContainerResources(ctx, q, o...)
}

// StopContainer reports it afterwards, and forgets the container.
func (p *hookProxy) StopContainer(ctx context.Context, q *v1.StopContainerRequest, o ...grpc.CallOption) (*v1.StopContainerResponse, error) {
	resp, err := p.RuntimeServiceClient.StopContainer(ctx, q, o...)
	if req := p.ctrs[q.ContainerId]; req != nil && err == nil {
		_, err = p.hooks.PostStopContainerHook(ctx, req)
	}
	delete(p.ctrs, q.ContainerId)
	return resp, err
}

// union lays pairs over others.
func union(a, b map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// keep lays what a kubelet asks for over what is kept of a container: what is
// positive or not empty.
func keep(r *hooks.LinuxContainerResources, q *v1.LinuxContainerResources) {
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

// take lays an answer over a request. Limits of huge pages are the request's.
func take(q *v1.LinuxContainerResources, r *hooks.LinuxContainerResources) {
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
