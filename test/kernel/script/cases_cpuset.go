package script

import "github.com/trimtab/trimtab/internal/cgroup"

// cpusetCases returns the cases for the cpuset controller, without partitions.
func cpusetCases() []Case {
	return append(cpusetCasesV2(), cpusetCasesV1()...)
}

func cpusetCasesV2() []Case {
	onV2 := func(s ...any) []Step {
		return steps(mkdir("k"), enable("k", "+cpuset"), mkdir("k/a", "k/b"), enable("k/a", "+cpuset"), mkdir("k/a/c"), steps(s...))
	}
	eff := []string{"k/cpuset.cpus.effective", "k/a/cpuset.cpus", "k/a/cpuset.cpus.effective", "k/a/c/cpuset.cpus.effective"}
	effMems := []string{"k/cpuset.mems.effective", "k/a/cpuset.mems", "k/a/cpuset.mems.effective", "k/a/c/cpuset.mems.effective"}
	return []Case{
		{Name: "cpuset lists", Version: cgroup.V2, Steps: onV2(
			writeEach("k/cpuset.cpus", oddLists...), write("k/cpuset.cpus", "\n", eff...),
			writeEach("k/cpuset.mems", oddLists...), write("k/cpuset.mems", "\n", effMems...),
			write("k/cpuset.cpus.effective", "0"), write("k/cpuset.mems.effective", "0"),
			read("k/cpuset.cpu_exclusive", "k/cpuset.memory_migrate", "k/cpuset.memory_spread_page", "k/cpuset.effective_cpus", "k/cgroup.clone_children"),
		)},
		{Name: "cpusets of parents and children", Version: cgroup.V2, Steps: onV2(
			write("k/a/cpuset.cpus", "0", eff...), write("k/cpuset.cpus", "0-2", eff...), write("k/a/cpuset.cpus", "2-3", eff...), write("k/a/cpuset.cpus", "3", eff...),
			write("k/cpuset.cpus", "3", eff...), write("k/cpuset.cpus", "0", eff...), write("k/a/c/cpuset.cpus", "3", eff...), write("k/a/cpuset.cpus", "\n", eff...),
			write("k/cpuset.cpus", "\n", eff...), write("k/b/cpuset.cpus", "0-3", "k/b/cpuset.cpus.effective"), write("k/b/cpuset.cpus", "\n", "k/b/cpuset.cpus.effective"),
			write("k/a/cpuset.mems", "0", effMems...), write("k/cpuset.mems", "1", effMems...), write("k/cpuset.mems", "0-1", effMems...), write("k/a/c/cpuset.mems", "1", effMems...),
			write("k/a/cpuset.mems", "\n", effMems...), write("k/cpuset.mems", "\n", effMems...),
		)},
		{Name: "cpusets with tasks", Version: cgroup.V2, Steps: onV2(
			spawn("t"), write("k/a/c/cgroup.procs", "$t"),
			write("k/a/c/cpuset.cpus", "1", "k/a/c/cpuset.cpus.effective"), write("k/a/c/cpuset.cpus", "\n", "k/a/c/cpuset.cpus.effective"),
			write("k/a/cpuset.cpus", "2", eff...), write("k/a/c/cpuset.cpus", "1", "k/a/c/cpuset.cpus.effective"),
			write("k/a/c/cpuset.mems", "1", "k/a/c/cpuset.mems.effective"), write("k/a/c/cpuset.mems", "\n", "k/a/c/cpuset.mems.effective"),
			write("k/a/c/cpuset.mems", "0", "k/a/c/cpuset.mems.effective"), rmdir("k/a/c"), kill("t"), rmdir("k/a/c"),
		)},
		{Name: "CPUs offline", Version: cgroup.V2, NeedsRoot: true, Steps: onV2(
			write("k/cpuset.cpus", "2-3", eff...), write("k/a/cpuset.cpus", "3", eff...), spawn("t"), write("k/a/c/cgroup.procs", "$t"),
			lastCPU(false, append(eff, "k/cpuset.cpus", "cpuset.cpus.effective")...),
			write("k/b/cpuset.cpus", "3", "k/b/cpuset.cpus.effective"), write("k/b/cpuset.cpus", "2-3", "k/b/cpuset.cpus.effective"), write("k/cpuset.cpus", "3", eff...),
			write("k/a/c/cpuset.cpus", "3", "k/a/c/cpuset.cpus.effective"), write("k/a/c/cpuset.cpus", "0", "k/a/c/cpuset.cpus.effective"),
			write("k/a/cpuset.cpus", "0", eff...),
			lastCPU(true, append(eff, "k/cpuset.cpus", "cpuset.cpus.effective")...), write("k/a/cpuset.cpus", "3", eff...), write("k/cpuset.cpus", "2-3", eff...),
		)},
	}
}

func cpusetCasesV1() []Case {
	own := []string{"k/a/cpuset.cpus", "k/a/cpuset.effective_cpus", "k/cpuset.effective_cpus"}
	ready := steps(mkdir("k", "k/a", "k/b"), write("k/cpuset.cpus", "0-3"), write("k/cpuset.mems", "0-1"))
	flags := []string{"cpu_exclusive", "mem_exclusive", "mem_hardwall", "memory_migrate", "memory_spread_page", "memory_spread_slab", "sched_load_balance", "sched_relax_domain_level"}
	var flagSteps []Step
	for _, f := range flags {
		flagSteps = append(flagSteps, read("k/cpuset."+f))
		flagSteps = append(flagSteps, writeEach("k/cpuset."+f, oddNumbers...)...)
		flagSteps = append(flagSteps, write("k/cpuset."+f, "0"))
	}
	return []Case{
		{Name: "cpuset lists in version 1", Version: cgroup.V1, Steps: steps(
			mkdir("k", "k/a"), read("k/cpuset.cpus", "k/cpuset.mems", "k/cpuset.effective_cpus", "k/cpuset.effective_mems"),
			write("k/a/cpuset.cpus", "0"), write("k/a/cpuset.mems", "0"),
			writeEach("k/cpuset.cpus", oddLists...), writeEach("k/cpuset.mems", oddLists...),
			write("k/cpuset.effective_cpus", "0"), write("k/cpuset.effective_mems", "0"),
			write("cpuset.cpus", "0"), write("cpuset.mems", "0"), write("cpuset.cpus", "\n"),
			read("k/cpuset.cpus.effective", "k/cpuset.cpus.partition", "k/cpuset.mems.effective"),
		), NeedsRoot: true},
		{Name: "cpusets of parents and children in version 1", Version: cgroup.V1, Steps: steps(ready,
			write("k/a/cpuset.cpus", "0-1", own...), write("k/cpuset.cpus", "0", own...), write("k/cpuset.cpus", "1-3", own...), write("k/cpuset.cpus", "0-2", own...),
			write("k/a/cpuset.cpus", "3", own...), write("k/a/cpuset.cpus", "2-3", own...), write("k/a/cpuset.cpus", "2", own...), write("k/cpuset.cpus", "2", own...),
			write("k/cpuset.cpus", "\n", own...), write("k/a/cpuset.cpus", "\n", own...), write("k/cpuset.cpus", "\n", own...), write("k/cpuset.cpus", "0-3", own...),
			write("k/a/cpuset.mems", "1"), write("k/cpuset.mems", "0"), write("k/cpuset.mems", "1"), write("k/a/cpuset.mems", "0"), write("k/cpuset.mems", "0-1"), write("k/a/cpuset.mems", "0"),
		)},
		{Name: "cloned cpusets", Version: cgroup.V1, Steps: steps(ready,
			writeEach("cpuset:k/cgroup.clone_children", oddNumbers...), write("cpuset:k/cgroup.clone_children", "1"), mkdir("k/d", "k/d/e"),
			read("k/d/cpuset.cpus", "k/d/cpuset.mems", "cpuset:k/d/cgroup.clone_children", "k/d/e/cpuset.cpus"),
		)},
		{Name: "cpuset flags", Version: cgroup.V1, Steps: steps(ready, flagSteps,
			write("k/cpuset.cpu_exclusive", "1"), write("k/a/cpuset.cpus", "0-1"), write("k/b/cpuset.cpus", "1-2"), write("k/a/cpuset.cpu_exclusive", "1"),
			write("k/b/cpuset.cpus", "2"), write("k/a/cpuset.cpu_exclusive", "1"), write("k/b/cpuset.cpus", "1-2"), write("k/a/cpuset.cpus", "0-2"), write("k/b/cpuset.cpu_exclusive", "1"),
			write("k/cpuset.cpu_exclusive", "0"), write("k/b/cpuset.cpu_exclusive", "0"), write("k/a/cpuset.cpu_exclusive", "0"), write("k/cpuset.cpu_exclusive", "0"),
			write("k/a/cpuset.mems", "0"), write("k/b/cpuset.mems", "0"), write("k/cpuset.mem_exclusive", "1"), write("k/a/cpuset.mem_exclusive", "1"), write("k/b/cpuset.mems", "1"),
			write("k/a/cpuset.mem_exclusive", "1"), write("k/b/cpuset.mems", "0-1"), write("k/a/cpuset.mems", "0-1"),
		)},
		{Name: "CPUs offline in version 1", Version: cgroup.V1, NeedsRoot: true, Steps: steps(ready,
			write("k/a/cpuset.cpus", "2-3"), write("k/b/cpuset.cpus", "3"), write("k/b/cpuset.mems", "0"), write("k/a/cpuset.mems", "0"), spawn("t"), write("cpuset:k/b/cgroup.procs", "$t"),
			lastCPU(false, append(own, "k/cpuset.cpus", "k/b/cpuset.cpus", "k/b/cpuset.effective_cpus", "cpuset:k/b/cgroup.procs", "cpuset:k/cgroup.procs", "cpuset.cpus")...),
			write("k/b/cpuset.cpus", "3"), write("k/a/cpuset.cpus", "2-3", own...), write("cpuset:k/b/cgroup.procs", "$t"),
			lastCPU(true, append(own, "k/cpuset.cpus", "k/b/cpuset.cpus", "k/b/cpuset.effective_cpus", "cpuset.cpus")...),
			write("k/b/cpuset.cpus", "3", "k/b/cpuset.effective_cpus"), write("k/cpuset.cpus", "0-3", own...), write("k/b/cpuset.cpus", "3", "k/b/cpuset.effective_cpus"),
		)},
	}
}
