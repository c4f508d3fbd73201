package script

import "github.com/trimtab/trimtab/internal/cgroup"

// treeCases returns the cases for making and removing cgroups, enabling controllers and moving tasks.
func treeCases() []Case { return append(treeCasesV2(), treeCasesV1()...) }

func treeCasesV2() []Case {
	return []Case{
		{Name: "directories", Steps: steps(
			mkdir("k", "k", "k/a", "k/a/b", "none/a", "k/a.b", "k/a b"),
			rmdir("k/a"), rmdir("none"), rmdir("k/a/b"), rmdir("k/a"), rmdir("k/a"),
		)},
		{Name: "controllers", Version: cgroup.V2, Steps: steps(
			read("cgroup.type", "cpu.max", "cpu.weight", "cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems.effective", "cpuset.cpus.partition",
				"memory.max", "memory.current", "io.weight", "io.max", "pids.max", "hugetlb.2MB.max"),
			mkdir("k", "k/a"),
			read("k/cgroup.controllers", "k/cgroup.subtree_control", "k/cgroup.type", "k/a/cgroup.controllers", "k/a/cpu.max", "k/a/cpuset.cpus", "k/a/memory.max"),
			writeEach("k/cgroup.subtree_control", "", "\n", " ", "cpu", "+cpu", "+cpu", "+nonsense", "-nonsense", "+cpu -cpu", "-cpu +cpu", "+CPU", "+ cpu",
				"+cpuset +memory", "+memory\n", "  +pids  ", "-pids", "-pids", "+cpu,+memory", "-memory +nonsense", "+", "-"),
			write("k/a/cgroup.subtree_control", "+memory", "k/a/cgroup.controllers"),
			write("k/a/cgroup.subtree_control", "+io", "k/a/cgroup.controllers"),
			write("k/cgroup.subtree_control", "-memory", "k/a/cgroup.controllers", "k/a/memory.max"),
			write("k/a/cgroup.subtree_control", "-memory"),
			write("k/a/memory.max", "1G"),
			write("k/cgroup.subtree_control", "-memory", "k/a/cgroup.controllers", "k/a/memory.max"),
			write("k/cgroup.subtree_control", "+memory", "k/a/memory.max"),
			write("k/a/cpuset.cpus", "0"), write("k/a/cpu.weight", "7"), write("k/a/cpu.max", "5000 10000"),
			write("k/cgroup.subtree_control", "-cpuset -cpu"),
			write("k/cgroup.subtree_control", "+cpuset +cpu", "k/a/cpuset.cpus", "k/a/cpuset.cpus.effective", "k/a/cpu.weight", "k/a/cpu.max"),
			write("k/cgroup.controllers", "cpu"), write("k/none", "1"), write("none/cpu.max", "max"), read("k/none"),
		)},
		{Name: "tasks in version 2", Version: cgroup.V2, Steps: steps(
			mkdir("k", "k/a"), spawn("t"),
			write("k/cgroup.procs", "$t"),
			write("k/cgroup.subtree_control", "+memory"), rmdir("k"),
			write("k/a/cgroup.procs", "$t", "k/cgroup.procs"),
			write("k/cgroup.subtree_control", "+cpuset +cpu +memory"),
			write("k/cgroup.procs", "$t", "k/a/cgroup.procs"),
			write("k/a/cgroup.subtree_control", "+memory"),
			rmdir("k/a"),
			writeEach("k/a/cgroup.procs", "", "\n", "x", "-1", "999999999", " $t", "$t\n", "$t 1", "1.5"),
			kill("t", "k/a/cgroup.procs"),
			rmdir("k/a"),
		)},
		{Name: "a cgroup of threads by its tasks", Version: cgroup.V2, Steps: steps(
			mkdir("k", "k/a"), spawn("t"), write("k/cgroup.procs", "$t"),
			write("k/cgroup.subtree_control", "+memory"), write("k/cgroup.subtree_control", "+cpu", "k/cgroup.type", "k/a/cgroup.type"),
			write("k/cgroup.subtree_control", "+memory"), write("k/cgroup.subtree_control", "+cpuset"),
			write("k/a/cgroup.procs", "$t", "k/cgroup.procs"), write("k/a/cgroup.subtree_control", "+cpu"), write("k/a/cpu.weight", "3"),
			kill("t", "k/cgroup.type", "k/a/cgroup.type"), write("k/cgroup.subtree_control", "+memory", "k/a/cgroup.type"),
		)},
		{Name: "threaded cgroups", Version: cgroup.V2, Steps: steps(
			mkdir("k", "k/a", "k/a/b"),
			writeEach("k/a/cgroup.type", "", "\n", "x", "domain", "invalid"),
			write("k/a/cgroup.type", "threaded", "k/cgroup.type", "k/a/b/cgroup.type"),
			write("k/a/cgroup.type", "threaded"), write("k/a/cgroup.type", "domain"),
			write("k/cgroup.subtree_control", "+cpu"), write("k/cgroup.subtree_control", "+memory"),
			write("k/a/cpu.weight", "3"),
		)},
	}
}

func treeCasesV1() []Case {
	return []Case{
		{Name: "tasks in version 1", Version: cgroup.V1, Steps: steps(
			mkdir("k", "k/a"), spawn("t"),
			write("cpuset:k/cgroup.procs", "$t"), write("cpu:k/cgroup.procs", "$t"), write("memory:k/cgroup.procs", "$t"),
			write("cpuset.cpus", "0"),
			write("k/cpuset.cpus", "0"), write("cpuset:k/cgroup.procs", "$t"),
			write("k/cpuset.mems", "0"), write("cpuset:k/cgroup.procs", "$t"),
			write("k/cpuset.cpus", "\n"), write("k/cpuset.mems", "\n"), write("k/cpuset.cpus", "1"),
			write("cpuset:k/a/cgroup.procs", "$t", "cpuset:k/cgroup.procs"),
			write("k/a/cpuset.cpus", "1"), write("k/a/cpuset.mems", "0"), write("cpuset:k/a/cgroup.procs", "$t", "cpuset:k/cgroup.procs"),
			write("k/cpuset.cpus", "\n"), write("k/a/cpuset.cpus", "\n"), write("k/a/cpuset.mems", "\n"),
			rmdir("k/a"), rmdir("k"),
			writeEach("cpuset:k/cgroup.procs", "", "\n", "x", "-1", "999999999", " $t", "$t\n", "$t 1", "1.5"),
			writeEach("cpuset:k/tasks", "$t"),
			kill("t", "cpuset:k/cgroup.procs"), rmdir("k/a"), rmdir("k"),
		), NeedsRoot: true},
	}
}
