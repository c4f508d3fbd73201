package runtimes

import "github.com/trimtab/trimtab/internal/lifecycle"

// The names of the runtimes in the table. A runtime with another name is UnknownRuntime.
const (
	Containerd      = "containerd"
	CRIO            = "CRI-O"
	ISulad          = "iSulad"
	Docker          = "Docker with cri-dockerd"
	EmbeddedRuntime = "the embedded runtime"
	UnknownRuntime  = "any other runtime"
	// EveryRuntime means all runtimes. Rules with this name describe the kernel, the OCI runtimes, or the NRI library.
	EveryRuntime = "every runtime"
)

// reportedNames maps the names that runtimes report over NRI and the CRI, in lower case, to the names of this package.
var reportedNames = map[string]string{
	"containerd": Containerd, "cri-o": CRIO, "isulad": ISulad, "docker": Docker, "trimtab-sim": EmbeddedRuntime,
	"v2": ISulad, // over NRI, iSulad sends the version of its configuration instead of its name (nri_adaption.cc)
}

const mebibyte = 1 << 20

// Lists of calls and protocols that several rules share.
var (
	createOnly = []Call{CreateCall}
	allCalls   = []Call{CreateCall, KubeletUpdate, AgentUpdate}
	nriOnly    = []Protocol{NRI}
	criOnly    = []Protocol{CRI}
	nriAndCRI  = []Protocol{NRI, CRI}
)

// allRules has all known rules. Trimtab sends every value that no rule forbids.
var allRules = []Rule{
	{
		Runtime: EveryRuntime, Protocols: nriAndCRI, Calls: allCalls, Field: lifecycle.CPUShares, Min: 2, Max: 262144, Effect: Refuses,
		Source: "runc 1.2, libcontainer/cgroups/fs/cpu.go: \"the minimum allowed cpu-shares is 2\", \"the maximum allowed cpu-shares is 262144\"",
	},
	{
		Runtime: EveryRuntime, Protocols: nriAndCRI, Calls: allCalls, Field: lifecycle.CPUQuota, Min: 1000, NoLimit: AcceptsNoLimit, Effect: Refuses,
		Source: "Linux, kernel/sched/core.c: min_cfs_quota_period is 1 ms; iSulad, src/daemon/modules/spec/verify.c",
	},
	{
		Runtime: EveryRuntime, Protocols: nriAndCRI, Calls: allCalls, Field: lifecycle.CPUPeriod, Min: 1000, Max: 1000000, Effect: Refuses,
		Source: "Linux, kernel/sched/core.c: min_cfs_quota_period is 1 ms, max_cfs_quota_period is 1 s",
	},
	{
		Runtime: CRIO, Protocols: nriAndCRI, Calls: createOnly, Field: lifecycle.MemoryLimit, Min: 12 * mebibyte, Effect: Refuses,
		Source: "recorded from CRI-O 1.36.3: \"set memory limit -1 too low; should be at least 12582912 bytes\"; " +
			"since 1.30 the least value is container_min_memory of the runtime handler, 12 MiB by default",
	},
	{
		Runtime: CRIO, Since: Version{1, 34, 0}, Protocols: nriAndCRI, Calls: []Call{KubeletUpdate}, Field: lifecycle.MemoryLimit, Min: 1, Effect: Refuses,
		Source: "recorded from CRI-O 1.36.3: \"invalid memory limit: -1 bytes (cannot be negative)\"; server/container_update_resources.go",
	},
	{
		Runtime: CRIO, Since: Version{1, 34, 0}, Protocols: criOnly, Calls: []Call{AgentUpdate}, Field: lifecycle.MemoryLimit, Min: 1, Effect: Refuses,
		Source: "an update that the agent sends over the CRI is the same call as an update of the kubelet: server/container_update_resources.go",
	},
	{
		Runtime: ISulad, Protocols: nriAndCRI, Calls: allCalls, Field: lifecycle.MemoryLimit, Min: 4 * mebibyte, Effect: Refuses,
		Source: "iSulad 2.1, src/daemon/modules/spec/verify.c, is_mem_limit_minimum: a limit that is not 0 and below 4 MiB",
	},
	{
		Runtime: Docker, Protocols: nriAndCRI, Calls: allCalls, Field: lifecycle.MemoryLimit, Min: 6 * mebibyte, Effect: Refuses,
		Source: "moby, daemon/daemon_unix.go, verifyPlatformContainerResources: \"Minimum memory limit allowed is 6MB\"",
	},
	{
		Runtime: UnknownRuntime, Protocols: nriAndCRI, Calls: allCalls, Field: lifecycle.MemoryLimit, Min: 12 * mebibyte, Effect: Refuses,
		Source: "an assumption: the strictest rule of the other runtimes",
	},
	{
		Runtime: Docker, Protocols: criOnly, Calls: allCalls, Field: lifecycle.Unified, Effect: Drops,
		Source: "cri-dockerd 0.3, core/container_create.go: cri-dockerd forwards only CPU, memory and cpuset",
	},
	{
		Runtime: Docker, Protocols: criOnly, Calls: allCalls, Field: lifecycle.Hugepages, Effect: Drops,
		Source: "cri-dockerd 0.3, core/container_create.go: cri-dockerd forwards only CPU, memory and cpuset",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 7, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.OOMScoreAdj, Effect: Drops,
		Source: "NRI 0.7.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: EveryRuntime, Unless: Containerd, BeforeNRI: Version{0, 10, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "NRI has the field since 0.7, but the runtime must resolve the name of the device; CRI-O does so since 1.34",
	},
	{
		Runtime: Containerd, Until: Version{1, 7, 30}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "containerd pull request 12650 is in 1.7.30",
	},
	{
		Runtime: Containerd, Since: Version{2, 0, 0}, Until: Version{2, 1, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "containerd pull request 11675 is in 2.1.0; its backport to 2.0 was rejected (12651)",
	},
	{
		Runtime: Containerd, Until: Version{2, 0, 0}, Protocols: criOnly, Calls: createOnly, Field: lifecycle.CDIDevice, Effect: Drops,
		Source: "in containerd 1.7 the option enable_cdi is off by default; 1.6 does not have this option",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 4, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.ProcessLimit, Effect: Drops,
		Source: "NRI 0.4.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 10, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.ProcessIO, Effect: Drops,
		Source: "NRI 0.10.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 11, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.ProcessSched, Effect: Drops,
		Source: "NRI 0.11.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 11, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.SysctlEntry, Effect: Drops,
		Source: "NRI 0.11.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 11, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.NetDevice, Effect: Drops,
		Source: "NRI 0.11.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 11, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.IntelRDT, Effect: Drops,
		Source: "NRI 0.11.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: EveryRuntime, BeforeNRI: Version{0, 12, 0}, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.MemPolicy, Effect: Drops,
		Source: "NRI 0.12.0 added the field, and the NRI library in the runtime applies the value",
	},
	{
		Runtime: ISulad, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.BlockIOClass, Effect: Drops,
		Source: "iSulad 2.1, src/daemon/nri: block I/O and RDT classes are not supported",
	},
	{
		Runtime: ISulad, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.InjectedHook, Effect: Drops,
		Source: "iSulad 2.1, src/daemon/nri: iSulad supports only the stages prestart, poststart and poststop",
	},
	{
		Runtime: ISulad, Protocols: nriOnly, Calls: createOnly, Field: lifecycle.RDTClass, Effect: Drops,
		Source: "iSulad 2.1, src/daemon/nri: block I/O and RDT classes are not supported",
	},
}
