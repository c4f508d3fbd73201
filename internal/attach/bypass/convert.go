package bypass

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// verbose is what we use of the JSON that containerd (1.6 to 2.x) and CRI-O put
// under the key "info" of a verbose status.
type verbose struct {
	SandboxID   string      `json:"sandboxID"`
	PID         uint32      `json:"pid"`
	RuntimeSpec *specs.Spec `json:"runtimeSpec"`
	Config      *struct {
		Linux *struct {
			CgroupParent string        `json:"cgroup_parent"`
			Overhead     *criResources `json:"overhead"`
			Resources    *criResources `json:"resources"`
		} `json:"linux"`
		CDIDevices []struct {
			Name string `json:"name"`
		} `json:"CDI_devices"`
	} `json:"config"`
}

// criResources are CRI resources as encoding/json writes them.
type criResources struct {
	Period     int64             `json:"cpu_period"`
	Quota      int64             `json:"cpu_quota"`
	Shares     int64             `json:"cpu_shares"`
	Memory     int64             `json:"memory_limit_in_bytes"`
	CPUs       string            `json:"cpuset_cpus"`
	Mems       string            `json:"cpuset_mems"`
	Unified    map[string]string `json:"unified"`
	MemorySwap int64             `json:"memory_swap_limit_in_bytes"`
}

func readVerbose(info map[string]string) (*verbose, error) {
	v := &verbose{}
	text, ok := info["info"]
	if !ok {
		return v, fmt.Errorf("the runtime's verbose status has no %q", "info")
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return &verbose{}, fmt.Errorf("read the runtime's verbose status: %w", err)
	}
	return v, nil
}

// annotated is what the annotations of the spec tell of a pod.
func (v *verbose) annotated(own ...map[string]string) runtimes.Annotated {
	if v.RuntimeSpec == nil {
		return runtimes.Annotated{}
	}
	return runtimes.AnnotatedOf(v.RuntimeSpec.Annotations, own...)
}

// annotatedIn reads resources of an annotation; nil where there are none.
func annotatedIn(text string) *lifecycle.Resources {
	var r *criResources
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	return r.words()
}

// podIn translates a sandbox.
func podIn(s *cri.PodSandboxStatus, v *verbose) *lifecycle.Pod {
	p := &lifecycle.Pod{
		ID: s.GetId(), Name: s.GetMetadata().GetName(), UID: s.GetMetadata().GetUid(), Namespace: s.GetMetadata().GetNamespace(),
		Labels: maps.Clone(s.GetLabels()), Annotations: maps.Clone(s.GetAnnotations()), RuntimeHandler: s.GetRuntimeHandler(), PID: v.PID,
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		p.IPs = append(p.IPs, ip)
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			p.IPs = append(p.IPs, more.GetIp())
		}
	}
	if spec := v.RuntimeSpec; spec != nil && spec.Linux != nil {
		p.CgroupsPath = spec.Linux.CgroupsPath
		r := resourcesOf(spec.Linux.Resources)
		p.Sandbox = &r
	}
	annotated := v.annotated(s.GetAnnotations(), s.GetLabels())
	p.CgroupParent = annotated.CgroupParent
	p.Overhead, p.Resources = annotatedIn(annotated.Overhead), annotatedIn(annotated.Resources)
	if c := v.Config; c != nil && c.Linux != nil {
		p.CgroupParent = c.Linux.CgroupParent
		p.Overhead, p.Resources = c.Linux.Overhead.words(), c.Linux.Resources.words()
	}
	return p
}

// states are the CRI's as the lifecycle's. What was created has no process, and
// what the runtime does not know has none that we could tell of.
var states = map[cri.ContainerState]lifecycle.State{
	cri.ContainerState_CONTAINER_CREATED: lifecycle.StateCreated,
	cri.ContainerState_CONTAINER_RUNNING: lifecycle.StateRunning,
	cri.ContainerState_CONTAINER_EXITED:  lifecycle.StateStopped,
	cri.ContainerState_CONTAINER_UNKNOWN: lifecycle.StateUnknown,
}

// containerIn translates a container.
func containerIn(s *cri.ContainerStatus, v *verbose, podID string) *lifecycle.Container {
	c := &lifecycle.Container{
		ID: s.GetId(), PodID: podID, Name: s.GetMetadata().GetName(), State: states[s.GetState()],
		Labels: maps.Clone(s.GetLabels()), PID: v.PID, Annotations: maps.Clone(s.GetAnnotations()),
		CreatedAt: s.GetCreatedAt(), StartedAt: s.GetStartedAt(), FinishedAt: s.GetFinishedAt(),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(),
		Image: &lifecycle.Image{Name: s.GetImage().GetImage(), Digest: s.GetImageRef()},
	}
	if v.Config != nil {
		for _, d := range v.Config.CDIDevices {
			c.CDIDevices = append(c.CDIDevices, d.Name)
		}
	}
	spec := v.RuntimeSpec
	if spec == nil {
		c.Resources = resourcesIn(s.GetResources().GetLinux())
		return c
	}
	for k, text := range spec.Annotations {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[k] = text
	}
	processIn(c, spec.Process)
	for _, m := range spec.Mounts {
		c.Mounts = append(c.Mounts, lifecycle.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	if l := spec.Linux; l != nil {
		c.CgroupsPath, c.Sysctl, c.Resources = l.CgroupsPath, l.Sysctl, resourcesOf(l.Resources)
		for _, d := range l.Devices {
			c.Devices = append(c.Devices, lifecycle.Device{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor})
		}
	}
	return c
}

func processIn(c *lifecycle.Container, p *specs.Process) {
	if p == nil {
		return
	}
	c.Args, c.Env = p.Args, p.Env
	c.OOMScoreAdj = opt(p.OOMScoreAdj)
	c.User = &lifecycle.User{UID: p.User.UID, GID: p.User.GID, Additional: p.User.AdditionalGids}
	for _, r := range p.Rlimits {
		c.Rlimits = append(c.Rlimits, lifecycle.Rlimit{Type: r.Type, Hard: r.Hard, Soft: r.Soft})
	}
}

// opt reads a number that may be absent, of whatever width.
func opt[T int | int64 | uint64](p *T) (o lifecycle.Opt[int64]) {
	if p != nil {
		o = lifecycle.Some(int64(*p))
	}
	return o
}
