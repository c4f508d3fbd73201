package cri

import (
	"cmp"
	"encoding/json"

	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// stateIn translates a container's state.
func stateIn(s cri.ContainerState) lifecycle.State {
	switch s {
	case cri.ContainerState_CONTAINER_CREATED:
		return lifecycle.StateCreated
	case cri.ContainerState_CONTAINER_RUNNING:
		return lifecycle.StateRunning
	case cri.ContainerState_CONTAINER_EXITED:
		return lifecycle.StateStopped
	}
	return lifecycle.StateUnknown
}

// verbose is what we use of the JSON that containerd (1.6 to 2.x) and CRI-O put
// under the key "info" of a verbose status.
type verbose struct {
	SandboxID string `json:"sandboxID"`
	PID       uint32 `json:"pid"`
	Spec      *spec  `json:"runtimeSpec"`
	Config    *struct {
		Linux *struct {
			CgroupParent string         `json:"cgroup_parent"`
			Overhead     *jsonResources `json:"overhead"`
			Resources    *jsonResources `json:"resources"`
		} `json:"linux"`
		CDIDevices []struct {
			Name string `json:"name"`
		} `json:"CDI_devices"`
	} `json:"config"`
}

// spec is what we use of an OCI spec; seccomp alone would be most of it.
type spec struct {
	Annotations map[string]string `json:"annotations"`
	Process     *struct {
		Args        []string `json:"args"`
		Env         []string `json:"env"`
		OOMScoreAdj *int     `json:"oomScoreAdj"`
	} `json:"process"`
	Mounts []specs.Mount `json:"mounts"`
	Linux  *struct {
		CgroupsPath string                `json:"cgroupsPath"`
		Resources   *specs.LinuxResources `json:"resources"`
		Devices     []specs.LinuxDevice   `json:"devices"`
	} `json:"linux"`
}

// jsonResources are CRI resources as encoding/json writes them.
type jsonResources struct {
	Period int64  `json:"cpu_period"`
	Quota  int64  `json:"cpu_quota"`
	Shares int64  `json:"cpu_shares"`
	Memory int64  `json:"memory_limit_in_bytes"`
	CPUs   string `json:"cpuset_cpus"`
	Mems   string `json:"cpuset_mems"`
}

// annotatedIn reads resources of an annotation; nil where there are none.
func annotatedIn(text string) *lifecycle.Resources {
	var r *jsonResources
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	return r.words()
}

func (r *jsonResources) words() *lifecycle.Resources {
	if r == nil {
		return nil
	}
	return resourcesIn(&pRes{
		CpuPeriod: r.Period, CpuQuota: r.Quota, CpuShares: r.Shares, MemoryLimitInBytes: r.Memory, CpusetCpus: r.CPUs, CpusetMems: r.Mems,
	})
}

// verboseOf reads what it can: runtimes are free in what they tell.
func verboseOf(info map[string]string) *verbose {
	var v verbose
	_ = json.Unmarshal([]byte(info["info"]), &v)
	return &v
}

// podIn reads what is said of a pod.
func (v *verbose) podIn(p *lifecycle.Pod) {
	p.PID = v.PID
	if v.Config != nil && v.Config.Linux != nil {
		p.CgroupParent = v.Config.Linux.CgroupParent
		p.Overhead, p.Resources = v.Config.Linux.Overhead.words(), v.Config.Linux.Resources.words()
	}
	if v.Spec != nil { // CRI-O tells it in the spec alone
		annotated := runtimes.AnnotatedOf(v.Spec.Annotations, p.Annotations, p.Labels)
		p.CgroupParent = cmp.Or(p.CgroupParent, annotated.CgroupParent)
		if p.Overhead == nil && p.Resources == nil {
			p.Overhead, p.Resources = annotatedIn(annotated.Overhead), annotatedIn(annotated.Resources)
		}
	}
}

// specIn reads a container's OCI spec.
func (v *verbose) specIn(c *lifecycle.Container) {
	if p := v.Spec.Process; p != nil {
		c.Args, c.Env = p.Args, p.Env
		if p.OOMScoreAdj != nil {
			c.OOMScoreAdj = lifecycle.Some(int64(*p.OOMScoreAdj))
		}
	}
	for _, m := range v.Spec.Mounts {
		c.Mounts = append(c.Mounts, lifecycle.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	if v.Config != nil {
		for _, d := range v.Config.CDIDevices {
			c.CDIDevices = append(c.CDIDevices, d.Name)
		}
	}
	l := v.Spec.Linux
	if l == nil {
		return
	}
	c.CgroupsPath = l.CgroupsPath
	for _, d := range l.Devices {
		c.Devices = append(c.Devices, lifecycle.Device{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor})
	}
	if r := l.Resources; r != nil {
		c.Resources = specResources(r)
	}
}

func specResources(r *specs.LinuxResources) lifecycle.Resources {
	var out lifecycle.Resources
	if c := r.CPU; c != nil {
		out.CPU = lifecycle.CPU{CPUs: c.Cpus, Mems: c.Mems, Shares: opt(c.Shares), Quota: opt(c.Quota), Period: opt(c.Period)}
	}
	if m := r.Memory; m != nil {
		out.Memory = lifecycle.Memory{Limit: opt(m.Limit), Reservation: opt(m.Reservation), Swap: opt(m.Swap)}
	}
	if r.Pids != nil {
		out.Pids = opt(r.Pids.Limit)
	}
	for _, h := range r.HugepageLimits {
		out.Hugepages = append(out.Hugepages, lifecycle.HugepageLimit{Size: h.Pagesize, Limit: h.Limit})
	}
	out.Unified = r.Unified
	return out
}

func opt[T comparable](p *T) lifecycle.Opt[T] {
	if p == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(*p)
}
