package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Short names for the types in the tables below.
type (
	nriPod      = api.PodSandbox
	nriLinuxPod = api.LinuxPodSandbox
	ourPod      = lifecycle.Pod
)

var namespaceTable = conversionTable[api.LinuxNamespace, lifecycle.Namespace]{
	{"type", "Type", "0.2", func(p *api.LinuxNamespace, l *lifecycle.Namespace) { l.Type = p.Type }, nil, ""},
	{"path", "Path", "0.2", func(p *api.LinuxNamespace, l *lifecycle.Namespace) { l.Path = p.Path }, nil, ""},
}

var linuxPodTable = conversionTable[nriLinuxPod, ourPod]{
	{"pod_overhead", "Overhead", "0.2", func(p *nriLinuxPod, l *ourPod) { l.Overhead = convertResources(p.PodOverhead) }, &resourcesTable, ""},
	{"pod_resources", "Resources", "0.2", func(p *nriLinuxPod, l *ourPod) { l.Resources = convertResources(p.PodResources) }, &resourcesTable, ""},
	{"cgroup_parent", "CgroupParent", "0.2", func(p *nriLinuxPod, l *ourPod) { l.CgroupParent = p.CgroupParent }, nil, ""},
	{"cgroups_path", "CgroupsPath", "0.2", func(p *nriLinuxPod, l *ourPod) { l.CgroupsPath = p.CgroupsPath }, nil, ""},
	{"namespaces[]", "Namespaces[]", "0.2", func(p *nriLinuxPod, l *ourPod) { l.Namespaces = convertList(&namespaceTable, p.Namespaces) }, &namespaceTable, ""},
	{"resources", "Sandbox", "0.2", func(p *nriLinuxPod, l *ourPod) { l.Sandbox = convertResources(p.Resources) }, &resourcesTable, ""},
}

var podTable = conversionTable[nriPod, ourPod]{
	{"id", "ID", "0.2", func(p *nriPod, l *ourPod) { l.ID = p.Id }, nil, ""},
	{"name", "Name", "0.2", func(p *nriPod, l *ourPod) { l.Name = p.Name }, nil, ""},
	{"uid", "UID", "0.2", func(p *nriPod, l *ourPod) { l.UID = p.Uid }, nil, ""},
	{"namespace", "Namespace", "0.2", func(p *nriPod, l *ourPod) { l.Namespace = p.Namespace }, nil, ""},
	{"labels{}", "Labels{}", "0.2", func(p *nriPod, l *ourPod) { l.Labels = p.Labels }, nil, "some runtimes do not send them"},
	{"annotations{}", "Annotations{}", "0.2", func(p *nriPod, l *ourPod) { l.Annotations = p.Annotations }, nil, ""},
	{"runtime_handler", "RuntimeHandler", "0.2", func(p *nriPod, l *ourPod) { l.RuntimeHandler = p.RuntimeHandler }, nil, ""},
	{"linux", "", "0.2", func(p *nriPod, l *ourPod) { linuxPodTable.convert(p.Linux, l) }, &linuxPodTable, ""},
	{"pid", "PID", "0.2", func(p *nriPod, l *ourPod) { l.PID = p.Pid }, nil, ""},
	{"ips[]", "IPs[]", "0.8", func(p *nriPod, l *ourPod) { l.IPs = p.Ips }, nil, ""},
}

// convertPod converts a pod of NRI. It converts nil to nil.
func convertPod(p *api.PodSandbox) *lifecycle.Pod { return convertOne(&podTable, p) }
