package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim"
)

// ListPodSandbox lists the pods that match the filter's id and state.
func (f *Server) ListPodSandbox(_ context.Context, q *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	out := &cri.ListPodSandboxResponse{}
	for _, p := range f.runtime.Sandboxes() {
		want := q.GetFilter()
		if want.GetId() != "" && want.GetId() != p.ID || want.GetState() != nil && want.GetState().GetState() != podState(&p) {
			continue
		}
		out.Items = append(out.Items, &cri.PodSandbox{
			Id: p.ID, Metadata: podMetadata(&p), State: podState(&p), CreatedAt: f.createdAt(p.ID, p.Number),
			Labels: maps.Clone(p.Pod.Labels), Annotations: maps.Clone(p.Pod.Annotations), RuntimeHandler: p.Pod.Handler,
		})
	}
	return out, nil
}

// ListContainers lists the containers that match the filter's id, pod and state.
func (f *Server) ListContainers(_ context.Context, q *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f.listCalls.Add(1)
	out := &cri.ListContainersResponse{}
	for _, c := range f.runtime.Containers() {
		want := q.GetFilter()
		if want.GetId() != "" && want.GetId() != c.ID || want.GetPodSandboxId() != "" && want.GetPodSandboxId() != c.Pod ||
			want.GetState() != nil && want.GetState().GetState() != criState[c.State] {
			continue
		}
		out.Containers = append(out.Containers, &cri.Container{
			Id: c.ID, PodSandboxId: c.Pod, Metadata: &cri.ContainerMetadata{Name: c.Request.Name}, Image: &cri.ImageSpec{Image: imageName}, ImageRef: imageName,
			State: criState[c.State], CreatedAt: f.createdAt(c.ID, c.Number), Labels: labelsOf(&c), Annotations: maps.Clone(c.Request.Annotations),
		})
	}
	return out, nil
}

// imageName is the image of every container.
const imageName = "sim.invalid/none:latest"

// criState has the CRI's state of a container, by ContainerInfo.State.
var criState = map[string]cri.ContainerState{
	"created": cri.ContainerState_CONTAINER_CREATED, "running": cri.ContainerState_CONTAINER_RUNNING, "stopped": cri.ContainerState_CONTAINER_EXITED,
}

// labelsOf returns the labels of a container: the requested labels, and the labels that a kubelet adds.
func labelsOf(c *sim.ContainerInfo) map[string]string {
	namespace, pod, name := c.Ref.Names()
	labels := map[string]string{
		"io.kubernetes.container.name": name, "io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": namespace,
	}
	maps.Copy(labels, c.Request.Labels)
	return labels
}

// podMetadata returns the name, namespace and UID of a pod.
func podMetadata(p *sim.Sandbox) *cri.PodSandboxMetadata {
	return &cri.PodSandboxMetadata{Name: p.Pod.Name, Namespace: p.Pod.Namespace, Uid: p.Pod.UID}
}

// podState returns the CRI's state of a pod: ready until the pod is stopped.
func podState(p *sim.Sandbox) cri.PodSandboxState {
	if p.Stopped {
		return cri.PodSandboxState_SANDBOX_NOTREADY
	}
	return cri.PodSandboxState_SANDBOX_READY
}

// podStatus returns the status of a pod.
func (f *Server) podStatus(p *sim.Sandbox) *cri.PodSandboxStatus {
	return &cri.PodSandboxStatus{
		Id: p.ID, Metadata: podMetadata(p), State: podState(p), CreatedAt: f.createdAt(p.ID, p.Number),
		Labels: maps.Clone(p.Pod.Labels), Annotations: maps.Clone(p.Pod.Annotations), RuntimeHandler: p.Pod.Handler,
	}
}

// sandbox returns the pod with an id. The error is NotFound if there is none.
func (f *Server) sandbox(id string) (*sim.Sandbox, error) {
	for _, p := range f.runtime.Sandboxes() {
		if p.ID == id {
			return &p, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox %q: not found", id)
}

// PodSandboxStatus reports the status of a pod. In a verbose status, "info" has the pod's runtime spec and, as in
// containerd, the pod's configuration. If the runtime imitates CRI-O, "info" has no configuration.
func (f *Server) PodSandboxStatus(_ context.Context, q *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	p, err := f.sandbox(q.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	out := &cri.PodSandboxStatusResponse{Status: f.podStatus(p)}
	if !q.GetVerbose() {
		return out, nil
	}
	if f.runtime.Kind().StatusHasNoConfig() {
		text, err := sandboxInfo(p)
		out.Info = map[string]string{"info": text}
		return out, err
	}
	info, err := json.Marshal(map[string]any{
		"pid": p.PID, "processStatus": "running", "runtimeHandler": p.Pod.Handler, "runtimeType": "io.containerd.runc.v2",
		"config": &cri.PodSandboxConfig{
			Metadata: podMetadata(p), Labels: p.Pod.Labels, Annotations: p.Pod.Annotations,
			Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/" + p.Dir, Resources: AsCRI(p.Resources)},
		},
		"runtimeSpec": &specs.Spec{Version: specs.Version, Linux: &specs.Linux{
			CgroupsPath: "/" + p.Dir + "/" + p.ID, Resources: &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(2))}},
		}},
	})
	out.Info = map[string]string{"info": string(info)}
	return out, err
}

// ContainerStatus reports the status of a container. A verbose status has the container's OCI spec in "info".
func (f *Server) ContainerStatus(_ context.Context, q *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	out := &cri.ContainerStatusResponse{}
	var err error
	found := f.runtime.ViewContainer(q.GetContainerId(), func(c sim.ContainerInfo, spec *specs.Spec) {
		out.Status = &cri.ContainerStatus{
			Id: c.ID, Metadata: &cri.ContainerMetadata{Name: c.Request.Name}, State: criState[c.State], CreatedAt: f.createdAt(c.ID, c.Number),
			Image: &cri.ImageSpec{Image: imageName}, ImageRef: imageName, Labels: labelsOf(&c), Annotations: maps.Clone(c.Request.Annotations),
		}
		if c.State == "running" {
			out.Status.StartedAt = out.Status.CreatedAt + 1
		}
		if f.statusHasResources() {
			out.Status.Resources = &cri.ContainerResources{Linux: statusResources(spec)}
		}
		if q.GetVerbose() {
			var info []byte
			info, err = json.Marshal(f.verboseInfo(&c, spec))
			out.Info = map[string]string{"info": string(info)}
		}
	})
	if !found {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", q.GetContainerId())
	}
	if err != nil {
		err = fmt.Errorf("encode the verbose status of container %s: %w", q.GetContainerId(), err)
	}
	return out, err
}

// sandboxInfo returns the "info" of a pod as CRI-O 1.36.3 reports it for a sandbox without a process.
func sandboxInfo(p *sim.Sandbox) (string, error) {
	resources, err := json.Marshal(AsCRI(p.Resources))
	if err != nil {
		return "", err
	}
	info, err := json.Marshal(map[string]any{
		"runtimeSpec": &specs.Spec{
			Version: specs.Version,
			Annotations: map[string]string{
				"io.container.manager": "cri-o", "io.kubernetes.cri-o.CgroupParent": "/" + p.Dir, "io.kubernetes.cri-o.ContainerType": "sandbox",
				"pod-linux-resources.crio.io": string(resources), "pod-linux-overhead.crio.io": "null", "spoofed.crio.io": "true",
			},
			Linux: &specs.Linux{
				CgroupsPath: "/" + p.Dir + "/crio-" + p.ID, Resources: &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(2))}},
			},
		},
	})
	return string(info), err
}

// verboseInfo returns the "info" of a container as containerd 1.6 to 2.x reports it (container_status.go). If the
// runtime imitates CRI-O, "info" has no configuration.
func (f *Server) verboseInfo(c *sim.ContainerInfo, spec *specs.Spec) map[string]any {
	if f.runtime.Kind().StatusHasNoConfig() {
		return map[string]any{"sandboxID": c.Pod, "pid": c.PID, "privileged": false, "runtimeSpec": spec}
	}
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Request.Name}, Labels: c.Request.Labels, Annotations: c.Request.Annotations, Args: c.Request.Args,
	}
	for _, name := range c.CDI {
		config.CDIDevices = append(config.CDIDevices, &cri.CDIDevice{Name: name})
	}
	return map[string]any{
		"sandboxID": c.Pod, "pid": c.PID, "removing": false, "snapshotKey": c.ID, "snapshotter": "overlayfs",
		"runtimeType": "io.containerd.runc.v2", "config": config, "runtimeSpec": spec,
	}
}
