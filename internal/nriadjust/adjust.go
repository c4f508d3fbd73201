package nriadjust

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Adjust applies an NRI plugin's adjustment to the OCI spec of a container. It returns the fields that it does not
// apply, by their names in api.proto of NRI. A nil adjustment changes nothing.
func Adjust(s *specs.Spec, a *api.ContainerAdjustment) (unapplied []string) {
	if a == nil {
		return nil
	}
	addMissingSections(s)
	adjustMap(&s.Annotations, a.GetAnnotations())
	s.Process.Env = adjustEnv(s.Process.Env, a.GetEnv())
	if args := a.GetArgs(); len(args) > 0 {
		s.Process.Args = slices.Clone(args)
		if args[0] == "" { // not an argument: it means that these arguments replace the arguments of earlier plugins
			s.Process.Args = s.Process.Args[1:]
		}
	}
	adjustHooks(s, a.GetHooks())
	if len(a.GetCDIDevices()) > 0 {
		unapplied = append(unapplied, "CDI_devices")
	}
	adjustMounts(s, a.GetMounts())
	for _, r := range a.GetRlimits() {
		s.Process.Rlimits = slices.DeleteFunc(s.Process.Rlimits, func(o specs.POSIXRlimit) bool { return o.Type == r.GetType() })
		s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: r.GetType(), Hard: r.GetHard(), Soft: r.GetSoft()})
	}
	adjustLinux(s, a.GetLinux())
	r := a.GetLinux().GetResources()
	if r.GetBlockioClass() != nil {
		unapplied = append(unapplied, "linux.resources.blockio_class")
	}
	if r.GetRdtClass() != nil {
		unapplied = append(unapplied, "linux.resources.rdt_class")
	}
	if r.GetMemory().GetKernel() != nil { // the kernel dropped this limit in 5.16, and runc ignores it and kernel_tcp
		unapplied = append(unapplied, "linux.resources.memory.kernel")
	}
	if r.GetMemory().GetKernelTcp() != nil {
		unapplied = append(unapplied, "linux.resources.memory.kernel_tcp")
	}
	return unapplied
}

// addMissingSections adds the sections of a spec that adjustments change, if they are missing.
func addMissingSections(s *specs.Spec) {
	if s.Process == nil {
		s.Process = &specs.Process{}
	}
	if s.Linux == nil {
		s.Linux = &specs.Linux{}
	}
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
}

// adjustLinux applies the Linux section of an adjustment.
func adjustLinux(s *specs.Spec, l *api.LinuxContainerAdjustment) {
	if l == nil {
		return
	}
	adjustDevices(s, l.GetDevices())
	if p := l.GetCgroupsPath(); p != "" {
		s.Linux.CgroupsPath = p
	}
	if o := l.GetOomScoreAdj(); o != nil {
		s.Process.OOMScoreAdj = o.Get()
	}
	if p := l.GetIoPriority(); p != nil {
		s.Process.IOPriority = p.ToOCI()
	}
	if p := l.GetScheduler(); p != nil {
		s.Process.Scheduler = p.ToOCI()
	}
	adjustNamespaces(s, l.GetNamespaces())
	adjustMap(&s.Linux.Sysctl, l.GetSysctl())
	for host, d := range l.GetNetDevices() {
		key, remove := api.IsMarkedForRemoval(host)
		if s.Linux.NetDevices == nil {
			s.Linux.NetDevices = map[string]specs.LinuxNetDevice{}
		}
		delete(s.Linux.NetDevices, key)
		if !remove {
			s.Linux.NetDevices[key] = d.ToOCI()
		}
	}
	if p := l.GetSeccompPolicy(); p != nil {
		s.Linux.Seccomp = convertSeccomp(p)
	}
	if p := l.GetMemoryPolicy(); p != nil {
		s.Linux.MemoryPolicy = p.ToOCI()
	}
	adjustRDT(s.Linux, l.GetRdt())
	adjustResources(s.Linux.Resources, l.GetResources())
}

// adjustRDT sets the RDT values that the adjustment has. An empty RDT section changes nothing, because the NRI library
// always adds such a section.
func adjustRDT(into *specs.Linux, from *api.LinuxRdt) {
	if from.GetRemove() {
		into.IntelRdt = nil
	}
	id, schemata, monitor := from.GetClosId(), from.GetSchemata(), from.GetEnableMonitoring()
	if id == nil && schemata == nil && monitor == nil {
		return
	}
	if into.IntelRdt == nil {
		into.IntelRdt = &specs.LinuxIntelRdt{}
	}
	if id != nil {
		into.IntelRdt.ClosID = id.GetValue()
	}
	if schemata != nil {
		into.IntelRdt.Schemata = slices.Clone(schemata.GetValue())
	}
	if monitor != nil {
		into.IntelRdt.EnableMonitoring = monitor.GetValue()
	}
}

// convertSeccomp converts a seccomp policy to the form of the OCI spec. It keeps the default errno, which the NRI
// library's own conversion drops.
func convertSeccomp(p *api.LinuxSeccomp) *specs.LinuxSeccomp {
	out := &specs.LinuxSeccomp{
		DefaultAction: specs.LinuxSeccompAction(p.GetDefaultAction()), ListenerPath: p.GetListenerPath(),
		ListenerMetadata: p.GetListenerMetadata(), Syscalls: api.ToOCILinuxSyscalls(p.GetSyscalls()),
	}
	if errno := p.GetDefaultErrno(); errno != nil {
		out.DefaultErrnoRet = new(uint(errno.GetValue()))
	}
	for _, arch := range p.GetArchitectures() {
		out.Architectures = append(out.Architectures, specs.Arch(arch))
	}
	for _, flag := range p.GetFlags() {
		out.Flags = append(out.Flags, specs.LinuxSeccompFlag(flag))
	}
	return out
}

// adjustMap changes the entries of a map. It first removes the keys that are marked for removal, then sets keys. So a
// key that the adjustment both removes and sets is set.
func adjustMap(into *map[string]string, change map[string]string) {
	if *into == nil && len(change) > 0 {
		*into = map[string]string{}
	}
	for k := range change {
		if key, remove := api.IsMarkedForRemoval(k); remove {
			delete(*into, key)
		}
	}
	for k, v := range change {
		if _, remove := api.IsMarkedForRemoval(k); !remove {
			(*into)[k] = v
		}
	}
}

// adjustEnv sets and removes environment variables.
func adjustEnv(env []string, change []*api.KeyValue) []string {
	for _, e := range change {
		name, remove := api.IsMarkedForRemoval(e.GetKey())
		at := slices.IndexFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
		switch {
		case remove && at >= 0:
			env = slices.Delete(env, at, at+1)
		case remove:
		case at >= 0:
			env[at] = e.ToOCI()
		default:
			env = append(env, e.ToOCI())
		}
	}
	return env
}

// adjustHooks adds OCI hooks.
func adjustHooks(s *specs.Spec, h *api.Hooks) {
	if h == nil {
		return
	}
	if s.Hooks == nil {
		s.Hooks = &specs.Hooks{}
	}
	for _, kind := range []struct {
		into *[]specs.Hook
		from []*api.Hook
	}{
		{&s.Hooks.Prestart, h.GetPrestart()}, //nolint:staticcheck // Prestart is deprecated, but plugins still use it
		{&s.Hooks.CreateRuntime, h.GetCreateRuntime()},
		{&s.Hooks.CreateContainer, h.GetCreateContainer()},
		{&s.Hooks.StartContainer, h.GetStartContainer()},
		{&s.Hooks.Poststart, h.GetPoststart()},
		{&s.Hooks.Poststop, h.GetPoststop()},
	} {
		for _, hook := range kind.from {
			*kind.into = append(*kind.into, hook.ToOCI())
		}
	}
}

// adjustMounts adds, replaces and removes mounts by their destination. It then sorts the mounts, so that each mount
// comes after the mounts of its parent directories.
func adjustMounts(s *specs.Spec, change []*api.Mount) {
	for _, m := range change {
		dest, remove := api.IsMarkedForRemoval(m.GetDestination())
		s.Mounts = slices.DeleteFunc(s.Mounts, func(o specs.Mount) bool { return path.Clean(o.Destination) == path.Clean(dest) })
		if !remove {
			s.Mounts = append(s.Mounts, m.ToOCI(nil))
		}
	}
	depth := func(m specs.Mount) int { return strings.Count(path.Clean(m.Destination), "/") }
	slices.SortStableFunc(s.Mounts, func(a, b specs.Mount) int { return cmp.Compare(depth(a), depth(b)) })
}

// adjustDevices adds, replaces and removes devices by their path. For each added device, it also allows the access in
// the device cgroup.
func adjustDevices(s *specs.Spec, change []*api.LinuxDevice) {
	for _, d := range change {
		name, remove := api.IsMarkedForRemoval(d.GetPath())
		s.Linux.Devices = slices.DeleteFunc(s.Linux.Devices, func(o specs.LinuxDevice) bool { return o.Path == name })
		if remove {
			continue
		}
		o := d.ToOCI()
		s.Linux.Devices = append(s.Linux.Devices, o)
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: o.Type, Major: &o.Major, Minor: &o.Minor, Access: "rwm"})
	}
}

// adjustNamespaces adds, replaces and removes namespaces by their type.
func adjustNamespaces(s *specs.Spec, change []*api.LinuxNamespace) {
	for _, n := range change {
		kind, remove := api.IsMarkedForRemoval(n.GetType())
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(o specs.LinuxNamespace) bool { return string(o.Type) == kind })
		if !remove {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(kind), Path: n.GetPath()})
		}
	}
}

// adjustResources sets each resource that the adjustment has, and does not change the other resources.
func adjustResources(into *specs.LinuxResources, from *api.LinuxResources) {
	if from == nil {
		return
	}
	o := from.ToOCI()
	if from.GetCpu() != nil {
		adjustCPU(into, o.CPU)
	}
	if from.GetMemory() != nil {
		if into.Memory == nil {
			into.Memory = &specs.LinuxMemory{}
		}
		adjustMemory(into.Memory, o.Memory)
	}
	for _, h := range o.HugepageLimits {
		into.HugepageLimits = slices.DeleteFunc(into.HugepageLimits, func(x specs.LinuxHugepageLimit) bool { return x.Pagesize == h.Pagesize })
		into.HugepageLimits = append(into.HugepageLimits, h)
	}
	if len(o.Unified) > 0 && into.Unified == nil {
		into.Unified = map[string]string{}
	}
	maps.Copy(into.Unified, o.Unified)
	into.Devices = append(into.Devices, o.Devices...)
	if o.Pids != nil {
		into.Pids = o.Pids
	}
}

// adjustCPU sets each CPU resource that the adjustment has.
func adjustCPU(res *specs.LinuxResources, from *specs.LinuxCPU) {
	if res.CPU == nil {
		res.CPU = &specs.LinuxCPU{}
	}
	into := res.CPU
	setValue(&into.Shares, from.Shares)
	setValue(&into.Quota, from.Quota)
	setValue(&into.Period, from.Period)
	setValue(&into.RealtimeRuntime, from.RealtimeRuntime)
	setValue(&into.RealtimePeriod, from.RealtimePeriod)
	into.Cpus = cmp.Or(from.Cpus, into.Cpus)
	into.Mems = cmp.Or(from.Mems, into.Mems)
}

// adjustMemory sets each memory resource that the adjustment has.
func adjustMemory(into, from *specs.LinuxMemory) {
	setValue(&into.Limit, from.Limit)
	setValue(&into.Reservation, from.Reservation)
	setValue(&into.Swap, from.Swap)
	setValue(&into.Swappiness, from.Swappiness)
	setValue(&into.DisableOOMKiller, from.DisableOOMKiller)
	setValue(&into.UseHierarchy, from.UseHierarchy)
}

// setValue sets a value of the spec, if the adjustment has this value.
func setValue[T any](into **T, from *T) {
	if from != nil {
		*into = new(*from)
	}
}
