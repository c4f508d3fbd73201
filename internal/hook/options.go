package hook

import (
	"reflect"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Options has the configuration of each hook, in the order in which hooks are asked. It is the
// list of hooks: a new hook needs its own file and one field here.
type Options struct {
	// CPUSet tunes the cpuset hook.
	CPUSet CPUSetOptions `json:"cpuset"`
	// Batch tunes the batch resource hook.
	Batch BatchOptions `json:"batch"`
	// Normalization tunes the CPU normalization hook.
	Normalization NormalizationOptions `json:"normalization"`
	// GroupIdentity tunes the group identity hook.
	GroupIdentity GroupIdentityOptions `json:"groupIdentity"`
	// OOMScore tunes the OOM score hook.
	OOMScore OOMScoreOptions `json:"oomScore"`
	// GPU tunes the GPU environment hook.
	GPU GPUOptions `json:"gpu"`
	// RDMA tunes the RDMA hook.
	RDMA RDMAOptions `json:"rdma"`
	// Hugepages tunes the huge page hook.
	Hugepages HugepagesOptions `json:"hugepages"`
	// BlockIO tunes the block I/O hook.
	BlockIO BlockIOOptions `json:"blockIO"`
	// RDT tunes the hook of caches and memory bandwidth.
	RDT RDTOptions `json:"rdt"`
	// CoreSched tunes the core scheduling hook.
	CoreSched CoreSchedOptions `json:"coreSched"`
	// Ulimits tunes the hook of process limits.
	Ulimits UlimitsOptions `json:"ulimits"`
	// IOPriority tunes the hook of I/O priorities.
	IOPriority IOPriorityOptions `json:"ioPriority"`
	// Scheduler tunes the hook of scheduling policies.
	Scheduler SchedulerOptions `json:"scheduler"`
	// SchedulingClass tunes the hook of the scheduling classes of balloon types.
	SchedulingClass SchedulingClassOptions `json:"schedulingClass"`
	// MemoryPolicy tunes the hook of NUMA memory policies.
	MemoryPolicy MemoryPolicyOptions `json:"memoryPolicy"`
	// Sysctl tunes the hook of kernel parameters.
	Sysctl SysctlOptions `json:"sysctl"`
	// DeviceNodes tunes the hook of device nodes.
	DeviceNodes DeviceNodesOptions `json:"deviceNodes"`
	// Mounts tunes the hook of mounts.
	Mounts MountsOptions `json:"mounts"`
	// CDIDevices tunes the hook of CDI devices.
	CDIDevices CDIDevicesOptions `json:"cdiDevices"`
	// NetworkDevices tunes the hook of network interfaces.
	NetworkDevices NetworkDevicesOptions `json:"networkDevices"`
	// OCIHooks tunes the hook that injects OCI hooks.
	OCIHooks OCIHooksOptions `json:"ociHooks"`
	// WritableCgroups tunes the hook of writable cgroups.
	WritableCgroups WritableCgroupsOptions `json:"writableCgroups"`
	// IntelRDT tunes the hook of intelRdt.
	IntelRDT IntelRDTOptions `json:"intelRDT"`
	// Preemption tunes the preemption hook.
	Preemption PreemptionOptions `json:"preemption"`
	// Burst tunes the CPU burst hook.
	Burst BurstOptions `json:"burst"`
	// Partition tunes the partition hook.
	Partition PartitionOptions `json:"partition"`
	// CPUEnv tunes the hook that tells containers of their CPUs.
	CPUEnv CPUEnvOptions `json:"cpuEnv"`
}

// Node gives hooks the facts about the node that they need when they are made.
type Node interface {
	// Probe reports whether the node has a feature, by its name in Info.Kernel.
	Probe(feature string) lifecycle.Finding
	// Host returns the node's devices.
	Host() lifecycle.Host
	// Device looks for one device of the node by its path below /dev.
	Device(path string) (d lifecycle.Device, found bool)
	HostFiles
	// Unified reports whether cgroups are of version 2. It also returns true if the version is
	// not known.
	Unified() bool
}

// HostFiles are files of the host that hooks need.
type HostFiles interface {
	// HookFiles reads the files of directories of OCI hooks, in the order of their names. A
	// file takes the place of one of the same name in an earlier directory.
	HookFiles(directories []string) []lifecycle.HookFile
	// MakeShared makes a directory of the host that containers of any user can write to. It
	// does nothing if the agent must not change the host.
	MakeShared(path string) error
}

// hookSection is the configuration section of one hook.
type hookSection interface {
	// AllOn is the hook with everything switched on.
	AllOn() Hook
	// Make makes the hook for a node; all has the options of every hook.
	Make(n Node, all *Options) (Hook, error)
}

// section is one field of Options.
type section struct {
	key     string
	enabled bool
	hookSection
}

func (o *Options) sections() []section {
	var all []section
	for f, v := range reflect.ValueOf(o).Elem().Fields() {
		m, _ := v.Interface().(hookSection) // TestSections checks that all implement it
		all = append(all, section{f.Tag.Get("json"), v.FieldByName("Enabled").Bool(), m})
	}
	return all
}

// Enabled reports whether a hook is switched on.
func (o *Options) Enabled(name string) bool {
	return slices.ContainsFunc(o.sections(), func(s section) bool { return s.key == name && s.enabled })
}

// Hooks makes the hooks that are switched on.
func (o *Options) Hooks(n Node) ([]Hook, error) {
	var hooks []Hook
	for _, s := range o.sections() {
		if !s.enabled {
			continue
		}
		h, err := s.Make(n, o)
		if err != nil {
			return nil, err
		}
		hooks = append(hooks, h)
	}
	return hooks, nil
}

// Catalogue returns the Info of every hook with everything switched on. The order is that of
// status and docs: the order in which the engine asks hooks, except that gpu comes before
// oomScore.
func Catalogue() []Info {
	var infos []Info
	for _, s := range new(Options).listed() {
		infos = append(infos, s.AllOn().Info())
	}
	return infos
}

// Catalogue is the function Catalogue for the options in force, since the kernel features that a
// hook needs depend on them. A hook that is switched off, or that cannot be made with these
// options, has the Info of the function.
func (o *Options) Catalogue() []Info {
	var infos []Info
	for _, s := range o.listed() {
		h, err := s.Make(allFeatures{}, o)
		if !s.enabled || err != nil {
			h = s.AllOn()
		}
		infos = append(infos, h.Info())
	}
	return infos
}

// allFeatures is a node with every feature and no device.
type allFeatures struct{}

func (allFeatures) Probe(string) lifecycle.Finding {
	return lifecycle.Finding{Support: lifecycle.Supported}
}
func (allFeatures) Host() lifecycle.Host { return lifecycle.Host{} }
func (allFeatures) Unified() bool        { return true }
func (allFeatures) Device(string) (d lifecycle.Device, found bool) {
	return d, false
}
func (allFeatures) HookFiles([]string) []lifecycle.HookFile { return nil }
func (allFeatures) MakeShared(string) error                 { return nil }

// listed returns the sections in the order of Catalogue.
func (o *Options) listed() []section {
	all := o.sections()
	place := func(key string) int { return slices.IndexFunc(all, func(s section) bool { return s.key == key }) }
	if i, j := place("oomScore"), place("gpu"); i >= 0 && j == i+1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}
