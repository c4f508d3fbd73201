package script

import "github.com/trimtab/trimtab/internal/cgroup"

// cpuCases returns the cases for the cpu controller.
func cpuCases() []Case { return append(cpuCasesV2(), cpuCasesV1()...) }

func cpuCasesV2() []Case {
	onV2 := func(s ...any) []Step { return steps(mkdir("k"), enable("k", "+cpu"), mkdir("k/a"), steps(s...)) }
	return []Case{
		{Name: "cpu.weight", Version: cgroup.V2, Steps: onV2(
			writeEach("k/cpu.weight", oddNumbers...), writeEach("k/cpu.weight", "100", "9999", "10000", "10001", "39", "59", "174"),
			writeEach("k/cpu.weight.nice", "0", "-20", "19", "20", "x"),
			read("k/cpu.weight", "k/cpu.shares", "k/cpu.cfs_quota_us", "k/cpu.bvt_warp_ns", "k/cpu.uclamp.min", "k/cpu.rt_runtime_us"),
		)},
		{Name: "every weight shown", Version: cgroup.V2, Steps: onV2(
			writeEach("k/cpu.weight", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "13", "17", "20", "23", "29", "31", "37", "41", "50", "63", "79", "99", "101",
				"127", "200", "255", "256", "500", "999", "1000", "1001", "2048", "4095", "5000", "8191"),
		)},
		{Name: "cpu.idle", Version: cgroup.V2, Steps: onV2(
			write("k/cpu.weight", "300"),
			writeEach("k/cpu.idle", oddNumbers...),
			write("k/cpu.idle", "1", "k/cpu.weight"), write("k/cpu.weight", "300", "k/cpu.idle"), write("k/cpu.weight.nice", "1"), write("k/cpu.weight", "x"), write("k/cpu.weight", "0"),
			write("k/cpu.idle", "1", "k/cpu.weight"), write("k/cpu.idle", "0", "k/cpu.weight"),
			write("k/cpu.weight", "300"), write("k/cpu.idle", "0", "k/cpu.weight"),
			write("k/a/cpu.weight", "20", "k/cpu.weight"), write("k/a/cpu.idle", "1", "k/a/cpu.weight", "k/cpu.idle"),
		)},
		{Name: "cpu.max", Version: cgroup.V2, Steps: onV2(
			writeEach("k/cpu.max", oddNumbers...),
			writeEach("k/cpu.max", "999", "1000", "1001", "50000", "max 20000", "20000 max", "500 20000", "1000 999", "1000 1000", "5000 1000000", "5000 1000001", "5000 -1",
				"5000 0", "5000 x", "5000 50000x", "5000x 50000", "max max", "maximum", "max 50000 7", "5000 0x1000", "5000 010000", "  7000   80000  ", "7000\n80000",
				"17592186044414 100000", "17592186044415 100000", "17592186044416 100000", "18446744073709551 100000", "18446744073709552 100000",
				"5000 18446744073709551615", "5000 18446744073709551616", "-1 100000", "0 100000", "max 100000"),
			// Quotas of siblings, parents and children do not limit each other.
			write("k/cpu.max", "10000 100000"), write("k/a/cpu.max", "90000 100000"), write("k/cpu.max", "5000 100000"), write("k/a/cpu.max", "max"),
		)},
		{Name: "cpu.max.burst", Version: cgroup.V2, Steps: onV2(
			writeEach("k/cpu.max.burst", oddNumbers...), writeEach("k/cpu.max.burst", "17592186044415", "17592186044416", "0"),
			write("k/cpu.max", "50000 100000"),
			writeEach("k/cpu.max.burst", "50001", "50000", "49999", "-1"),
			write("k/cpu.max", "49998 100000", "k/cpu.max.burst"), write("k/cpu.max", "49999 100000"), write("k/cpu.max", "60000 200000"),
			write("k/cpu.max", "max", "k/cpu.max.burst"), write("k/cpu.max.burst", "70000"), write("k/cpu.max", "60000", "k/cpu.max.burst"), write("k/cpu.max.burst", "0"),
			write("k/cpu.max", "60000"), write("k/cpu.max.burst", "30000", "k/cpu.max"),
		)},
	}
}

func cpuCasesV1() []Case {
	return []Case{
		{Name: "cpu.shares", Version: cgroup.V1, Steps: steps(
			mkdir("k", "k/a"),
			writeEach("k/cpu.shares", oddNumbers...), writeEach("k/cpu.shares", "3", "1023", "1024", "262143", "262144", "262145"),
			read("k/cpu.weight", "k/cpu.max", "k/cpu.bvt_warp_ns", "k/cpu.uclamp.min", "k/cpu.rt_runtime_us", "k/a/cpu.shares"),
			write("cpu.shares", "2048"), write("cpu.idle", "1"), write("cpu.cfs_quota_us", "50000"), write("cpu.cfs_quota_us", "-1"), write("cpu.cfs_period_us", "50000"),
			read("cpu.shares", "cpu.idle", "cpu.cfs_quota_us", "cpu.cfs_burst_us"),
		), NeedsRoot: true},
		{Name: "cpu.idle in version 1", Version: cgroup.V1, Steps: steps(
			mkdir("k"), write("k/cpu.shares", "300"),
			writeEach("k/cpu.idle", oddNumbers...),
			write("k/cpu.idle", "1", "k/cpu.shares"), write("k/cpu.shares", "300", "k/cpu.idle"), write("k/cpu.shares", "x"), write("k/cpu.shares", "0"), write("k/cpu.shares", ""),
			write("k/cpu.idle", "0", "k/cpu.shares"), write("k/cpu.shares", "300"), write("k/cpu.idle", "0", "k/cpu.shares"),
		)},
		{Name: "cpu.cfs_quota_us", Version: cgroup.V1, Steps: steps(
			mkdir("k", "k/a", "k/b"),
			writeEach("k/cpu.cfs_quota_us", oddNumbers...),
			writeEach("k/cpu.cfs_quota_us", "-2", "999", "1000", "17592186044415", "17592186044416", "18446744073709551", "100000"),
			writeEach("k/cpu.cfs_period_us", oddNumbers...),
			writeEach("k/cpu.cfs_period_us", "999", "1000", "1000000", "1000001", "100000"),
			write("k/a/cpu.cfs_quota_us", "100001"), write("k/a/cpu.cfs_quota_us", "100000"), write("k/cpu.cfs_quota_us", "99999"),
			write("k/cpu.cfs_quota_us", "200000"), write("k/a/cpu.cfs_quota_us", "200000"), write("k/b/cpu.cfs_quota_us", "200000"), write("k/cpu.cfs_period_us", "200000"),
			write("k/a/cpu.cfs_period_us", "200000"), write("k/b/cpu.cfs_period_us", "200000"), write("k/cpu.cfs_period_us", "200000"),
			write("k/a/cpu.cfs_period_us", "50000"), write("k/a/cpu.cfs_quota_us", "-1"), write("k/cpu.cfs_quota_us", "-1"), write("k/a/cpu.cfs_quota_us", "400000"),
		)},
		{Name: "cpu.cfs_burst_us", Version: cgroup.V1, Steps: steps(
			mkdir("k", "k/a"),
			writeEach("k/cpu.cfs_burst_us", oddNumbers...), writeEach("k/cpu.cfs_burst_us", "17592186044415", "17592186044416", "0"),
			write("k/cpu.cfs_quota_us", "50000"),
			writeEach("k/cpu.cfs_burst_us", "50001", "50000", "49999", "-1"),
			write("k/cpu.cfs_quota_us", "49998", "k/cpu.cfs_burst_us"), write("k/cpu.cfs_quota_us", "60000"), write("k/cpu.cfs_quota_us", "-1", "k/cpu.cfs_burst_us"),
			write("k/cpu.cfs_burst_us", "70000"), write("k/cpu.cfs_quota_us", "60000", "k/cpu.cfs_burst_us"), write("k/cpu.cfs_burst_us", "0"), write("k/cpu.cfs_quota_us", "60000"),
		)},
	}
}
