package nri

import (
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Short names for the rows below.
type (
	pRes = api.LinuxResources
	lRes = lifecycle.Resources
	pMem = api.LinuxMemory
	lMem = lifecycle.Memory
	pCPU = api.LinuxCPU
	lCPU = lifecycle.CPU
)

var memoryTable = table[pMem, lMem]{
	{"limit", "Limit", "0.2", func(p *pMem, l *lMem) { l.Limit = opt(p.Limit) }, nil, ""},
	{"reservation", "Reservation", "0.2", func(p *pMem, l *lMem) { l.Reservation = opt(p.Reservation) }, nil, ""},
	{"swap", "Swap", "0.2", func(p *pMem, l *lMem) { l.Swap = opt(p.Swap) }, nil, ""},
	{"kernel", "Kernel", "0.2", func(p *pMem, l *lMem) { l.Kernel = opt(p.Kernel) }, nil, ""},
	{"kernel_tcp", "KernelTCP", "0.2", func(p *pMem, l *lMem) { l.KernelTCP = opt(p.KernelTcp) }, nil, ""},
	{"swappiness", "Swappiness", "0.2", func(p *pMem, l *lMem) { l.Swappiness = opt(p.Swappiness) }, nil, ""},
	{"disable_oom_killer", "DisableOOMKiller", "0.2", func(p *pMem, l *lMem) { l.DisableOOMKiller = opt(p.DisableOomKiller) }, nil, ""},
	{"use_hierarchy", "UseHierarchy", "0.2", func(p *pMem, l *lMem) { l.UseHierarchy = opt(p.UseHierarchy) }, nil, ""},
}

var cpuTable = table[pCPU, lCPU]{
	{"shares", "Shares", "0.2", func(p *pCPU, l *lCPU) { l.Shares = opt(p.Shares) }, nil, ""},
	{"quota", "Quota", "0.2", func(p *pCPU, l *lCPU) { l.Quota = opt(p.Quota) }, nil, ""},
	{"period", "Period", "0.2", func(p *pCPU, l *lCPU) { l.Period = opt(p.Period) }, nil, ""},
	{"realtime_runtime", "RealtimeRuntime", "0.2", func(p *pCPU, l *lCPU) { l.RealtimeRuntime = opt(p.RealtimeRuntime) }, nil, ""},
	{"realtime_period", "RealtimePeriod", "0.2", func(p *pCPU, l *lCPU) { l.RealtimePeriod = opt(p.RealtimePeriod) }, nil, ""},
	{"cpus", "CPUs", "0.2", func(p *pCPU, l *lCPU) { l.CPUs = p.Cpus }, nil, ""},
	{"mems", "Mems", "0.2", func(p *pCPU, l *lCPU) { l.Mems = p.Mems }, nil, ""},
}

var hugepageTable = table[api.HugepageLimit, lifecycle.HugepageLimit]{
	{"page_size", "Size", "0.2", func(p *api.HugepageLimit, l *lifecycle.HugepageLimit) { l.Size = p.PageSize }, nil, ""},
	{"limit", "Limit", "0.2", func(p *api.HugepageLimit, l *lifecycle.HugepageLimit) { l.Limit = p.Limit }, nil, ""},
}

var deviceRuleTable = table[api.LinuxDeviceCgroup, lifecycle.DeviceRule]{
	{"allow", "Allow", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Allow = p.Allow }, nil, ""},
	{"type", "Type", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Type = p.Type }, nil, ""},
	{"major", "Major", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Major = opt(p.Major) }, nil, ""},
	{"minor", "Minor", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Minor = opt(p.Minor) }, nil, ""},
	{"access", "Access", "0.2", func(p *api.LinuxDeviceCgroup, l *lifecycle.DeviceRule) { l.Access = p.Access }, nil, ""},
}

var pidsTable = table[api.LinuxPids, lRes]{
	{"limit", "Pids", "0.7", func(p *api.LinuxPids, l *lRes) { l.Pids = lifecycle.Some(p.Limit) }, nil, ""},
}

var resourcesTable = table[pRes, lRes]{
	{"memory", "Memory", "0.2", func(p *pRes, l *lRes) { memoryTable.convert(p.Memory, &l.Memory) }, &memoryTable, ""},
	{"cpu", "CPU", "0.2", func(p *pRes, l *lRes) { cpuTable.convert(p.Cpu, &l.CPU) }, &cpuTable, ""},
	{"hugepage_limits[]", "Hugepages[]", "0.2", func(p *pRes, l *lRes) { l.Hugepages = list(&hugepageTable, p.HugepageLimits) }, &hugepageTable, ""},
	{
		"blockio_class", "BlockIOClass", "0.2", func(p *pRes, l *lRes) { l.BlockIOClass = opt(p.BlockioClass) }, nil,
		"containerd never reports it of an existing container",
	},
	{
		"rdt_class", "RDTClass", "0.2", func(p *pRes, l *lRes) { l.RDTClass = opt(p.RdtClass) }, nil,
		"containerd never reports it of an existing container",
	},
	{"unified{}", "Unified{}", "0.2", func(p *pRes, l *lRes) { l.Unified = p.Unified }, nil, ""},
	{"devices[]", "Devices[]", "0.2", func(p *pRes, l *lRes) { l.Devices = list(&deviceRuleTable, p.Devices) }, &deviceRuleTable, ""},
	{"pids", "", "0.7", func(p *pRes, l *lRes) { pidsTable.convert(p.Pids, l) }, &pidsTable, ""},
}

// resourcesIn translates resources; nil stays nil.
func resourcesIn(p *api.LinuxResources) *lifecycle.Resources { return one(&resourcesTable, p) }
