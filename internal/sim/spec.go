package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// toOCI converts requested resources to OCI resources.
func toOCI(r scenario.Resources) *specs.LinuxResources {
	res := &specs.LinuxResources{
		CPU: &specs.LinuxCPU{Shares: r.Shares, Quota: r.Quota, Period: r.Period, Cpus: r.CPUs, Mems: r.Mems},
	}
	if r.Memory != nil {
		res.Memory = &specs.LinuxMemory{Limit: r.Memory}
	}
	for _, size := range slices.Sorted(maps.Keys(r.HugePages)) {
		res.HugepageLimits = append(res.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: size, Limit: r.HugePages[size]})
	}
	return res
}

// toNRI converts requested resources to NRI resources.
func toNRI(r scenario.Resources) *api.LinuxResources {
	return api.FromOCILinuxResources(toOCI(r), nil)
}

// newSpec makes the OCI spec that containerd makes for a container's request. The spec also has the annotations, mounts
// and namespaces that containerd adds to every container, so that plugins see a realistic container.
func newSpec(c *container, cgroupsPath string) *specs.Spec {
	s := &specs.Spec{
		Version:  specs.Version,
		Hostname: c.pod.pod.Name,
		Process:  &specs.Process{Args: slices.Clone(c.request.Args), Cwd: "/"},
		Root:     &specs.Root{Path: "rootfs"},
		Annotations: map[string]string{
			"io.kubernetes.cri.container-name":    c.request.Name,
			"io.kubernetes.cri.container-type":    "container",
			"io.kubernetes.cri.sandbox-id":        c.pod.id,
			"io.kubernetes.cri.sandbox-name":      c.pod.pod.Name,
			"io.kubernetes.cri.sandbox-namespace": c.pod.pod.Namespace,
			"io.kubernetes.cri.sandbox-uid":       c.pod.pod.UID,
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: cgroupsPath,
			Resources:   toOCI(c.request.Resources),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
			},
		},
	}
	maps.Copy(s.Annotations, c.request.Annotations)
	if len(s.Process.Args) == 0 {
		s.Process.Args = []string{"/" + c.request.Name}
	}
	s.Process.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=" + c.pod.pod.Name}
	for _, name := range slices.Sorted(maps.Keys(c.request.Env)) {
		s.Process.Env = append(s.Process.Env, name+"="+c.request.Env[name])
	}
	return s
}

// addToSpec adds to a spec the mounts, devices, unified values and OOM score of the request. It takes the type and the
// numbers of a device from the host, and returns an error if the host does not have the device.
func (q *Request) addToSpec(s *specs.Spec, host *lifecycle.Host) error {
	s.Mounts = append(s.Mounts, q.Mounts...)
	for _, name := range q.Devices {
		name, inContainer, hasBoth := strings.Cut(name, ":") // HOST or HOST:CONTAINER
		if host == nil || host.Devices[name].Path == "" {
			return fmt.Errorf("lstat %s: no such file or directory", name)
		}
		n := host.Devices[name]
		if !hasBoth {
			inContainer = name
		}
		d := specs.LinuxDevice{Path: inContainer, Type: n.Type, Major: n.Major, Minor: n.Minor}
		s.Linux.Devices = append(s.Linux.Devices, d)
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: d.Type, Major: &d.Major, Minor: &d.Minor, Access: "rwm"})
	}
	s.Linux.Resources.Unified = maps.Clone(q.Unified)
	s.Process.OOMScoreAdj = q.OOMScoreAdj
	return nil
}

// nri returns the container as NRI reports it. The annotations are those of the stored spec, so that plugins get back
// the annotations that they added at the creation, such as the agent's record.
func (c *container) nri() *api.Container {
	n := &api.Container{
		Id: c.id, PodSandboxId: c.pod.id, Name: c.request.Name, State: c.state,
		Labels: map[string]string{
			"io.kubernetes.container.name": c.request.Name,
			"io.kubernetes.pod.name":       c.pod.pod.Name,
			"io.kubernetes.pod.namespace":  c.pod.pod.Namespace,
			"io.kubernetes.pod.uid":        c.pod.pod.UID,
		},
		Annotations: maps.Clone(c.spec.Annotations),
		Args:        slices.Clone(c.spec.Process.Args),
		Env:         slices.Clone(c.spec.Process.Env),
		Mounts:      api.FromOCIMounts(c.spec.Mounts),
		Hooks:       api.FromOCIHooks(c.spec.Hooks),
		Linux: &api.LinuxContainer{
			Namespaces:  api.FromOCILinuxNamespaces(c.spec.Linux.Namespaces),
			Devices:     api.FromOCILinuxDevices(c.spec.Linux.Devices),
			Resources:   api.FromOCILinuxResources(c.spec.Linux.Resources, nil),
			OomScoreAdj: api.Int(c.spec.Process.OOMScoreAdj),
			CgroupsPath: c.spec.Linux.CgroupsPath,
			IoPriority:  api.FromOCILinuxIOPriority(c.spec.Process.IOPriority),
			Sysctl:      maps.Clone(c.spec.Linux.Sysctl),
			NetDevices:  api.FromOCILinuxNetDevices(c.spec.Linux.NetDevices),
			Scheduler:   api.FromOCILinuxScheduler(c.spec.Process.Scheduler),
			Rdt:         rdtToNRI(c.spec.Linux.IntelRdt),
		},
		CreatedAt: int64(c.number) * 1e9,
	}
	maps.Copy(n.Labels, c.request.Labels)
	if c.state == api.ContainerState_CONTAINER_RUNNING {
		n.Pid, n.StartedAt = uint32(2000+c.number), n.CreatedAt+1
	}
	for _, l := range c.spec.Process.Rlimits {
		n.Rlimits = append(n.Rlimits, &api.POSIXRlimit{Type: l.Type, Hard: l.Hard, Soft: l.Soft})
	}
	for _, name := range c.cdi {
		n.CDIDevices = append(n.CDIDevices, &api.CDIDevice{Name: name})
	}
	return n
}

// rdtToNRI converts the intelRdt section of a spec to NRI's form.
func rdtToNRI(r *specs.LinuxIntelRdt) *api.LinuxRdt {
	if r == nil {
		return nil
	}
	return &api.LinuxRdt{ClosId: api.String(r.ClosID), Schemata: api.RepeatedString(r.Schemata), EnableMonitoring: api.Bool(r.EnableMonitoring)}
}
