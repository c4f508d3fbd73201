package criclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// verboseInfo has the fields that the agent uses of the JSON in a verbose status (key "info"). containerd (1.6 to 2.x)
// and CRI-O write this JSON. verboseInfo has only those fields of the OCI spec that decisions need, because the whole
// spec is long: its seccomp profile alone is larger than all these fields.
type verboseInfo struct {
	SandboxID string `json:"sandboxID"`
	PID       uint32 `json:"pid"`
	Spec      struct {
		Annotations map[string]string `json:"annotations"`
		Process     struct {
			Args        []string `json:"args"`
			Env         []string `json:"env"`
			OOMScoreAdj *int64   `json:"oomScoreAdj"`
		} `json:"process"`
		Mounts []specs.Mount `json:"mounts"`
		Linux  struct {
			CgroupsPath string                `json:"cgroupsPath"`
			Resources   *specs.LinuxResources `json:"resources"`
			Devices     []specs.LinuxDevice   `json:"devices"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
	Config struct {
		Linux struct {
			CgroupParent string                       `json:"cgroup_parent"`
			Overhead     *cri.LinuxContainerResources `json:"overhead"`
			Resources    *cri.LinuxContainerResources `json:"resources"`
		} `json:"linux"`
		CDIDevices []*cri.CDIDevice `json:"CDI_devices"`
	} `json:"config"`
}

// readVerbose reads the JSON of a verbose status. Each runtime decides what this JSON contains. After an error, v has
// the fields that readVerbose could read.
func readVerbose(info map[string]string) (v verboseInfo, err error) {
	text, ok := info["info"]
	if !ok {
		return v, fmt.Errorf("the runtime's verbose status has no key %q", "info")
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return v, fmt.Errorf("read the runtime's verbose status: %w", err)
	}
	return v, nil
}

// resourcesInAnnotation reads resources from the JSON text of an annotation. It returns nil if the text is "" or not
// valid.
func resourcesInAnnotation(text string) *lifecycle.Resources {
	var r *cri.LinuxContainerResources
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return nil
	}
	return Resources(r)
}

// addToPod sets the fields of p that only the verbose status contains.
func (v *verboseInfo) addToPod(p *lifecycle.Pod) {
	// CRI-O reports the cgroup and the resources only in annotations of the spec.
	annotated := runtimes.ReadSandboxAnnotations(v.Spec.Annotations, p.Annotations, p.Labels)
	linux := &v.Config.Linux
	p.PID, p.CgroupParent = v.PID, cmp.Or(linux.CgroupParent, annotated.CgroupParent)
	p.Overhead, p.Resources = Resources(linux.Overhead), Resources(linux.Resources)
	if p.Overhead == nil && p.Resources == nil {
		p.Overhead, p.Resources = resourcesInAnnotation(annotated.Overhead), resourcesInAnnotation(annotated.Resources)
	}
}

// addToContainer adds the fields of the verbose status to c. The OCI spec in the verbose status also has annotations
// that NRI plugins added, such as the record that the agent stores in a container's annotations.
func (v *verboseInfo) addToContainer(c *lifecycle.Container) {
	spec := &v.Spec
	c.PID, c.Args, c.Env, c.OOMScoreAdj = v.PID, spec.Process.Args, spec.Process.Env, opt(spec.Process.OOMScoreAdj)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	maps.Copy(c.Annotations, spec.Annotations)
	for _, m := range spec.Mounts {
		c.Mounts = append(c.Mounts, lifecycle.Mount{Destination: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	for _, d := range v.Config.CDIDevices {
		c.CDIDevices = append(c.CDIDevices, d.GetName())
	}
	for _, d := range spec.Linux.Devices {
		c.Devices = append(c.Devices, lifecycle.Device{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor})
	}
	c.CgroupsPath = spec.Linux.CgroupsPath
	if r := v.resources(); r != nil {
		c.Resources = *r
	}
}

// resources returns the resources of the OCI spec, or nil if the spec has none.
func (v *verboseInfo) resources() *lifecycle.Resources {
	r := v.Spec.Linux.Resources
	if r == nil {
		return nil
	}
	out := &lifecycle.Resources{Unified: r.Unified}
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
	return out
}

// opt converts a pointer to an optional value; nil means unset.
func opt[T comparable](p *T) lifecycle.Opt[T] {
	if p == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(*p)
}
