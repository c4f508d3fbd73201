package script

import "github.com/trimtab/trimtab/internal/cgroup"

// probeCases returns the cases with the agent's probes of kernel features.
func probeCases() []Case {
	features := []string{
		"cpu", "cpuset", "memory", "io", "blkio", "hugetlb", "nonsense", "cpu.idle", "cpu.max.burst", "cpu.bvt_warp_ns", "cpu.uclamp.min", "cpu.weight", "cpuset.cpus.partition",
		"cpuset.cpus.exclusive", "memory.min", "memory.high", "memory.swap.max", "memory.oom.group", "memory.wmark_ratio", "io.bfq.weight", "pids.max", "nonsense.max",
	}
	return []Case{
		{Name: "probes", NeedsRoot: true, Steps: steps(
			probe(features...), mkdir("k"), probe(features...), mkdir("kubepods"), probe(features...),
		)},
		{Name: "probes without controllers", Version: cgroup.V2, NeedsRoot: true, Steps: steps(
			mkdir("k"), enable("", "-cpu -memory"), probe(features...), mkdir("kubepods"), probe(features...), enable("", "+cpu +memory"), probe(features...),
		)},
	}
}
