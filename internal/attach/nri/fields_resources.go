package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Short names for the types in the tables below.
type (
	nriResources = api.LinuxResources
	ourResources = lifecycle.Resources
	nriMemory    = api.LinuxMemory
	ourMemory    = lifecycle.Memory
	nriCPU       = api.LinuxCPU
	ourCPU       = lifecycle.CPU
)

var memoryTable = conversionTable[nriMemory, ourMemory]{
	{"limit", "Limit", "0.2", func(p *nriMemory, l *ourMemory) { l.Limit = toOpt(p.Limit) }, nil, ""},
	{"reservation", "Reservation", "0.2", func(p *nriMemory, l *ourMemory) { l.Reservation = toOpt(p.Reservation) }, nil, ""},
	{"swap", "Swap", "0.2", func(p *nriMemory, l *ourMemory) { l.Swap = toOpt(p.Swap) }, nil, ""},
	{"kernel", "Kernel", "0.2", func(p *nriMemory, l *ourMemory) { l.Kernel = toOpt(p.Kernel) }, nil, ""},
	{"kernel_tcp", "KernelTCP", "0.2", func(p *nriMemory, l *ourMemory) { l.KernelTCP = toOpt(p.KernelTcp) }, nil, ""},
	{"swappiness", "Swappiness", "0.2", func(p *nriMemory, l *ourMemory) { l.Swappiness = toOpt(p.Swappiness) }, nil, ""},
	{"disable_oom_killer", "DisableOOMKiller", "0.2", func(p *nriMemory, l *ourMemory) { l.DisableOOMKiller = toOpt(p.DisableOomKiller) }, nil, ""},
	{"use_hierarchy", "UseHierarchy", "0.2", func(p *nriMemory, l *ourMemory) { l.UseHierarchy = toOpt(p.UseHierarchy) }, nil, ""},
}

var cpuTable = conversionTable[nriCPU, ourCPU]{
	{"shares", "Shares", "0.2", func(p *nriCPU, l *ourCPU) { l.Shares = toOpt(p.Shares) }, nil, ""},
	{"quota", "Quota", "0.2", func(p *nriCPU, l *ourCPU) { l.Quota = toOpt(p.Quota) }, nil, ""},
	{"period", "Period", "0.2", func(p *nriCPU, l *ourCPU) { l.Period = toOpt(p.Period) }, nil, ""},
	{"realtime_runtime", "RealtimeRuntime", "0.2", func(p *nriCPU, l *ourCPU) { l.RealtimeRuntime = toOpt(p.RealtimeRuntime) }, nil, ""},
	{"realtime_period", "RealtimePeriod", "0.2", func(p *nriCPU, l *ourCPU) { l.RealtimePeriod = toOpt(p.RealtimePeriod) }, nil, ""},
	{"cpus", "CPUs", "0.2", func(p *nriCPU, l *ourCPU) { l.CPUs = p.Cpus }, nil, ""},
	{"mems", "Mems", "0.2", func(p *nriCPU, l *ourCPU) { l.Mems = p.Mems }, nil, ""},
}

var hugepageTable = conversionTable[api.HugepageLimit, lifecycle.HugepageLimit]{
	{"page_size", "Size", "0.2", func(p *api.HugepageLimit, l *lifecycle.HugepageLimit) { l.Size = p.PageSize }, nil, ""},
	{"limit", "Limit", "0.2", func(p *api.HugepageLimit, l *lifecycle.HugepageLimit) { l.Limit = p.Limit }, nil, ""},
}

var deviceRuleTable = conversionTable[api.LinuxDeviceCgroup, lifecycle.DeviceRule]{
	{"allow", "Allow", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Allow = p.Allow }, nil, ""},
	{"type", "Type", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Type = p.Type }, nil, ""},
	{"major", "Major", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Major = toOpt(p.Major) }, nil, ""},
	{"minor", "Minor", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Minor = toOpt(p.Minor) }, nil, ""},
	{"access", "Access", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Access = p.Access }, nil, ""},
}

var pidsTable = conversionTable[api.LinuxPids, ourResources]{
	{"limit", "Pids", "0.7", func(p *api.LinuxPids, l *ourResources) { l.Pids = lifecycle.Some(p.Limit) }, nil, ""},
}

var resourcesTable = conversionTable[nriResources, ourResources]{
	{"memory", "Memory", "0.2", func(p *nriResources, l *ourResources) { memoryTable.convert(p.Memory, &l.Memory) }, &memoryTable, ""},
	{"cpu", "CPU", "0.2", func(p *nriResources, l *ourResources) { cpuTable.convert(p.Cpu, &l.CPU) }, &cpuTable, ""},
	{"hugepage_limits[]", "Hugepages[]", "0.2", func(p *nriResources, l *ourResources) { l.Hugepages = convertList(&hugepageTable, p.HugepageLimits) }, &hugepageTable, ""},
	{
		"blockio_class", "BlockIOClass", "0.2", func(p *nriResources, l *ourResources) { l.BlockIOClass = toOpt(p.BlockioClass) }, nil,
		"containerd never reports it for an existing container",
	},
	{
		"rdt_class", "RDTClass", "0.2", func(p *nriResources, l *ourResources) { l.RDTClass = toOpt(p.RdtClass) }, nil,
		"containerd never reports it for an existing container",
	},
	{"unified{}", "Unified{}", "0.2", func(p *nriResources, l *ourResources) { l.Unified = p.Unified }, nil, ""},
	{"devices[]", "Devices[]", "0.2", func(p *nriResources, l *ourResources) { l.Devices = convertList(&deviceRuleTable, p.Devices) }, &deviceRuleTable, ""},
	{"pids", "", "0.7", func(p *nriResources, l *ourResources) { pidsTable.convert(p.Pids, l) }, &pidsTable, ""},
}

// convertResources converts resources of NRI. It converts nil to nil.
func convertResources(p *api.LinuxResources) *lifecycle.Resources {
	return convertOne(&resourcesTable, p)
}
