package runtimes

import "github.com/trimtab/trimtab/internal/lifecycle"

// The runtimes that the table knows. A runtime with another name is Unknown.
const (
	Containerd = "containerd"
	CRIO       = "CRI-O"
	ISulad     = "iSulad"
	Docker     = "Docker with cri-dockerd"
	Embedded   = "the embedded runtime"
	Unknown    = "any other runtime"
	// Every means all runtimes: what the kernel or the OCI runtimes refuse.
	Every = "every runtime"
)

// names are the names that runtimes report, in lower case, over NRI and the CRI.
var names = map[string]string{
	"containerd": Containerd, "cri-o": CRIO, "isulad": ISulad, "docker": Docker, "trimtab-sim": Embedded,
	"v2": ISulad, // over NRI: nri_adaption.cc sends the version of its configuration
}

const mebi = 1 << 20

// The calls and protocols of rules.
var (
	creations = []Call{Create}
	all       = []Call{Create, Request, Push}
	overNRI   = []Way{NRI}
	overCRI   = []Way{CRI}
	overAny   = []Way{NRI, CRI}
)

// table has all known rules. Trimtab sends every value that no rule forbids.
var table = []Rule{
	{
		Runtime: Every, Ways: overAny, Calls: all, Field: lifecycle.CPUShares, Least: 2, Most: 262144, Effect: Refuses,
		Source: "runc 1.2, libcontainer/cgroups/fs/cpu.go: \"the minimum allowed cpu-shares is 2\", \"the maximum allowed cpu-shares is 262144\"",
	},
	{
		Runtime: Every, Ways: overAny, Calls: all, Field: lifecycle.CPUQuota, Least: 1000, NoLimit: Taken, Effect: Refuses,
		Source: "Linux, kernel/sched/core.c: min_cfs_quota_period is 1 ms; iSulad, src/daemon/modules/spec/verify.c",
	},
	{
		Runtime: Every, Ways: overAny, Calls: all, Field: lifecycle.CPUPeriod, Least: 1000, Most: 1000000, Effect: Refuses,
		Source: "Linux, kernel/sched/core.c: min_cfs_quota_period is 1 ms, max_cfs_quota_period is 1 s",
	},
	{
		Runtime: CRIO, Ways: overAny, Calls: creations, Field: lifecycle.MemoryLimit, Least: 12 * mebi, Effect: Refuses,
		Source: "recorded from CRI-O 1.36.3: \"set memory limit -1 too low; should be at least 12582912 bytes\"; " +
			"since 1.30 the least value is container_min_memory of the runtime handler, 12 MiB by default",
	},
	{
		Runtime: CRIO, Since: Version{1, 34, 0}, Ways: overAny, Calls: []Call{Request}, Field: lifecycle.MemoryLimit, Least: 1, Effect: Refuses,
		Source: "recorded from CRI-O 1.36.3: \"invalid memory limit: -1 bytes (cannot be negative)\"; server/container_update_resources.go",
	},
	{
		Runtime: CRIO, Since: Version{1, 34, 0}, Ways: overCRI, Calls: []Call{Push}, Field: lifecycle.MemoryLimit, Least: 1, Effect: Refuses,
		Source: "as for the kubelet's updates, which use the same call",
	},
	{
		Runtime: ISulad, Ways: overAny, Calls: all, Field: lifecycle.MemoryLimit, Least: 4 * mebi, Effect: Refuses,
		Source: "iSulad 2.1, src/daemon/modules/spec/verify.c, is_mem_limit_minimum: a limit that is not 0 and below 4 MiB",
	},
	{
		Runtime: Docker, Ways: overAny, Calls: all, Field: lifecycle.MemoryLimit, Least: 6 * mebi, Effect: Refuses,
		Source: "moby, daemon/daemon_unix.go, verifyPlatformContainerResources: \"Minimum memory limit allowed is 6MB\"",
	},
	{
		Runtime: Unknown, Ways: overAny, Calls: all, Field: lifecycle.MemoryLimit, Least: 12 * mebi, Effect: Refuses,
		Source: "unknown: the strictest rule of the others is assumed",
	},
	{
		Runtime: Docker, Ways: overCRI, Calls: all, Field: lifecycle.Unified, Effect: Drops,
		Source: "cri-dockerd 0.3, core/container_create.go: it forwards CPU, memory and cpuset only",
	},
	{
		Runtime: Docker, Ways: overCRI, Calls: all, Field: lifecycle.Hugepages, Effect: Drops,
		Source: "as for unified",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 7, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.OOMScoreAdj, Effect: Drops,
		Source: "NRI 0.7.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: Every, Unless: Containerd, BeforeNRI: Version{0, 10, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "NRI has the field since 0.7 and leaves resolving it to the runtime; CRI-O does since 1.34",
	},
	{
		Runtime: Containerd, Until: Version{1, 7, 30}, Ways: overNRI, Calls: creations, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "containerd change 12650 is in 1.7.30",
	},
	{
		Runtime: Containerd, Since: Version{2, 0, 0}, Until: Version{2, 1, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "containerd change 11675 is in 2.1.0; the backport to 2.0 was rejected (12651)",
	},
	{
		Runtime: Containerd, Until: Version{2, 0, 0}, Ways: overCRI, Calls: creations, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "containerd 1.7 has enable_cdi off by default, 1.6 does not have it",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 4, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.ProcessLimit, Effect: Drops,
		Source: "NRI 0.4.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 10, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.ProcessIO, Effect: Drops,
		Source: "NRI 0.10.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 11, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.ProcessSched, Effect: Drops,
		Source: "NRI 0.11.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 11, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.SysctlEntry, Effect: Drops,
		Source: "NRI 0.11.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 11, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.NetDevice, Effect: Drops,
		Source: "NRI 0.11.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 11, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.IntelRDT, Effect: Drops,
		Source: "NRI 0.11.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: Every, BeforeNRI: Version{0, 12, 0}, Ways: overNRI, Calls: creations, Field: lifecycle.MemPolicy, Effect: Drops,
		Source: "NRI 0.12.0 has the field; the runtimes leave applying it to the library",
	},
	{
		Runtime: ISulad, Ways: overNRI, Calls: creations, Field: lifecycle.BlockIOClass, Effect: Drops,
		Source: "iSulad 2.1, src/daemon/nri: block I/O and RDT classes are not supported",
	},
	{
		Runtime: ISulad, Ways: overNRI, Calls: creations, Field: lifecycle.InjectedHook, Effect: Drops,
		Source: "iSulad 2.1, src/daemon/nri: of the stages it has prestart, poststart and poststop alone",
	},
	{
		Runtime: ISulad, Ways: overNRI, Calls: creations, Field: lifecycle.RDTClass, Effect: Drops,
		Source: "as for block I/O classes",
	},
}
