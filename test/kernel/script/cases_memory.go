package script

import "github.com/trimtab/trimtab/internal/cgroup"

const mib = 1 << 20

// memoryCases returns the cases for the memory controller.
func memoryCases() []Case {
	odd := func(file string) []Step { return steps(writeEach(file, oddNumbers...), writeEach(file, oddBytes...)) }
	return []Case{
		{Name: "memory limits", Version: cgroup.V2, Steps: steps(
			mkdir("k"), enable("k", "+memory"), mkdir("k/a"),
			odd("k/memory.max"), odd("k/memory.high"), odd("k/memory.low"), odd("k/memory.min"), odd("k/memory.swap.max"), odd("k/memory.swap.high"),
			writeEach("k/memory.oom.group", oddNumbers...),
			write("k/memory.max", "64M"), write("k/a/memory.max", "128M", "k/memory.max"), write("k/memory.high", "128M"), write("k/memory.low", "128M"), write("k/memory.min", "256M"),
			write("k/a/memory.min", "512M"), write("k/memory.current", "0"),
			read("k/memory.limit_in_bytes", "k/memory.wmark_ratio", "k/memory.priority", "k/memory.reclaim"),
		)},
		{Name: "memory in use", Version: cgroup.V2, Steps: steps(
			mkdir("k"), enable("k", "+memory"), mkdir("k/a"), spawn("t"),
			write("k/a/cgroup.procs", "$t"), grow("t", 32*mib),
			write("k/a/memory.high", "64M"), write("k/a/memory.max", "64M"), write("k/memory.max", "64M", "k/a/cgroup.procs"),
			spawn("u"), write("k/a/cgroup.procs", "$u"), kill("u"),
		)},
		{Name: "memory grown inside", Version: cgroup.V2, Steps: steps(
			mkdir("k"), spawn("t"), write("k/cgroup.procs", "$t"),
			write("k/memory.oom.group", "1"),
			grow("t", 32*mib),
			write("k/memory.max", "8M"), awaitEnd("t", "k/cgroup.procs"),
		)},
		{Name: "memory limits in version 1", Version: cgroup.V1, Steps: steps(
			mkdir("k", "k/a"),
			odd("k/memory.limit_in_bytes"), write("k/memory.limit_in_bytes", "1m"), odd("k/memory.memsw.limit_in_bytes"), write("k/memory.memsw.limit_in_bytes", "-1"),
			odd("k/memory.soft_limit_in_bytes"), writeEach("k/memory.swappiness", oddNumbers...), writeEach("k/memory.swappiness", "100", "101", "200", "201", "60"),
			writeEach("k/memory.use_hierarchy", "0", "1", "2"), writeEach("k/memory.oom_control", "0", "1", "2", "0"), writeEach("k/memory.move_charge_at_immigrate", "0", "4"),
			write("k/memory.limit_in_bytes", "64M"), write("k/memory.memsw.limit_in_bytes", "32M"), write("k/memory.memsw.limit_in_bytes", "128M"), write("k/memory.limit_in_bytes", "256M"),
			write("k/a/memory.limit_in_bytes", "512M"), write("k/memory.memsw.limit_in_bytes", "-1"), write("k/memory.limit_in_bytes", "256M"),
			write("memory.limit_in_bytes", "1G"), write("memory.limit_in_bytes", "-1"), write("memory.memsw.limit_in_bytes", "1G"),
			read("k/memory.max", "k/memory.high", "k/memory.min", "k/memory.low", "k/memory.wmark_ratio", "k/memory.priority", "k/memory.oom.group"),
		), NeedsRoot: true},
		{Name: "memory in use in version 1", Version: cgroup.V1, Steps: steps(
			mkdir("k", "k/a"), spawn("t"), write("memory:k/a/cgroup.procs", "$t"),
			grow("t", 32*mib),
			write("k/a/memory.limit_in_bytes", "64M"), write("k/a/memory.limit_in_bytes", "8M"), write("k/memory.limit_in_bytes", "8M"), write("k/a/memory.memsw.limit_in_bytes", "8M"),
			write("k/memory.limit_in_bytes", "64M", "memory:k/a/cgroup.procs"),
			kill("t"),
		)},
	}
}
