package nrihost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// verbose has the parts that we use of the JSON that containerd (1.6 to 2.x) and CRI-O put under the key "info" of
// a verbose status.
type verbose struct {
	SandboxID string      `json:"sandboxID"`
	PID       uint32      `json:"pid"`
	Spec      *specs.Spec `json:"runtimeSpec"`
	Config    struct {
		Linux struct {
			CgroupParent string                       `json:"cgroup_parent"`
			Overhead     *cri.LinuxContainerResources `json:"overhead"`
			Resources    *cri.LinuxContainerResources `json:"resources"`
		} `json:"linux"`
		CDIDevices []struct {
			Name string `json:"name"`
		} `json:"CDI_devices"`
	} `json:"config"`
}

// errNoSpec means that the runtime's verbose status has no OCI spec.
var errNoSpec = errors.New("the runtime's verbose status has no OCI spec")

func verboseIn(info map[string]string) (v verbose, err error) {
	if info["info"] == "" {
		return v, errNoSpec
	}
	if err := json.Unmarshal([]byte(info["info"]), &v); err != nil {
		return v, fmt.Errorf("read the runtime's verbose status: %w", err)
	}
	return v, nil
}

// podMessage asks the runtime for all that plugins see of a pod. ready is false for a pod that has stopped.
func (h *Host) podMessage(ctx context.Context, id string) (p *api.PodSandbox, ready bool, err error) {
	s, err := h.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, false, fmt.Errorf("ask for pod %s: %w", id, err)
	}
	st := s.GetStatus()
	p = &api.PodSandbox{
		Id: st.GetId(), Name: st.GetMetadata().GetName(), Uid: st.GetMetadata().GetUid(), Namespace: st.GetMetadata().GetNamespace(),
		Labels: st.GetLabels(), Annotations: maps.Clone(st.GetAnnotations()), RuntimeHandler: st.GetRuntimeHandler(), Linux: &api.LinuxPodSandbox{},
	}
	if ip := st.GetNetwork().GetIp(); ip != "" {
		p.Ips = append(p.Ips, ip)
	}
	for _, ip := range st.GetNetwork().GetAdditionalIps() {
		p.Ips = append(p.Ips, ip.GetIp())
	}
	v, err := verboseIn(s.GetInfo())
	if err == nil {
		p.Pid = v.PID
		p.Linux.CgroupParent = v.Config.Linux.CgroupParent
		p.Linux.PodOverhead, p.Linux.PodResources = fromCRI(v.Config.Linux.Overhead), fromCRI(v.Config.Linux.Resources)
		if v.Spec != nil {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			maps.Copy(p.Annotations, v.Spec.Annotations)
			if l := v.Spec.Linux; l != nil {
				p.Linux.CgroupsPath, p.Linux.Namespaces = l.CgroupsPath, api.FromOCILinuxNamespaces(l.Namespaces)
				p.Linux.Resources = api.FromOCILinuxResources(l.Resources, nil)
			}
		}
	}
	return p, st.GetState() == cri.PodSandboxState_SANDBOX_READY, nil
}

// states converts the CRI's container states to those of NRI.
var states = map[cri.ContainerState]api.ContainerState{
	cri.ContainerState_CONTAINER_CREATED: api.ContainerState_CONTAINER_CREATED,
	cri.ContainerState_CONTAINER_RUNNING: api.ContainerState_CONTAINER_RUNNING,
	cri.ContainerState_CONTAINER_EXITED:  api.ContainerState_CONTAINER_STOPPED,
}

// containerMessage asks the runtime for all that plugins see of a container, by its id.
func (h *Host) containerMessage(ctx context.Context, id, pod string) (*api.Container, error) {
	s, err := h.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask for container %s: %w", id, err)
	}
	st := s.GetStatus()
	c := &api.Container{
		Id: st.GetId(), PodSandboxId: pod, Name: st.GetMetadata().GetName(), State: states[st.GetState()],
		Labels: st.GetLabels(), Annotations: maps.Clone(st.GetAnnotations()), Linux: &api.LinuxContainer{},
		Image: &api.Image{Name: st.GetImage().GetImage()},
	}
	setTimes(c, st)
	v, err := verboseIn(s.GetInfo())
	if err != nil {
		return c, err
	}
	c.Pid = v.PID
	for _, d := range v.Config.CDIDevices {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: d.Name})
	}
	if c.PodSandboxId == "" {
		c.PodSandboxId = v.SandboxID
	}
	if v.Spec == nil {
		return c, errNoSpec
	}
	fromSpec(c, v.Spec)
	return c, nil
}

// setTimes takes over when a container was created, started and ended, and how it ended. Without a status it changes
// nothing.
func setTimes(c *api.Container, st *cri.ContainerStatus) {
	if st == nil {
		return
	}
	c.CreatedAt, c.StartedAt, c.FinishedAt = st.GetCreatedAt(), st.GetStartedAt(), st.GetFinishedAt()
	c.ExitCode, c.StatusReason, c.StatusMessage = st.GetExitCode(), st.GetReason(), st.GetMessage()
}

// fromSpec adds the container's data from an OCI spec.
func fromSpec(c *api.Container, s *specs.Spec) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	maps.Copy(c.Annotations, s.Annotations)
	c.Mounts, c.Hooks = api.FromOCIMounts(s.Mounts), api.FromOCIHooks(s.Hooks)
	if p := s.Process; p != nil {
		c.Args, c.Env = p.Args, p.Env
		c.User = &api.User{Uid: p.User.UID, Gid: p.User.GID, AdditionalGids: p.User.AdditionalGids}
		c.Rlimits = nil
		for _, r := range p.Rlimits {
			c.Rlimits = append(c.Rlimits, &api.POSIXRlimit{Type: r.Type, Hard: r.Hard, Soft: r.Soft})
		}
		c.Linux.OomScoreAdj = api.Int(p.OOMScoreAdj)
		c.Linux.IoPriority, c.Linux.Scheduler = api.FromOCILinuxIOPriority(p.IOPriority), api.FromOCILinuxScheduler(p.Scheduler)
	}
	l := s.Linux
	if l == nil {
		return
	}
	c.Linux.Namespaces, c.Linux.Devices = api.FromOCILinuxNamespaces(l.Namespaces), api.FromOCILinuxDevices(l.Devices)
	c.Linux.Resources, c.Linux.CgroupsPath = api.FromOCILinuxResources(l.Resources, nil), l.CgroupsPath
	c.Linux.Sysctl, c.Linux.NetDevices = l.Sysctl, api.FromOCILinuxNetDevices(l.NetDevices)
	if l.Seccomp != nil {
		c.Linux.SeccompPolicy = api.FromOCILinuxSeccomp(l.Seccomp)
	}
	if r := l.IntelRdt; r != nil {
		c.Linux.Rdt = &api.LinuxRdt{ClosId: api.String(r.ClosID), Schemata: api.RepeatedString(r.Schemata), EnableMonitoring: api.Bool(r.EnableMonitoring)}
	}
}
