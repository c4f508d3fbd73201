package hook

import (
	"reflect"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Options has the configuration of each hook, in the order in which the engine calls the hooks. Options is also
// the list of all hooks: a new hook needs its own file, and one field here.
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
	// SchedulingClass tunes the hook of scheduling classes.
	SchedulingClass SchedulingClassOptions `json:"schedulingClass"`
	// MemoryPolicy tunes the hook of NUMA memory policies.
	MemoryPolicy MemoryPolicyOptions `json:"memoryPolicy"`
	// MemoryQoS tunes the hook that lets the kernel swap a part of containers' memory.
	MemoryQoS MemoryQoSOptions `json:"memoryQoS"`
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
	// IntelRDT tunes the hook that sets intelRdt in the OCI spec.
	IntelRDT IntelRDTOptions `json:"intelRDT"`
	// Preemption tunes the preemption hook.
	Preemption PreemptionOptions `json:"preemption"`
	// Burst tunes the CPU burst hook.
	Burst BurstOptions `json:"burst"`
	// Partition tunes the partition hook.
	Partition PartitionOptions `json:"partition"`
	// CPUEnv tunes the hook that sets environment variables with CPUs.
	CPUEnv CPUEnvOptions `json:"cpuEnv"`
}

// Node gives hooks the facts about the node that Make needs.
type Node interface {
	// Probe reports whether the node has a feature, by its name in Info.KernelFeatures.
	Probe(feature string) lifecycle.Finding
	// Host returns the node's devices.
	Host() lifecycle.Host
	// Device returns the device of the node at a path below /dev.
	Device(path string) (d lifecycle.Device, found bool)
	HostFiles
	// Unified reports whether cgroups are of version 2. It also returns true if the version is
	// not known.
	Unified() bool
}

// HostFiles reads and makes the files of the host that hooks need.
type HostFiles interface {
	// HookFiles reads the files that define OCI hooks in these directories. It returns the files in the order of their
	// names. A file replaces a file of the same name in an earlier directory.
	HookFiles(directories []string) []lifecycle.HookFile
	// MakeSharedDir makes a directory of the host that containers of any user can write to. It
	// does nothing if the agent must not change the host.
	MakeSharedDir(path string) error
}

// hookMaker is a section of the configuration that makes a hook for a node. A section without the method Make is the
// hook itself.
type hookMaker interface {
	// Make makes the hook for a node. The parameter all has the options of all hooks.
	Make(n Node, all *Options) (Hook, error)
}

// allFeaturesMaker is a section of the configuration whose zero value leaves features of its hook disabled. The method
// WithAllFeatures makes a hook with these features, for the list of all hooks (Catalogue).
type allFeaturesMaker interface {
	// WithAllFeatures returns the hook with every feature enabled.
	WithAllFeatures() Hook
}

// section is one field of Options, which is the configuration of one hook.
type section struct {
	key     string // the key in the configuration, which is also the name of the hook
	enabled bool
	options any // the value of the field
}

// sections returns the sections of all hooks, in the order in which the engine calls the hooks.
func (o *Options) sections() []section {
	var all []section
	for f, v := range reflect.ValueOf(o).Elem().Fields() {
		all = append(all, section{f.Tag.Get("json"), v.FieldByName("Enabled").Bool(), v.Interface()})
	}
	return all
}

// hook returns the section's hook for a node. The parameter all has the options of all hooks.
func (s section) hook(n Node, all *Options) (Hook, error) {
	if m, is := s.options.(hookMaker); is {
		return m.Make(n, all)
	}
	h, _ := s.options.(Hook) // TestSections checks that each section is a hook
	return h, nil
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
		h, err := s.hook(n, o)
		if err != nil {
			return nil, err
		}
		hooks = append(hooks, h)
	}
	return hooks, nil
}

// Catalogue returns the Info of every hook with all features enabled, in the order in which the engine
// calls hooks.
func Catalogue() []Info { return new(Options).Catalogue() }

// Catalogue returns the Info of every hook with these options. The options determine the kernel features that a hook
// needs. For a hook that is disabled, or that cannot be made with these options, Catalogue returns the Info of the hook
// with all features enabled.
func (o *Options) Catalogue() []Info {
	var infos []Info
	for _, s := range o.sections() {
		if h, err := s.hook(allFeaturesNode{}, o); s.enabled && err == nil {
			infos = append(infos, h.Info())
		} else {
			infos = append(infos, s.info())
		}
	}
	return infos
}

// info returns the Info of the section's hook with all features enabled.
func (s section) info() Info {
	if all, is := s.options.(allFeaturesMaker); is {
		return all.WithAllFeatures().Info()
	}
	unset := section{options: reflect.Zero(reflect.TypeOf(s.options)).Interface()}
	h, _ := unset.hook(allFeaturesNode{}, new(Options)) // TestSections checks that there is no error
	return h.Info()
}

// allFeaturesNode is a node with every feature and no device.
type allFeaturesNode struct{}

func (allFeaturesNode) Probe(string) lifecycle.Finding {
	return lifecycle.Finding{Support: lifecycle.Supported}
}
func (allFeaturesNode) Host() lifecycle.Host { return lifecycle.Host{} }
func (allFeaturesNode) Unified() bool        { return true }
func (allFeaturesNode) Device(string) (d lifecycle.Device, found bool) {
	return d, false
}
func (allFeaturesNode) HookFiles([]string) []lifecycle.HookFile { return nil }
func (allFeaturesNode) MakeSharedDir(string) error              { return nil }
