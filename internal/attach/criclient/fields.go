package criclient

import (
	"maps"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Row describes one field of the CRI's requests about pods and containers, for the docs. An attachment that sends
// decided values in requests fills in Setting, Create and Update.
type Row struct {
	Proto     string // e.g. ContainerConfig.linux.resources.cpu_shares
	Lifecycle string // e.g. Container.Resources.CPU.Shares; empty if it is not converted
	Setting   string // name of the lifecycle.Field that requests set in it, if any
	Create    bool   // set in CreateContainer
	Update    bool   // set in UpdateContainerResources
	Note      string // a remark, or why it is not converted
}

// row is one row of a conversion table. Without in, the field is not converted, and the note says why. A proto that
// ends in "." stands for all fields below it.
type row[P, L any] struct {
	proto, life string
	in          func(p *P, l *L)
	note        string
}

func convert[P, L any](table []row[P, L], p *P, l *L) {
	if p == nil {
		return
	}
	for i := range table {
		if table[i].in != nil {
			table[i].in(p, l)
		}
	}
}

// nonZero converts a number of the CRI, where 0 means unset.
func nonZero[T int64 | uint64](v T) lifecycle.Opt[T] { return lifecycle.Opt[T]{V: v, Set: v != 0} }

const passesUntouched = "relayed unchanged; no policy uses it"

type (
	pRes = cri.LinuxContainerResources
	lRes = lifecycle.Resources
	pPod = cri.PodSandboxConfig
	lPod = lifecycle.Pod
)

var resourceTable = []row[pRes, lRes]{
	{"cpu_period", "CPU.Period", func(p *pRes, l *lRes) { l.CPU.Period = nonZero(uint64(max(p.CpuPeriod, 0))) }, ""},
	{"cpu_quota", "CPU.Quota", func(p *pRes, l *lRes) { l.CPU.Quota = nonZero(p.CpuQuota) }, ""},
	{"cpu_shares", "CPU.Shares", func(p *pRes, l *lRes) { l.CPU.Shares = nonZero(uint64(max(p.CpuShares, 0))) }, ""},
	{"memory_limit_in_bytes", "Memory.Limit", func(p *pRes, l *lRes) { l.Memory.Limit = nonZero(p.MemoryLimitInBytes) }, ""},
	{"oom_score_adj", "", nil, "read as the container's"},
	{"cpuset_cpus", "CPU.CPUs", func(p *pRes, l *lRes) { l.CPU.CPUs = p.CpusetCpus }, ""},
	{"cpuset_mems", "CPU.Mems", func(p *pRes, l *lRes) { l.CPU.Mems = p.CpusetMems }, ""},
	{"hugepage_limits", "Hugepages[]", func(p *pRes, l *lRes) {
		for _, h := range p.HugepageLimits {
			l.Hugepages = append(l.Hugepages, lifecycle.HugepageLimit{Size: h.GetPageSize(), Limit: h.GetLimit()})
		}
	}, ""},
	{"unified", "Unified{}", func(p *pRes, l *lRes) { l.Unified = maps.Clone(p.Unified) }, ""},
	{"memory_swap_limit_in_bytes", "Memory.Swap", func(p *pRes, l *lRes) { l.Memory.Swap = nonZero(p.MemorySwapLimitInBytes) }, ""},
}

// containerTable is in the order of the CRI's fields. A row that is read names
// the number of its field in ContainerConfig.
var containerTable = []configRow{
	{proto: "metadata.name", life: "Name", number: 1, read: (*reading).metadata},
	{proto: "metadata.attempt", note: passesUntouched},
	{proto: "image.", life: "Image.Name", number: 2, read: (*reading).image, note: "the reference to which the kubelet resolved image.image becomes Image.Digest"},
	{proto: "command", life: "Args[]", number: 3, read: (*reading).command, note: "without the entries that the image adds"},
	{proto: "args", life: "Args[]", number: 4, read: (*reading).argument, note: "after command"},
	{proto: "working_dir", note: passesUntouched},
	{proto: "envs", life: "Env[]", number: 6, read: (*reading).env, note: "without the entries that the image adds"},
	{proto: "mounts.", life: "Mounts[]", number: 7, read: (*reading).mount, note: "bind mounts; without the mounts that the runtime adds"},
	{proto: "devices.", life: "Devices[]", number: 8, read: (*reading).device, note: "only paths: the CRI has no device numbers"},
	{proto: "labels", life: "Labels{}", number: 9, read: (*reading).label},
	{proto: "annotations", life: "Annotations{}", number: 10, read: (*reading).annotation},
	{proto: "log_path", note: passesUntouched},
	{proto: "stdin", note: passesUntouched},
	{proto: "stdin_once", note: passesUntouched},
	{proto: "tty", note: passesUntouched},
	{
		proto: "linux.resources.", life: "Resources", number: 15, read: (*reading).linux,
		note: "fields as in LinuxContainerResources; oom_score_adj becomes OOMScoreAdj",
	},
	{proto: "linux.security_context.", note: passesUntouched},
	{proto: "windows.", note: "not carried: Trimtab serves Linux"},
	{proto: "CDI_devices.", life: "CDIDevices[]", number: 17, read: (*reading).cdi},
	{proto: "stop_signal", note: passesUntouched},
}

var podTable = []row[pPod, lPod]{
	{"metadata.name", "Name", func(p *pPod, l *lPod) { l.Name = p.GetMetadata().GetName() }, ""},
	{"metadata.uid", "UID", func(p *pPod, l *lPod) { l.UID = p.GetMetadata().GetUid() }, ""},
	{"metadata.namespace", "Namespace", func(p *pPod, l *lPod) { l.Namespace = p.GetMetadata().GetNamespace() }, ""},
	{"metadata.attempt", "", nil, passesUntouched},
	{"hostname", "", nil, passesUntouched},
	{"log_directory", "", nil, passesUntouched},
	{"dns_config.", "", nil, passesUntouched},
	{"port_mappings.", "", nil, passesUntouched},
	{"labels", "Labels{}", func(p *pPod, l *lPod) { l.Labels = p.Labels }, ""},
	{"annotations", "Annotations{}", func(p *pPod, l *lPod) { l.Annotations = p.Annotations }, ""},
	{"linux.cgroup_parent", "CgroupParent", func(p *pPod, l *lPod) { l.CgroupParent = p.GetLinux().GetCgroupParent() }, ""},
	{"linux.security_context.", "", nil, passesUntouched},
	{"linux.sysctls", "", nil, passesUntouched},
	{"linux.overhead.", "Overhead", func(p *pPod, l *lPod) { l.Overhead = Resources(p.GetLinux().GetOverhead()) }, "fields as in LinuxContainerResources"},
	{"linux.resources.", "Resources", func(p *pPod, l *lPod) { l.Resources = Resources(p.GetLinux().GetResources()) }, "fields as in LinuxContainerResources"},
	{"windows.", "", nil, "not carried: Trimtab serves Linux"},
}

// Resources translates resources; nil stays nil.
func Resources(p *pRes) *lRes {
	if p == nil {
		return nil
	}
	l := &lRes{}
	convert(resourceTable, p, l)
	return l
}

// PodOfConfig translates a pod's configuration.
func PodOfConfig(p *pPod, id, handler string) *lPod {
	l := &lPod{ID: id, RuntimeHandler: handler}
	convert(podTable, p, l)
	return l
}

// rowsOf lists a conversion table for the docs.
func rowsOf[P, L any](table []row[P, L], message, word string) []Row {
	var rows []Row
	for _, f := range table {
		rows = append(rows, rowOf(message, f.proto, word, f.life, f.note))
	}
	return rows
}

func rowOf(message, proto, word, life, note string) Row {
	r := Row{Proto: message + "." + proto, Note: note}
	if life != "" {
		r.Lifecycle = word + "." + life
	}
	return r
}

// Rows lists every field of the CRI's requests about containers and pods, in the order of
// its tables.
func Rows() []Row {
	var rows []Row
	for _, f := range containerTable {
		rows = append(rows, rowOf("ContainerConfig", f.proto, "Container", f.life, f.note))
	}
	rows = append(rows, rowsOf(resourceTable, "LinuxContainerResources", "Resources")...)
	return append(rows, rowsOf(podTable, "PodSandboxConfig", "Pod")...)
}
