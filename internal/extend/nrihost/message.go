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

// verboseStatus has the fields that the host reads from the JSON in a verbose CRI status. Containerd (1.6 to 2.x) and
// CRI-O put this JSON under the key "info" of the status.
type verboseStatus struct {
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

// errNoSpec is the error for a verbose status without an OCI spec.
var errNoSpec = errors.New("the runtime's verbose status has no OCI spec")

// parseVerboseStatus parses the JSON in the field info of a verbose CRI status.
func parseVerboseStatus(info map[string]string) (v verboseStatus, err error) {
	if info["info"] == "" {
		return v, errNoSpec
	}
	if err := json.Unmarshal([]byte(info["info"]), &v); err != nil {
		return v, fmt.Errorf("read the runtime's verbose status: %w", err)
	}
	return v, nil
}

// podMessage reads a pod's status from the runtime, and returns the NRI message about the pod. The result ready is
// false if the pod has stopped.
func (h *Host) podMessage(ctx context.Context, id string) (p *api.PodSandbox, ready bool, err error) {
	s, err := h.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, false, fmt.Errorf("read the status of pod %s: %w", id, err)
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
	v, err := parseVerboseStatus(s.GetInfo())
	if err == nil {
		p.Pid = v.PID
		p.Linux.CgroupParent = v.Config.Linux.CgroupParent
		p.Linux.PodOverhead, p.Linux.PodResources = toNRIResources(v.Config.Linux.Overhead), toNRIResources(v.Config.Linux.Resources)
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

// containerStates maps the CRI's container states to NRI's container states.
var containerStates = map[cri.ContainerState]api.ContainerState{
	cri.ContainerState_CONTAINER_CREATED: api.ContainerState_CONTAINER_CREATED,
	cri.ContainerState_CONTAINER_RUNNING: api.ContainerState_CONTAINER_RUNNING,
	cri.ContainerState_CONTAINER_EXITED:  api.ContainerState_CONTAINER_STOPPED,
}

// containerMessage reads a container's status from the runtime, and returns the NRI message about the container. If the
// status lacks the OCI spec, containerMessage returns an error together with the message. This message has only the
// fields that are not from the OCI spec.
func (h *Host) containerMessage(ctx context.Context, id, pod string) (*api.Container, error) {
	s, err := h.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("read the status of container %s: %w", id, err)
	}
	st := s.GetStatus()
	c := &api.Container{
		Id: st.GetId(), PodSandboxId: pod, Name: st.GetMetadata().GetName(), State: containerStates[st.GetState()],
		Labels: st.GetLabels(), Annotations: maps.Clone(st.GetAnnotations()), Linux: &api.LinuxContainer{},
		Image: &api.Image{Name: st.GetImage().GetImage()},
	}
	setTimesAndExit(c, st)
	v, err := parseVerboseStatus(s.GetInfo())
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
	addOCISpec(c, v.Spec)
	return c, nil
}

// setTimesAndExit copies the times, exit code, reason and status message from a container's CRI status to the
// container's NRI message. It does nothing if the CRI status is nil.
func setTimesAndExit(c *api.Container, st *cri.ContainerStatus) {
	if st == nil {
		return
	}
	c.CreatedAt, c.StartedAt, c.FinishedAt = st.GetCreatedAt(), st.GetStartedAt(), st.GetFinishedAt()
	c.ExitCode, c.StatusReason, c.StatusMessage = st.GetExitCode(), st.GetReason(), st.GetMessage()
}

// addOCISpec copies the fields of an OCI spec to the NRI message about a container.
func addOCISpec(c *api.Container, s *specs.Spec) {
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
