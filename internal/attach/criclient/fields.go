package criclient

import (
	"maps"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Row describes, for the docs, one field of the CRI's requests about pods and containers. Package criclient leaves
// Setting, Create and Update empty. The code that sends the agent's values in requests sets these three fields.
type Row struct {
	Proto     string // e.g. ContainerConfig.linux.resources.cpu_shares
	Lifecycle string // e.g. Container.Resources.CPU.Shares; empty if the field is not converted
	Setting   string // name of the lifecycle.Field whose values set this field in requests, if any
	Create    bool   // the agent can set the field in CreateContainer
	Update    bool   // the agent can set the field in UpdateContainerResources
	Note      string // a remark, or why the field is not converted
}

// row is one row of a conversion table. If convert is nil, the field is not converted, and note says why. If proto ends
// in ".", it names a message, and the row is for all fields of this message.
type row[P, L any] struct {
	proto, lifecycle string // the names of the field in the CRI and in package lifecycle
	convert          func(p *P, l *L)
	note             string
}

// convert sets the fields of l to the values in the message p. If p is nil, it does nothing.
func convert[P, L any](table []row[P, L], p *P, l *L) {
	if p == nil {
		return
	}
	for i := range table {
		if table[i].convert != nil {
			table[i].convert(p, l)
		}
	}
}

// nonZero converts a number of the CRI, where 0 means unset.
func nonZero[T int64 | uint64](v T) lifecycle.Opt[T] { return lifecycle.Opt[T]{V: v, Set: v != 0} }

// relayedUnchanged is the note for fields that the agent forwards to the runtime without reading them.
const relayedUnchanged = "relayed unchanged; no policy uses it"

// Short names of the types in the tables below.
type (
	criResources = cri.LinuxContainerResources
	resources    = lifecycle.Resources
	criPod       = cri.PodSandboxConfig
	ourPod       = lifecycle.Pod
)

// resourceTable has one row for each field of LinuxContainerResources.
var resourceTable = []row[criResources, resources]{
	{"cpu_period", "CPU.Period", func(p *criResources, l *resources) { l.CPU.Period = nonZero(uint64(max(p.CpuPeriod, 0))) }, ""},
	{"cpu_quota", "CPU.Quota", func(p *criResources, l *resources) { l.CPU.Quota = nonZero(p.CpuQuota) }, ""},
	{"cpu_shares", "CPU.Shares", func(p *criResources, l *resources) { l.CPU.Shares = nonZero(uint64(max(p.CpuShares, 0))) }, ""},
	{"memory_limit_in_bytes", "Memory.Limit", func(p *criResources, l *resources) { l.Memory.Limit = nonZero(p.MemoryLimitInBytes) }, ""},
	{"oom_score_adj", "", nil, "converted to Container.OOMScoreAdj"},
	{"cpuset_cpus", "CPU.CPUs", func(p *criResources, l *resources) { l.CPU.CPUs = p.CpusetCpus }, ""},
	{"cpuset_mems", "CPU.Mems", func(p *criResources, l *resources) { l.CPU.Mems = p.CpusetMems }, ""},
	{"hugepage_limits", "Hugepages[]", func(p *criResources, l *resources) {
		for _, h := range p.HugepageLimits {
			l.Hugepages = append(l.Hugepages, lifecycle.HugepageLimit{Size: h.GetPageSize(), Limit: h.GetLimit()})
		}
	}, ""},
	{"unified", "Unified{}", func(p *criResources, l *resources) { l.Unified = maps.Clone(p.Unified) }, ""},
	{"memory_swap_limit_in_bytes", "Memory.Swap", func(p *criResources, l *resources) { l.Memory.Swap = nonZero(p.MemorySwapLimitInBytes) }, ""},
}

// containerTable has one row for each field of ContainerConfig, in the order of the CRI. A row sets number only if it
// also has a read function.
var containerTable = []configRow{
	{proto: "metadata.name", lifecycle: "Name", number: 1, read: (*configDecoder).readMetadata},
	{proto: "metadata.attempt", note: relayedUnchanged},
	{proto: "image.", lifecycle: "Image.Name", number: 2, read: (*configDecoder).readImage, note: "image.user_specified_image becomes Image.Name; image.image, which the kubelet has resolved, becomes Image.Digest"},
	{proto: "command", lifecycle: "Args[]", number: 3, read: func(r *configDecoder, b []byte) error { return r.addString(&r.commands, b) }, note: "without the entries that the image adds"},
	{proto: "args", lifecycle: "Args[]", number: 4, read: func(r *configDecoder, b []byte) error { return r.addString(&r.arguments, b) }, note: "after command"},
	{proto: "working_dir", note: relayedUnchanged},
	{proto: "envs", lifecycle: "Env[]", number: 6, read: (*configDecoder).readEnv, note: "without the entries that the image adds"},
	{proto: "mounts.", lifecycle: "Mounts[]", number: 7, read: (*configDecoder).readMount, note: "bind mounts; without the mounts that the runtime adds"},
	{proto: "devices.", lifecycle: "Devices[]", number: 8, read: (*configDecoder).readDevice, note: "only paths: the CRI has no device numbers"},
	{proto: "labels", lifecycle: "Labels{}", number: 9, read: func(r *configDecoder, b []byte) error { return r.addPair(r.container.Labels, b) }},
	{proto: "annotations", lifecycle: "Annotations{}", number: 10, read: func(r *configDecoder, b []byte) error { return r.addPair(r.container.Annotations, b) }},
	{proto: "log_path", note: relayedUnchanged},
	{proto: "stdin", note: relayedUnchanged},
	{proto: "stdin_once", note: relayedUnchanged},
	{proto: "tty", note: relayedUnchanged},
	{
		proto: "linux.resources.", lifecycle: "Resources", number: 15, read: (*configDecoder).readLinux,
		note: "fields as in LinuxContainerResources; oom_score_adj becomes OOMScoreAdj",
	},
	{proto: "linux.security_context.", note: relayedUnchanged},
	{proto: "windows.", note: "relayed unchanged; Trimtab is for Linux only"},
	{proto: "CDI_devices.", lifecycle: "CDIDevices[]", number: 17, read: (*configDecoder).readCDIDevice},
	{proto: "stop_signal", note: relayedUnchanged},
}

// podTable has one row for each field of PodSandboxConfig.
var podTable = []row[criPod, ourPod]{
	{"metadata.name", "Name", func(p *criPod, l *ourPod) { l.Name = p.GetMetadata().GetName() }, ""},
	{"metadata.uid", "UID", func(p *criPod, l *ourPod) { l.UID = p.GetMetadata().GetUid() }, ""},
	{"metadata.namespace", "Namespace", func(p *criPod, l *ourPod) { l.Namespace = p.GetMetadata().GetNamespace() }, ""},
	{"metadata.attempt", "", nil, relayedUnchanged},
	{"hostname", "", nil, relayedUnchanged},
	{"log_directory", "", nil, relayedUnchanged},
	{"dns_config.", "", nil, relayedUnchanged},
	{"port_mappings.", "", nil, relayedUnchanged},
	{"labels", "Labels{}", func(p *criPod, l *ourPod) { l.Labels = p.Labels }, ""},
	{"annotations", "Annotations{}", func(p *criPod, l *ourPod) { l.Annotations = p.Annotations }, ""},
	{"linux.cgroup_parent", "CgroupParent", func(p *criPod, l *ourPod) { l.CgroupParent = p.GetLinux().GetCgroupParent() }, ""},
	{"linux.security_context.", "", nil, relayedUnchanged},
	{"linux.sysctls", "", nil, relayedUnchanged},
	{"linux.overhead.", "Overhead", func(p *criPod, l *ourPod) { l.Overhead = Resources(p.GetLinux().GetOverhead()) }, "fields as in LinuxContainerResources"},
	{"linux.resources.", "Resources", func(p *criPod, l *ourPod) { l.Resources = Resources(p.GetLinux().GetResources()) }, "fields as in LinuxContainerResources"},
	{"windows.", "", nil, "relayed unchanged; Trimtab is for Linux only"},
}

// Resources converts resources of the CRI. It converts nil to nil.
func Resources(p *criResources) *resources {
	if p == nil {
		return nil
	}
	l := &resources{}
	convert(resourceTable, p, l)
	return l
}

// PodOfConfig converts the configuration of a pod with this sandbox id and runtime handler.
func PodOfConfig(p *criPod, id, handler string) *ourPod {
	l := &ourPod{ID: id, RuntimeHandler: handler}
	convert(podTable, p, l)
	return l
}

// rowsOf returns the rows of a conversion table for the docs. message is the type in the CRI.
func rowsOf[P, L any](table []row[P, L], message, lifecycleType string) []Row {
	var rows []Row
	for _, f := range table {
		rows = append(rows, rowOf(message, f.proto, lifecycleType, f.lifecycle, f.note))
	}
	return rows
}

// rowOf returns a row for the docs. lifecycleType is the type that has lifecycleField, which may be "".
func rowOf(message, proto, lifecycleType, lifecycleField, note string) Row {
	r := Row{Proto: message + "." + proto, Note: note}
	if lifecycleField != "" {
		r.Lifecycle = lifecycleType + "." + lifecycleField
	}
	return r
}

// Rows lists every field of the CRI's requests about containers and pods, for the docs.
func Rows() []Row {
	var rows []Row
	for _, f := range containerTable {
		rows = append(rows, rowOf("ContainerConfig", f.proto, "Container", f.lifecycle, f.note))
	}
	rows = append(rows, rowsOf(resourceTable, "LinuxContainerResources", "Resources")...)
	return append(rows, rowsOf(podTable, "PodSandboxConfig", "Pod")...)
}
