package script

import "github.com/trimtab/trimtab/internal/cgroup"

// deviceCases returns the cases for block devices, huge pages and pids.max.
func deviceCases() []Case {
	return []Case{
		{Name: "pids.max", Steps: steps(
			mkdir("k"), writeEach("k/pids.max", oddNumbers...), writeEach("k/pids.max", "4194304", "4194305", "4194306", "7"), read("k/pids.current", "pids.max"),
		)},
		{Name: "hugetlb", Version: cgroup.V2, Steps: steps(
			mkdir("k"), writeEach("k/hugetlb.2MB.max", oddNumbers...), writeEach("k/hugetlb.2MB.max", oddBytes...), writeEach("k/hugetlb.2MB.max", "2097151", "2097152", "2097153", "4M"),
			writeEach("k/hugetlb.2MB.rsvd.max", "4M", "max"), writeEach("k/hugetlb.3MB.max", "4M"), read("k/hugetlb.1GB.max", "k/hugetlb.2MB.current"),
		)},
		{Name: "hugetlb in version 1", Version: cgroup.V1, Steps: steps(
			mkdir("k"), writeEach("k/hugetlb.2MB.limit_in_bytes", oddNumbers...), writeEach("k/hugetlb.2MB.limit_in_bytes", oddBytes...),
			writeEach("k/hugetlb.2MB.limit_in_bytes", "2097151", "2097152", "2097153", "4M", "-1"),
			read("k/hugetlb.2MB.usage_in_bytes", "k/hugetlb.2MB.max"), write("hugetlb.2MB.limit_in_bytes", "4M"),
		), NeedsRoot: true},
		{Name: "io.weight", Version: cgroup.V2, Steps: steps(
			mkdir("k"), writeEach("k/io.weight", oddNumbers...),
			writeEach("k/io.weight", "10000", "10001", "default 50", "default", "default 0", "default x", "default  60", " default 70", "$dev 200", "$dev 0", "$dev 10001", "$dev default", "$dev",
				"254:99 100", "0:0 100", "x:y 100", "100"),
			writeEach("k/io.bfq.weight", "", "\n", "0", "1", "1000", "1001", "default 50", "$dev 100", "$dev default", "x", "100"),
			read("io.weight", "k/io.latency", "k/io.prio.class", "k/io.cost.qos", "k/blkio.weight"),
		)},
		{Name: "io.max", Version: cgroup.V2, Steps: steps(
			mkdir("k"), writeEach("k/io.max", "", "\n", " ", "1", "1 2", "max", "x"),
			writeEach("k/io.max", "$dev rbps=1048576", "$dev wbps=1M", "$dev wbps=2097152 riops=100", "$dev wiops=max", "$dev rbps=0", "$dev rbps=-1", "$dev rbps=x", "$dev rbps=", "$dev rbps",
				"$dev nonsense=1", "$dev", "$dev riops=4294967295", "$dev riops=4294967296", "$dev rbps=18446744073709551615", "$dev rbps=18446744073709551616",
				"$dev rbps=1 rbps=2", "  $dev   rbps=7  ", "254:99 rbps=1", "0:0 rbps=1", "$dev rbps=max wbps=max riops=max wiops=max"),
		)},
		{Name: "blkio", Version: cgroup.V1, Steps: steps(
			mkdir("k"),
			writeEach("k/blkio.throttle.read_bps_device", "", "\n", " ", "1", "1 2", "max", "x"),
			writeEach("k/blkio.throttle.read_bps_device", "$dev 1048576", "$dev 1M", "$dev 0", "$dev -1", "$dev max", "$dev x", "$dev", "254:99 1", "0:0 1", "$dev 18446744073709551615", "$dev 0"),
			writeEach("k/blkio.throttle.write_bps_device", "$dev 1048576", "$dev 0"), writeEach("k/blkio.throttle.read_iops_device", "$dev 100", "$dev 4294967295", "$dev 4294967296", "$dev 0"),
			writeEach("k/blkio.throttle.write_iops_device", "$dev 100", "$dev 0"),
			writeEach("k/blkio.bfq.weight", "", "\n", "0", "1", "1000", "1001", "x", "100", "default 7"), writeEach("k/blkio.bfq.weight_device", "$dev 100", "$dev default", "$dev 0"),
			read("k/blkio.weight", "k/blkio.cost.weight", "k/blkio.cost.qos", "blkio.cost.qos", "k/io.max"),
		)},
	}
}
