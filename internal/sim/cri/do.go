package cri

import (
	"context"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// RunPodSandbox runs a pod. It also makes the pod's cgroup; a real kubelet makes the cgroup before this call.
func (f *Server) RunPodSandbox(ctx context.Context, q *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	c := q.GetConfig()
	pod := scenario.Pod{
		Namespace: c.GetMetadata().GetNamespace(), Name: c.GetMetadata().GetName(), UID: c.GetMetadata().GetUid(),
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(), Handler: q.GetRuntimeHandler(),
	}
	parent := strings.Trim(c.GetLinux().GetCgroupParent(), "/")
	for _, qos := range []string{"Guaranteed", "Burstable", "BestEffort"} {
		if f.runtime.PodDir(qos, pod.UID) == parent {
			pod.QoS = qos
		}
	}
	if pod.QoS == "" || pod.Name == "" || pod.Namespace == "" || pod.UID == "" {
		return nil, status.Errorf(codes.InvalidArgument, "pod %s/%s: its cgroup parent %q is not the directory where a kubelet puts the pod", pod.Namespace, pod.Name, parent)
	}
	if err := f.runtime.RunPodSandbox(ctx, pod, scenarioResources(c.GetLinux().GetResources())); err != nil {
		return nil, err
	}
	ref := scenario.PodRef(pod.Namespace, pod.Name)
	for _, p := range f.runtime.Sandboxes() {
		if p.Ref == ref {
			f.setCreationTime(p.ID)
			f.notify(cri.ContainerEventType_CONTAINER_CREATED_EVENT, p.ID, &p)
			f.notify(cri.ContainerEventType_CONTAINER_STARTED_EVENT, p.ID, &p)
			return &cri.RunPodSandboxResponse{PodSandboxId: p.ID}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s was removed during its creation", ref)
}

// StopPodSandbox stops a pod and its containers. It returns no error for an unknown pod.
func (f *Server) StopPodSandbox(ctx context.Context, q *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	p, err := f.sandbox(q.GetPodSandboxId())
	if err != nil {
		return &cri.StopPodSandboxResponse{}, nil //nolint:nilerr // idempotent, as in containerd
	}
	running := f.runningContainers(p.ID)
	if err := f.runtime.StopPodSandbox(ctx, p.Ref); err != nil {
		return nil, err
	}
	p.Stopped = true
	for _, c := range running {
		f.notify(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, c.ID, p)
	}
	f.notify(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, p.ID, p)
	return &cri.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox removes a pod and its containers. It also removes the pod's cgroup; a real kubelet removes the
// cgroup after this call.
func (f *Server) RemovePodSandbox(ctx context.Context, q *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	p, err := f.sandbox(q.GetPodSandboxId())
	if err != nil {
		return &cri.RemovePodSandboxResponse{}, nil //nolint:nilerr // idempotent, as in containerd
	}
	var removed []sim.ContainerInfo
	for _, c := range f.runtime.Containers() {
		if c.Pod == p.ID {
			removed = append(removed, c)
		}
	}
	if err := f.runtime.RemovePodSandbox(ctx, p.Ref); err != nil {
		return nil, err
	}
	p.Stopped = true
	for _, c := range removed {
		f.notify(cri.ContainerEventType_CONTAINER_DELETED_EVENT, c.ID, p)
	}
	f.notify(cri.ContainerEventType_CONTAINER_DELETED_EVENT, p.ID, p)
	return &cri.RemovePodSandboxResponse{}, nil
}

// CreateContainer creates a container. The container has no cgroup before it starts.
func (f *Server) CreateContainer(ctx context.Context, q *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	p, err := f.sandbox(q.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	request := requestOf(q.GetConfig())
	f.runtime.NotifySent(runtimes.CRI, runtimes.CreateCall, nriResources(q.GetConfig().GetLinux().GetResources()))
	if err := f.runtime.Create(ctx, p.Ref, request); err != nil {
		return nil, err
	}
	for _, c := range f.runtime.Containers() {
		if c.Ref == p.Ref.In(request.Name) {
			f.setCreationTime(c.ID)
			f.notify(cri.ContainerEventType_CONTAINER_CREATED_EVENT, c.ID, p)
			return &cri.CreateContainerResponse{ContainerId: c.ID}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "container %s was removed during its creation", request.Name)
}

// requestOf converts the configuration of a container to a request. It does not check whether the node has the cgroup
// files that the field unified names. If the node lacks such a file, the start of the container fails, as with runc.
func requestOf(c *cri.ContainerConfig) sim.Request {
	res := c.GetLinux().GetResources()
	q := sim.Request{Container: scenario.Container{
		Name: c.GetMetadata().GetName(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(), Args: append(c.GetCommand(), c.GetArgs()...),
		Env: map[string]string{}, Resources: scenarioResources(res),
	}}
	for _, e := range c.GetEnvs() {
		q.Env[e.GetKey()] = string(e.GetValue())
	}
	for _, m := range c.GetMounts() {
		options := []string{"rbind", "rw"}
		if m.GetReadonly() {
			options[1] = "ro"
		}
		q.Mounts = append(q.Mounts, specs.Mount{Destination: m.GetContainerPath(), Source: m.GetHostPath(), Type: "bind", Options: options})
	}
	for _, d := range c.GetDevices() {
		q.Devices = append(q.Devices, d.GetHostPath()+":"+d.GetContainerPath())
	}
	for _, d := range c.GetCDIDevices() {
		q.CDI = append(q.CDI, d.GetName())
	}
	if res != nil {
		q.OOMScoreAdj = new(int(res.GetOomScoreAdj()))
	}
	q.Unified = res.GetUnified()
	return q
}

// StartContainer starts a container.
func (f *Server) StartContainer(ctx context.Context, q *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	c, p, err := f.container(q.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := f.runtime.StartContainer(ctx, c.Ref); err != nil {
		return nil, err
	}
	f.notify(cri.ContainerEventType_CONTAINER_STARTED_EVENT, c.ID, p)
	return &cri.StartContainerResponse{}, nil
}

// UpdateContainerResources updates the resources of a container.
func (f *Server) UpdateContainerResources(ctx context.Context, q *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	f.updateCalls.Add(1)
	c, _, err := f.container(q.GetContainerId())
	if err != nil {
		return nil, err
	}
	request := nriResources(q.GetLinux())
	f.runtime.NotifySent(runtimes.CRI, runtimes.KubeletUpdate, request)
	return &cri.UpdateContainerResourcesResponse{}, f.runtime.Update(ctx, c.Ref, request)
}

// StopContainer stops a container. It returns no error for an unknown container.
func (f *Server) StopContainer(ctx context.Context, q *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	c, p, err := f.container(q.GetContainerId())
	if err != nil {
		return &cri.StopContainerResponse{}, nil //nolint:nilerr // idempotent, as in containerd
	}
	if err := f.runtime.StopContainer(ctx, c.Ref); err != nil {
		return nil, err
	}
	f.notify(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, c.ID, p)
	return &cri.StopContainerResponse{}, nil
}

// RemoveContainer stops and removes a container. It returns no error for an unknown container.
func (f *Server) RemoveContainer(ctx context.Context, q *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	c, p, err := f.container(q.GetContainerId())
	if err != nil {
		return &cri.RemoveContainerResponse{}, nil //nolint:nilerr // idempotent, as in containerd
	}
	if err := f.runtime.RemoveContainer(ctx, c.Ref); err != nil {
		return nil, err
	}
	f.notify(cri.ContainerEventType_CONTAINER_DELETED_EVENT, c.ID, p)
	return &cri.RemoveContainerResponse{}, nil
}

// runningContainers returns the running containers of the pod with an id.
func (f *Server) runningContainers(pod string) []sim.ContainerInfo {
	var all []sim.ContainerInfo
	for _, c := range f.runtime.Containers() {
		if c.Pod == pod && c.State == "running" {
			all = append(all, c)
		}
	}
	return all
}

// container returns the container with an id, and its pod. The error is NotFound if there is no such container.
func (f *Server) container(id string) (*sim.ContainerInfo, *sim.Sandbox, error) {
	for _, c := range f.runtime.Containers() {
		if c.ID == id {
			p, err := f.sandbox(c.Pod)
			return &c, p, err
		}
	}
	return nil, nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", id)
}
