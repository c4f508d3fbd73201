package nri

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// processFields are the rows for attributes of a container's first process, and for the sysctls, network interfaces,
// OCI hooks, cgroup mount and resctrl settings of the container. NRI can set them only at creation.
var processFields = []settableField{
	{
		field: lifecycle.ProcessLimit, proto: "rlimits[]", create: addRlimit,
		note: "if the container already has a limit of this type, containerd appends a second one, and OCI runtimes apply the last one",
	},
	{
		field: lifecycle.ProcessIO, proto: "linux.io_priority", create: setIOPriority,
		note: "runc applies it since version 1.2",
	},
	{
		field: lifecycle.ProcessSched, proto: "linux.scheduler", create: setScheduler,
		note: "runc applies it since version 1.2; a scheduler that the kernel refuses fails the creation",
	},
	{
		field: lifecycle.SysctlEntry, proto: "linux.sysctl{}", create: setSysctl,
		note: "not sent for a namespace that the container shares with the host, because OCI runtimes then fail the container",
	},
	{
		field: lifecycle.NetDevice, proto: "linux.net_devices{}", create: addNetDevice,
		note: "runc applies it since version 1.4; not sent if the container shares the host's network",
	},
	{
		field: lifecycle.InjectedHook, proto: "hooks", create: addHook,
		note: "hooks are added after the container's own hooks, and none can be removed; iSulad supports only prestart, poststart and poststop",
	},
	{
		field: lifecycle.CgroupMount, proto: "mounts[].options[]", create: setCgroupMount,
		note: "mounts cgroups without the option ro; not sent if the container shares the host's cgroup namespace",
	},
	{
		field: lifecycle.IntelRDT, proto: "linux.rdt", create: setIntelRDT,
		note: "OCI runtimes fail a container for it if the node has no resctrl",
	},
	{
		field: lifecycle.MemPolicy, proto: "linux.memory_policy", create: setMemoryPolicy, adjustOnlySince: "0.12",
		note: "runtimes do not report it; runc applies it since version 1.4, and older versions ignore it",
	},
}

// addRlimit sets an rlimit. It returns false if the value is not valid.
func addRlimit(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	r, ok := lifecycle.ParseRlimit(v.Key, v.Text)
	if ok {
		a.AddRlimit(r.Type, r.Hard, r.Soft)
	}
	return ok
}

// setIOPriority sets the I/O priority. It returns false if the value is not valid, or if NRI does not know the class.
func setIOPriority(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	p, ok := lifecycle.ParseIOPriority(v.Text)
	class, known := api.IOPrioClass_value[p.Class]
	if !ok || !known {
		return false
	}
	a.SetLinuxIOPriority(&api.LinuxIOPriority{Class: api.IOPrioClass(class), Priority: p.Priority})
	return true
}

// setScheduler sets the CPU scheduling. It returns false if the value is not valid, or if NRI does not know a name in
// it.
func setScheduler(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	s, ok := lifecycle.ParseScheduler(v.Text)
	policy, known := api.LinuxSchedulerPolicy_value[s.Policy]
	flags, all := enumValues[api.LinuxSchedulerFlag](s.Flags, api.LinuxSchedulerFlag_value)
	if !ok || !known || !all {
		return false
	}
	a.SetLinuxScheduler(&api.LinuxScheduler{
		Policy: api.LinuxSchedulerPolicy(policy), Nice: s.Nice, Priority: s.Priority, Flags: flags,
		Runtime: s.Runtime, Deadline: s.Deadline, Period: s.Period,
	})
	return true
}

// setMemoryPolicy sets the memory policy. It returns false if the value is not valid, or if NRI does not know a name in
// it.
func setMemoryPolicy(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	m, ok := lifecycle.ParseMemoryPolicy(v.Text)
	mode, known := api.MpolMode_value[m.Mode]
	flags, all := enumValues[api.MpolFlag](m.Flags, api.MpolFlag_value)
	if !ok || !known || !all {
		return false
	}
	a.SetLinuxMemoryPolicy(api.MpolMode(mode), m.Nodes, flags...)
	return true
}

// enumValues returns the enum values of the names. The result all is false if a name is unknown.
func enumValues[E ~int32](names []string, values map[string]int32) (out []E, all bool) {
	for _, name := range names {
		n, known := values[name]
		if !known {
			return nil, false
		}
		out = append(out, E(n))
	}
	return out, true
}

// setSysctl sets a sysctl. It returns false for a sysctl of a namespace that the container does not own.
func setSysctl(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool {
	if !isUsableKey(v.Key) || !ownsNamespace(had, namespaceOf(v.Key)) {
		return false
	}
	a.SetLinuxSysctl(v.Key, v.Text)
	return true
}

// addNetDevice moves the network interface v.Key of the host into the container, with the name v.Text. It returns false
// if the container has no network namespace of its own.
func addNetDevice(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool {
	if !isUsableKey(v.Key) || v.Text == "" || !ownsNamespace(had, "network") {
		return false
	}
	a.AddLinuxNetDevice(v.Key, &api.LinuxNetDevice{Name: v.Text})
	return true
}

// addHook adds an OCI hook. It returns false if the value is not valid.
func addHook(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	stage, h, ok := lifecycle.ParseOCIHook(v.Key, v.Text)
	if !ok {
		return false
	}
	hook := &api.Hook{Path: h.Path, Args: h.Args, Env: h.Env}
	if h.Timeout > 0 {
		hook.Timeout = api.Int(h.Timeout)
	}
	var all api.Hooks
	list := map[string]*[]*api.Hook{
		"prestart": &all.Prestart, "createRuntime": &all.CreateRuntime, "createContainer": &all.CreateContainer,
		"startContainer": &all.StartContainer, "poststart": &all.Poststart, "poststop": &all.Poststop,
	}[stage]
	*list = append(*list, hook)
	a.AddHooks(&all)
	return true
}

// cgroupRoot is the path at which containers mount the cgroup hierarchy.
const cgroupRoot = "/sys/fs/cgroup"

// setCgroupMount makes the container's mount of the cgroup hierarchy writable. It returns false if the container has no
// such mount or no cgroup namespace of its own, or if v.Text is not "rw".
func setCgroupMount(a *api.ContainerAdjustment, had *api.Container, v lifecycle.Value) bool {
	own := slices.ContainsFunc(had.GetLinux().GetNamespaces(), func(n *api.LinuxNamespace) bool { return n.GetType() == "cgroup" && n.GetPath() == "" })
	at := slices.IndexFunc(had.GetMounts(), func(m *api.Mount) bool { return m.GetDestination() == cgroupRoot })
	if !own || at < 0 || v.Text != "rw" {
		return false
	}
	m := had.GetMounts()[at]
	options := slices.DeleteFunc(slices.Clone(m.GetOptions()), func(o string) bool { return o == "ro" || o == "rw" })
	a.RemoveMount(cgroupRoot)
	a.AddMount(&api.Mount{Destination: cgroupRoot, Type: m.GetType(), Source: m.GetSource(), Options: append(options, "rw")})
	return true
}

// setIntelRDT sets one of the resctrl settings: v.Key is "closid", "schemata" or "monitoring".
func setIntelRDT(a *api.ContainerAdjustment, _ *api.Container, v lifecycle.Value) bool {
	switch v.Key {
	case "closid":
		a.SetLinuxRDTClosID(v.Text)
	case "schemata":
		a.SetLinuxRDTSchemata(strings.Split(v.Text, ","))
	case "monitoring":
		a.SetLinuxRDTEnableMonitoring(v.Text == "true")
	default:
		return false
	}
	return true
}

// namespaceOf returns the kind of namespace to which a sysctl belongs, or "" if it belongs to no namespace. The rules
// are the same as in runc 1.2 (function sysctl in libcontainer/configs/validate).
func namespaceOf(name string) string {
	switch {
	case strings.HasPrefix(name, "net."):
		return "network"
	case strings.HasPrefix(name, "fs.mqueue."), slices.Contains([]string{
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	}, name):
		return "ipc"
	case name == "kernel.domainname", name == "kernel.hostname":
		return "uts"
	}
	return ""
}

// ownsNamespace reports whether a container has its own namespace of a kind. If the runtime reports no namespaces,
// ownsNamespace assumes that the container has its own.
func ownsNamespace(had *api.Container, kind string) bool {
	all := had.GetLinux().GetNamespaces()
	return kind != "" && (len(all) == 0 || slices.ContainsFunc(all, func(n *api.LinuxNamespace) bool { return n.GetType() == kind }))
}
