package script

import "github.com/trimtab/trimtab/internal/cgroup"

// partitionCases returns the cases for cpuset partitions, which only version 2 has.
func partitionCases() []Case {
	tree := steps(mkdir("k"), enable("k", "+cpuset"), mkdir("k/a", "k/b"), enable("k/a", "+cpuset"), mkdir("k/a/c"))
	all := []string{
		"cpuset.cpus.effective", "k/cpuset.cpus.partition", "k/cpuset.cpus.effective", "k/a/cpuset.cpus.partition", "k/a/cpuset.cpus.effective", "k/b/cpuset.cpus.effective",
		"k/cpuset.cpus.exclusive.effective", "k/a/cpuset.cpus.exclusive.effective",
	}
	return []Case{
		{Name: "partition texts", Version: cgroup.V2, NeedsRoot: true, Steps: steps(tree,
			read("k/cpuset.cpus.partition", "k/cpuset.cpus.exclusive", "k/cpuset.cpus.exclusive.effective", "k/cpuset.cpus.isolated", "cpuset.cpus.isolated"),
			writeEach("k/cpuset.cpus.partition", "", "\n", "x", "1", "Root", " root ", "member", "member\n"),
			write("k/cpuset.cpus.partition", "root", all...), write("k/cpuset.cpus.partition", "isolated", all...), write("k/cpuset.cpus.partition", "member", all...),
			writeEach("k/cpuset.cpus.exclusive", oddLists...), write("k/cpuset.cpus.exclusive", "\n", all...),
		)},
		{Name: "a partition", Version: cgroup.V2, NeedsRoot: true, Steps: steps(tree,
			write("k/cpuset.cpus", "2-3", all...), write("k/cpuset.cpus.partition", "root", all...),
			write("k/cpuset.cpus", "1-3", all...), write("k/cpuset.cpus", "2-3", all...),
			write("k/a/cpuset.cpus", "3", all...), write("k/a/cpuset.cpus.partition", "root", all...), write("k/a/cpuset.cpus.partition", "isolated", all...),
			write("k/a/cpuset.cpus.partition", "member", all...), write("k/cpuset.cpus.partition", "isolated", all...),
			write("k/cpuset.cpus.partition", "member", all...), write("k/cpuset.cpus", "\n", all...),
		)},
		{Name: "a partition beside others", Version: cgroup.V2, NeedsRoot: true, Steps: steps(tree, mkdir("l"),
			write("k/cpuset.cpus", "2-3"), write("l/cpuset.cpus", "1-2", "l/cpuset.cpus.effective"),
			write("k/cpuset.cpus.partition", "root", append(all, "l/cpuset.cpus.effective")...),
			write("l/cpuset.cpus", "0-1", "l/cpuset.cpus.effective", "k/cpuset.cpus.partition"), write("k/cpuset.cpus.partition", "root", "l/cpuset.cpus.effective"),
			write("k/cpuset.cpus.partition", "member"), write("k/cpuset.cpus.partition", "root", append(all, "l/cpuset.cpus.effective")...),
			write("l/cpuset.cpus", "0-2", append(all, "l/cpuset.cpus.effective")...), write("l/cpuset.cpus", "3", append(all, "l/cpuset.cpus.effective")...),
			write("l/cpuset.cpus", "\n", append(all, "l/cpuset.cpus.effective")...),
		)},
		{Name: "a remote partition", Version: cgroup.V2, NeedsRoot: true, Steps: steps(tree, mkdir("l"),
			write("k/cpuset.cpus", "1-3", all...), write("k/a/cpuset.cpus", "3"), write("k/a/cpuset.cpus.partition", "root", all...), write("k/a/cpuset.cpus.partition", "member"),
			write("k/a/cpuset.cpus.exclusive", "3", all...), write("k/a/cpuset.cpus.partition", "root", all...), write("k/a/cpuset.cpus.partition", "member"),
			write("k/cpuset.cpus.exclusive", "3", all...), write("l/cpuset.cpus", "0-3", "l/cpuset.cpus.effective"),
			write("k/a/cpuset.cpus.partition", "root", append(all, "l/cpuset.cpus.effective", "l/cpuset.cpus")...),
			write("k/a/cpuset.cpus.partition", "isolated", append(all, "l/cpuset.cpus.effective", "cpuset.cpus.isolated")...),
			write("l/cpuset.cpus", "2-3", append(all, "l/cpuset.cpus.effective")...), write("l/cpuset.cpus.exclusive", "3", append(all, "l/cpuset.cpus.exclusive.effective")...),
			write("k/a/cpuset.cpus.partition", "member", append(all, "l/cpuset.cpus.effective")...),
		)},
		{Name: "a remote partition and a sibling", Version: cgroup.V2, NeedsRoot: true, Steps: steps(tree, mkdir("l"),
			write("k/cpuset.cpus", "1-3"), write("k/cpuset.cpus.exclusive", "3"), write("k/a/cpuset.cpus", "3"), write("k/a/cpuset.cpus.exclusive", "3"),
			write("l/cpuset.cpus", "0-3"), write("k/a/cpuset.cpus.partition", "root", all...),
			write("k/b/cpuset.cpus", "2-3", all...), write("k/a/cpuset.cpus.partition", "isolated", all...),
			write("k/a/cpuset.cpus.exclusive", "2-3", all...), write("k/cpuset.cpus.exclusive", "2-3", all...), write("k/a/cpuset.cpus.exclusive", "2-3", all...),
			write("k/cpuset.cpus.exclusive", "\n", all...), write("k/a/cpuset.cpus.partition", "member", append(all, "l/cpuset.cpus.effective")...),
		)},
		{Name: "a partition and its tasks", Version: cgroup.V2, NeedsRoot: true, Steps: steps(tree,
			spawn("t"), write("k/b/cgroup.procs", "$t"), write("k/cpuset.cpus", "2-3"), write("k/cpuset.cpus.partition", "root", all...),
			write("k/a/cpuset.cpus", "2-3", all...), write("k/a/cpuset.cpus.partition", "root", all...), write("k/a/cpuset.cpus", "3", all...), write("k/a/cpuset.cpus.partition", "root", all...),
			lastCPU(false, all...), lastCPU(true, all...), write("k/cpuset.cpus.partition", "member", all...),
		)},
		// This is the last case, because kernel 6.1 never returns the CPUs to the root afterwards.
		{Name: "a partition that is emptied", Version: cgroup.V2, NeedsRoot: true, Steps: steps(tree,
			write("k/cpuset.cpus", "2-3"), write("k/cpuset.cpus.partition", "root", all...), write("k/cpuset.cpus", "\n", all...), write("k/cpuset.cpus.partition", "member", all...),
			write("k/cpuset.cpus", "2-3"), write("k/cpuset.cpus.partition", "isolated", all...), write("k/cpuset.cpus", "\n", all...), write("k/cpuset.cpus.partition", "member", all...),
		)},
	}
}
