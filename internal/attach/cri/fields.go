package cri

import (
	"maps"
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Row describes one field of the CRI's messages about pods and containers, for
// the docs: what it becomes in lifecycle words, and whether decided values
// travel back in it.
type Row struct {
	Proto     string // e.g. ContainerConfig.linux.resources.cpu_shares
	Lifecycle string // e.g. Container.Resources.CPU.Shares; empty where not carried
	Setting   string // name of the lifecycle.Field carried back in it, if any
	Create    bool   // carried in CreateContainer
	Update    bool   // carried in UpdateContainerResources
	Note      string // what to know about it; the reason where not carried
}

// field is one row of a conversion table. A row without in is not carried, and
// its note says why. A proto that ends in "." stands for all below it.
type field[P, L any] struct {
	proto, life string
	in          func(p *P, l *L)
	note        string
}

func convert[P, L any](table []field[P, L], p *P, l *L) {
	if p == nil {
		return
	}
	for i := range table {
		if table[i].in != nil {
			table[i].in(p, l)
		}
	}
}

// said is a number of the CRI: 0 is "not said" there.
func said[T int64 | uint64](v T) lifecycle.Opt[T] { return lifecycle.Opt[T]{V: v, Set: v != 0} }

const passes = "passes untouched; no policy asks for it"

type (
	pRes = cri.LinuxContainerResources
	lRes = lifecycle.Resources
	pCtr = cri.ContainerConfig
	lCtr = lifecycle.Container
	pPod = cri.PodSandboxConfig
	lPod = lifecycle.Pod
)

var resourceTable = []field[pRes, lRes]{
	{"cpu_period", "CPU.Period", func(p *pRes, l *lRes) { l.CPU.Period = said(uint64(max(p.CpuPeriod, 0))) }, ""},
	{"cpu_quota", "CPU.Quota", func(p *pRes, l *lRes) { l.CPU.Quota = said(p.CpuQuota) }, ""},
	{"cpu_shares", "CPU.Shares", func(p *pRes, l *lRes) { l.CPU.Shares = said(uint64(max(p.CpuShares, 0))) }, ""},
	{"memory_limit_in_bytes", "Memory.Limit", func(p *pRes, l *lRes) { l.Memory.Limit = said(p.MemoryLimitInBytes) }, ""},
	{"oom_score_adj", "", nil, "read as the container's"},
	{"cpuset_cpus", "CPU.CPUs", func(p *pRes, l *lRes) { l.CPU.CPUs = p.CpusetCpus }, ""},
	{"cpuset_mems", "CPU.Mems", func(p *pRes, l *lRes) { l.CPU.Mems = p.CpusetMems }, ""},
	{"hugepage_limits", "Hugepages[]", func(p *pRes, l *lRes) {
		for _, h := range p.HugepageLimits {
			l.Hugepages = append(l.Hugepages, lifecycle.HugepageLimit{Size: h.GetPageSize(), Limit: h.GetLimit()})
		}
	}, ""},
	{"unified", "Unified{}", func(p *pRes, l *lRes) { l.Unified = maps.Clone(p.Unified) }, ""},
	{"memory_swap_limit_in_bytes", "Memory.Swap", func(p *pRes, l *lRes) { l.Memory.Swap = said(p.MemorySwapLimitInBytes) }, ""},
}

var containerTable = []field[pCtr, lCtr]{
	{"metadata.name", "Name", func(p *pCtr, l *lCtr) { l.Name = p.GetMetadata().GetName() }, ""},
	{"metadata.attempt", "", nil, passes},
	{"image.", "Image.Name", func(p *pCtr, l *lCtr) {
		if p.GetImage().GetUserSpecifiedImage() != "" || p.GetImage().GetImage() != "" {
			l.Image = &lifecycle.Image{Name: p.Image.UserSpecifiedImage, Digest: p.Image.Image}
		}
	}, "of image.image, what the kubelet resolved it to, becomes Image.Digest"},
	{"command", "Args[]", func(p *pCtr, l *lCtr) { l.Args = append(append(l.Args, p.Command...), p.Args...) }, "without what the image adds"},
	{"args", "Args[]", nil, "after command"},
	{"working_dir", "", nil, passes},
	{"envs", "Env[]", func(p *pCtr, l *lCtr) {
		l.Env = slices.Grow(l.Env, len(p.Envs))
		for _, e := range p.Envs {
			l.Env = append(l.Env, e.GetKey()+"="+string(e.GetValue()))
		}
	}, "without what the image adds"},
	{"mounts.", "Mounts[]", func(p *pCtr, l *lCtr) {
		l.Mounts = slices.Grow(l.Mounts, len(p.Mounts))
		for _, m := range p.Mounts {
			l.Mounts = append(l.Mounts, mountIn(m))
		}
	}, "bind mounts; without those the runtime adds by itself"},
	{"devices.", "Devices[]", func(p *pCtr, l *lCtr) {
		for _, d := range p.Devices {
			l.Devices = append(l.Devices, lifecycle.Device{Path: d.GetContainerPath()})
		}
	}, "paths alone: the CRI does not tell numbers"},
	{"labels", "Labels{}", func(p *pCtr, l *lCtr) { l.Labels = p.Labels }, ""},
	{"annotations", "Annotations{}", func(p *pCtr, l *lCtr) { l.Annotations = p.Annotations }, ""},
	{"log_path", "", nil, passes},
	{"stdin", "", nil, passes},
	{"stdin_once", "", nil, passes},
	{"tty", "", nil, passes},
	{"linux.resources.", "Resources", func(p *pCtr, l *lCtr) {
		if r := p.GetLinux().GetResources(); r != nil {
			convert(resourceTable, r, &l.Resources)
			l.OOMScoreAdj = lifecycle.Some(r.OomScoreAdj)
		}
	}, "fields as in LinuxContainerResources; oom_score_adj becomes OOMScoreAdj"},
	{"linux.security_context.", "", nil, passes},
	{"windows.", "", nil, "not carried: Trimtab serves Linux"},
	{"CDI_devices.", "CDIDevices[]", func(p *pCtr, l *lCtr) {
		for _, d := range p.CDIDevices {
			l.CDIDevices = append(l.CDIDevices, d.GetName())
		}
	}, ""},
	{"stop_signal", "", nil, passes},
}

var podTable = []field[pPod, lPod]{
	{"metadata.name", "Name", func(p *pPod, l *lPod) { l.Name = p.GetMetadata().GetName() }, ""},
	{"metadata.uid", "UID", func(p *pPod, l *lPod) { l.UID = p.GetMetadata().GetUid() }, ""},
	{"metadata.namespace", "Namespace", func(p *pPod, l *lPod) { l.Namespace = p.GetMetadata().GetNamespace() }, ""},
	{"metadata.attempt", "", nil, passes},
	{"hostname", "", nil, passes},
	{"log_directory", "", nil, passes},
	{"dns_config.", "", nil, passes},
	{"port_mappings.", "", nil, passes},
	{"labels", "Labels{}", func(p *pPod, l *lPod) { l.Labels = p.Labels }, ""},
	{"annotations", "Annotations{}", func(p *pPod, l *lPod) { l.Annotations = p.Annotations }, ""},
	{"linux.cgroup_parent", "CgroupParent", func(p *pPod, l *lPod) { l.CgroupParent = p.GetLinux().GetCgroupParent() }, ""},
	{"linux.security_context.", "", nil, passes},
	{"linux.sysctls", "", nil, passes},
	{"linux.overhead.", "Overhead", func(p *pPod, l *lPod) { l.Overhead = resourcesIn(p.GetLinux().GetOverhead()) }, "fields as in LinuxContainerResources"},
	{"linux.resources.", "Resources", func(p *pPod, l *lPod) { l.Resources = resourcesIn(p.GetLinux().GetResources()) }, "fields as in LinuxContainerResources"},
	{"windows.", "", nil, "not carried: Trimtab serves Linux"},
}

// resourcesIn translates resources; nil stays nil.
func resourcesIn(p *pRes) *lRes {
	if p == nil {
		return nil
	}
	l := &lRes{}
	convert(resourceTable, p, l)
	return l
}

func mountIn(m *cri.Mount) lifecycle.Mount {
	options := []string{"rbind", "rw"}
	if m.GetReadonly() {
		options[1] = "ro"
	}
	return lifecycle.Mount{Destination: m.GetContainerPath(), Source: m.GetHostPath(), Type: "bind", Options: options}
}

// containerIn translates the container that is asked for.
func containerIn(p *pCtr, id, pod string) *lCtr {
	l := &lCtr{ID: id, PodID: pod, State: lifecycle.StateCreated}
	convert(containerTable, p, l)
	return l
}

// podIn translates a pod's configuration.
func podIn(p *pPod, id, handler string) *lPod {
	l := &lPod{ID: id, RuntimeHandler: handler}
	convert(podTable, p, l)
	return l
}

// rowsOf lists a table for the docs.
func rowsOf[P, L any](table []field[P, L], message, word string) []Row {
	var rows []Row
	for _, f := range table {
		r := Row{Proto: message + "." + f.proto, Note: f.note}
		if f.life != "" {
			r.Lifecycle = word + "." + f.life
		}
		rows = append(rows, r)
	}
	return rows
}

// Rows lists every field the CRI has of containers and pods, in the order of
// its tables.
func Rows() []Row {
	rows := rowsOf(containerTable, "ContainerConfig", "Container")
	rows = append(rows, rowsOf(resourceTable, "LinuxContainerResources", "Resources")...)
	rows = append(rows, rowsOf(podTable, "PodSandboxConfig", "Pod")...)
	for i := range rows {
		for _, s := range settings {
			if rows[i].Proto == s.proto {
				rows[i].Setting, rows[i].Create, rows[i].Update = s.field.String(), true, s.resource != nil
				if s.note != "" {
					rows[i].Note = s.note
				}
			}
		}
	}
	return rows
}
