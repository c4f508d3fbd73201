package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

type (
	pPod      = api.PodSandbox
	pLinuxPod = api.LinuxPodSandbox
	lPod      = lifecycle.Pod
)

var namespaceTable = table[api.LinuxNamespace, lifecycle.Namespace]{
	{"type", "Type", "0.2", func(p *api.LinuxNamespace, l *lifecycle.Namespace) { l.Type = p.Type }, nil, ""},
	{"path", "Path", "0.2", func(p *api.LinuxNamespace, l *lifecycle.Namespace) { l.Path = p.Path }, nil, ""},
}

var linuxPodTable = table[pLinuxPod, lPod]{
	{"pod_overhead", "Overhead", "0.2", func(p *pLinuxPod, l *lPod) { l.Overhead = resourcesIn(p.PodOverhead) }, &resourcesTable, ""},
	{"pod_resources", "Resources", "0.2", func(p *pLinuxPod, l *lPod) { l.Resources = resourcesIn(p.PodResources) }, &resourcesTable, ""},
	{"cgroup_parent", "CgroupParent", "0.2", func(p *pLinuxPod, l *lPod) { l.CgroupParent = p.CgroupParent }, nil, ""},
	{"cgroups_path", "CgroupsPath", "0.2", func(p *pLinuxPod, l *lPod) { l.CgroupsPath = p.CgroupsPath }, nil, ""},
	{"namespaces[]", "Namespaces[]", "0.2", func(p *pLinuxPod, l *lPod) { l.Namespaces = list(&namespaceTable, p.Namespaces) }, &namespaceTable, ""},
	{"resources", "Sandbox", "0.2", func(p *pLinuxPod, l *lPod) { l.Sandbox = resourcesIn(p.Resources) }, &resourcesTable, ""},
}

var podTable = table[pPod, lPod]{
	{"id", "ID", "0.2", func(p *pPod, l *lPod) { l.ID = p.Id }, nil, ""},
	{"name", "Name", "0.2", func(p *pPod, l *lPod) { l.Name = p.Name }, nil, ""},
	{"uid", "UID", "0.2", func(p *pPod, l *lPod) { l.UID = p.Uid }, nil, ""},
	{"namespace", "Namespace", "0.2", func(p *pPod, l *lPod) { l.Namespace = p.Namespace }, nil, ""},
	{"labels{}", "Labels{}", "0.2", func(p *pPod, l *lPod) { l.Labels = p.Labels }, nil, "some runtimes leave them out"},
	{"annotations{}", "Annotations{}", "0.2", func(p *pPod, l *lPod) { l.Annotations = p.Annotations }, nil, ""},
	{"runtime_handler", "RuntimeHandler", "0.2", func(p *pPod, l *lPod) { l.RuntimeHandler = p.RuntimeHandler }, nil, ""},
	{"linux", "", "0.2", func(p *pPod, l *lPod) { linuxPodTable.convert(p.Linux, l) }, &linuxPodTable, ""},
	{"pid", "PID", "0.2", func(p *pPod, l *lPod) { l.PID = p.Pid }, nil, ""},
	{"ips[]", "IPs[]", "0.8", func(p *pPod, l *lPod) { l.IPs = p.Ips }, nil, ""},
}

// podIn translates a pod; nil stays nil.
func podIn(p *api.PodSandbox) *lifecycle.Pod { return one(&podTable, p) }
