package kernel

import "github.com/trimtab/trimtab/internal/cgroup"

// fileModel simulates the reads and writes of a file. In this package, a function showX returns the text of a file, and
// a function setX handles a write. Both functions are called with the tree's lock held.
type fileModel struct {
	show           func(*Cgroups, *group) string        // returns the text of the file; nil if a read fails with EINVAL
	set            func(*Cgroups, *group, string) error // writes a text to the file; nil if a write fails with EINVAL
	lines          bool                                 // the file is a list of lines: an empty text has no newline
	atRoot         bool                                 // version 2: the file also exists at the root
	rootOnly       bool                                 // version 2: the file exists only at the root
	notAtRoot      bool                                 // version 1: the file does not exist at the root
	minKernelMinor int                                  // the file exists since Linux 6.minKernelMinor; 0 for all
	optional       bool                                 // the file exists only after AddOptionalFiles has added it
}

// filesV1 has the files of version 1 by controller and name, and filesV2 the files of version 2 by name.
var (
	filesV1 = map[string]map[string]fileModel{
		"cpu": {
			"cpu.shares":        {show: showShares, set: setShares},
			"cpu.idle":          {show: showIdle, set: setIdle},
			"cpu.bvt_warp_ns":   {show: showBVT, set: setBVT, optional: true},
			"cpu.cfs_quota_us":  {show: showQuota, set: setQuota},
			"cpu.cfs_period_us": {show: showPeriod, set: setPeriod},
			"cpu.cfs_burst_us":  {show: showBurst, set: setBurst},
		},
		"cpuset": {
			"cpuset.cpus":                     {show: showCPUs, set: setCPUs},
			"cpuset.mems":                     {show: showMems, set: setMems},
			"cpuset.effective_cpus":           {show: showEffectiveCPUs},
			"cpuset.effective_mems":           {show: showEffectiveMems},
			"cpuset.cpu_exclusive":            flagFile(func(s *cpusetState) *bool { return &s.cpuExclusive }),
			"cpuset.mem_exclusive":            flagFile(func(s *cpusetState) *bool { return &s.memExclusive }),
			"cpuset.mem_hardwall":             flagFile(func(s *cpusetState) *bool { return &s.hardwall }),
			"cpuset.memory_migrate":           flagFile(func(s *cpusetState) *bool { return &s.memoryMigrate }),
			"cpuset.memory_spread_page":       flagFile(func(s *cpusetState) *bool { return &s.spreadPage }),
			"cpuset.memory_spread_slab":       flagFile(func(s *cpusetState) *bool { return &s.spreadSlab }),
			"cpuset.sched_load_balance":       flagFile(func(s *cpusetState) *bool { return &s.schedLoadBalance }),
			"cpuset.sched_relax_domain_level": {show: showRelax, set: setRelax},
		},
		"memory": {
			"memory.limit_in_bytes":           byteFileV1(func(g *group) *int64 { return &g.limit }, checkLimit),
			"memory.memsw.limit_in_bytes":     byteFileV1(func(g *group) *int64 { return &g.swap }, checkSwap),
			"memory.soft_limit_in_bytes":      byteFileV1(func(g *group) *int64 { return &g.softLimit }, acceptAnyLimit),
			"memory.usage_in_bytes":           {show: showUsage},
			"memory.swappiness":               numberFile(func(g *group) *int64 { return &g.swappiness }, 0, 200),
			"memory.use_hierarchy":            {show: func(*Cgroups, *group) string { return "1" }, set: numberFile(func(*group) *int64 { return new(int64) }, 1, 1).set},
			"memory.oom_control":              {show: showOOM, set: numberFile(func(g *group) *int64 { return &g.oomKillDisable }, 0, 1).set},
			"memory.move_charge_at_immigrate": numberFile(func(g *group) *int64 { return &g.moveCharge }, 0, 3),
		},
		"blkio": {
			"blkio.throttle.read_bps_device":   throttleFile(0),
			"blkio.throttle.write_bps_device":  throttleFile(1),
			"blkio.throttle.read_iops_device":  throttleFile(2),
			"blkio.throttle.write_iops_device": throttleFile(3),
			"blkio.bfq.weight":                 {show: showBFQv1, set: setBFQv1, optional: true, notAtRoot: true},
			"blkio.bfq.weight_device":          {show: showBFQ, set: setBFQDevice, optional: true, notAtRoot: true},
		},
		"hugetlb": {
			"hugetlb.2MB.limit_in_bytes": hugepageFile("2MB", 2<<20, "-1"),
			"hugetlb.1GB.limit_in_bytes": hugepageFile("1GB", 1<<30, "-1"),
			"hugetlb.2MB.usage_in_bytes": {show: showZero},
			"hugetlb.1GB.usage_in_bytes": {show: showZero},
		},
		"pids": {
			"pids.max":     {show: showPids, set: setPids, notAtRoot: true},
			"pids.current": {show: showPidsCurrent, notAtRoot: true},
		},
	}
	filesV2 = map[string]fileModel{
		"cgroup.controllers":     {show: showControllers, atRoot: true},
		"cgroup.subtree_control": {show: showSubtree, set: setSubtree, atRoot: true},
		"cgroup.procs":           {show: showProcs(""), set: setProcs(""), atRoot: true, lines: true},
		"cgroup.threads":         {show: showThreads(""), atRoot: true, lines: true},
		"cgroup.type":            {show: showType, set: setType},

		"cpu.weight":      {show: showShares, set: setWeight},
		"cpu.weight.nice": {show: showNice, set: setNice},
		"cpu.idle":        {show: showIdle, set: setIdle},
		"cpu.bvt_warp_ns": {show: showBVT, set: setBVT, optional: true},
		"cpu.max":         {show: showMax, set: setMax},
		"cpu.max.burst":   {show: showBurst, set: setBurst},

		"cpuset.cpus":           {show: showCPUs, set: setCPUs},
		"cpuset.mems":           {show: showMems, set: setMems},
		"cpuset.cpus.effective": {show: showEffectiveCPUs, atRoot: true},
		"cpuset.mems.effective": {show: showEffectiveMems, atRoot: true},

		"cpuset.cpus.partition":           {show: showPartition, set: setPartition},
		"cpuset.cpus.exclusive":           {show: showExclusive, set: setExclusive, minKernelMinor: 7},
		"cpuset.cpus.exclusive.effective": {show: showEffectiveExclusive, minKernelMinor: 7},
		"cpuset.cpus.isolated":            {show: showIsolated, atRoot: true, rootOnly: true, minKernelMinor: 8},

		"memory.current":   {show: showUsage},
		"memory.max":       byteFileV2(func(g *group) *int64 { return &g.limit }),
		"memory.high":      byteFileV2(func(g *group) *int64 { return &g.high }),
		"memory.low":       byteFileV2(func(g *group) *int64 { return &g.low }),
		"memory.min":       byteFileV2(func(g *group) *int64 { return &g.protectMin }),
		"memory.swap.max":  byteFileV2(func(g *group) *int64 { return &g.swap }),
		"memory.swap.high": byteFileV2(func(g *group) *int64 { return &g.swapHigh }),
		"memory.oom.group": {show: func(_ *Cgroups, g *group) string { return formatInt(g.oomGroup) }, set: setOOMGroup},
		"memory.reclaim":   {set: setReclaim},
		"memory.numa_stat": {show: showNodeMemory, atRoot: true},

		"io.weight":     {show: showIOWeight, set: setIOWeight},
		"io.max":        {show: showIOMax, set: setIOMax, lines: true},
		"io.bfq.weight": {show: showBFQ, set: setBFQ, optional: true},

		"hugetlb.2MB.max":      hugepageFile("2MB", 2<<20, unlimitedText),
		"hugetlb.2MB.rsvd.max": hugepageFile("2MB.rsvd", 2<<20, unlimitedText),
		"hugetlb.1GB.max":      hugepageFile("1GB", 1<<30, unlimitedText),
		"hugetlb.1GB.rsvd.max": hugepageFile("1GB.rsvd", 1<<30, unlimitedText),
		"hugetlb.2MB.current":  {show: showZero},
		"hugetlb.1GB.current":  {show: showZero},

		"pids.max":     {show: showPids, set: setPids},
		"pids.current": {show: showPidsCurrent},
	}
)

// showZero shows 0. It is for files whose value is always 0 here, such as hugetlb.2MB.current.
func showZero(*Cgroups, *group) string { return "0" }

// Texts returns the texts of all files of a cgroup, by path. In version 1, these are the files in all hierarchies.
func (f *Cgroups) Texts(dir string) map[string]string {
	var files []string
	if f.version == cgroup.V2 {
		for name := range filesV2 {
			files = append(files, dir+"/"+name)
		}
	}
	for controller, table := range filesV1 {
		for name := range table {
			files = append(files, controller+"/"+dir+"/"+name)
		}
	}
	out := map[string]string{}
	for _, file := range files {
		if text, err := f.ReadFile(file); err == nil {
			out[file] = string(text)
		}
	}
	return out
}
