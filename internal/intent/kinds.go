package intent

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Kind is a kind of request that a pod can make, as authorization rules name it.
type Kind string

// The kinds.
const (
	ClassSystem      Kind = "class/system"
	ClassDedicated   Kind = "class/dedicated"
	ClassShared      Kind = "class/shared"
	ClassReclaimed   Kind = "class/reclaimed"
	AssignedCPUs     Kind = "assigned-cpus"
	NUMANodes        Kind = "numa-nodes"
	NUMAExclusive    Kind = "numa-exclusive"
	CPUPreference    Kind = "cpu-preference"
	NamedPool        Kind = "pool"
	BatchResources   Kind = "batch"
	GPUEnv           Kind = "gpu"
	GPULibrary       Kind = "gpu-library"
	CPUQoSKind       Kind = "cpu-qos"
	Quota            Kind = "quota"
	HugepageLimits   Kind = "hugepages"
	DiskLimits       Kind = "disk-limits"
	BlockIO          Kind = "block-io-class"
	OOMScore         Kind = "oom-score"
	RDT              Kind = "rdt"
	CoreSched        Kind = "core-sched"
	Preemption       Kind = "preemptable"
	MemoryProtection Kind = "memory-protection"
	BurstKind        Kind = "cpu-burst"
	CacheLimit       Kind = "cache-limit"
	CPUEnvKind       Kind = "cpu-env"
	Devices          Kind = "devices"
	Mounts           Kind = "mounts"
	UlimitsKind      Kind = "ulimits"
	IOPrioKind       Kind = "io-priority"
	SchedKind        Kind = "scheduler"
	MemPolicyKind    Kind = "memory-policy"
	SysctlKind       Kind = "sysctl"
	DeviceNodeKind   Kind = "device-nodes"
	CDIKind          Kind = "cdi-devices"
	NetDeviceKind    Kind = "network-devices"
	BalloonKind      Kind = "balloon"
	ThreadsKind      Kind = "hyperthreads"
	PreserveKind     Kind = "preserve"
	MemoryTypeKind   Kind = "memory-type"
	OCIHookKind      Kind = "oci-hooks"
	CgroupKind       Kind = "writable-cgroups"
	IntelRDTKind     Kind = "intel-rdt"
)

// Default is the decision for a kind without a matching rule, and its text for users.
// docs/kinds.md is made from it.
type Default struct {
	Kind       Kind
	Namespaces string // "*" for all; in other namespaces the kind is refused
	Decision   Decision
	Asks       string // what a pod asks for
	Why        string
	// Cost describes what other pods lose if the request is granted to a pod that requests
	// neither CPU nor memory.
	Cost string
}

// declaration declares one kind: the text for users, the hooks that serve it (one of them is
// enough), and the fields of a pod's intent that request it.
type declaration struct {
	Default

	hooks    []string
	requests []request
}

// classHooks are the hooks that depend on a pod's class.
var classHooks = []string{"cpuset", "batch", "normalization", "groupIdentity", "blockIO", "rdt", "coreSched"}

// kinds declares every kind, in the order in which refusals are reported. A new kind is a
// constant and a row here.
var kinds = []declaration{
	{Default{
		ClassSystem, "kube-system", Allow, "the system pool", "the system pool is the cluster's own; elsewhere refused",
		"it shares the system pool with the cluster's own pods",
	}, classHooks, []request{ofClass(System)}},
	{Default{
		ClassDedicated, "*", Allow, "the class; by itself the shared pool", "by itself it gives the shared pool; CPUs are a kind of their own",
		"nothing: it owns no CPU and shares the default pool by its CPU shares",
	}, classHooks, []request{ofClass(Dedicated)}},
	{Default{
		ClassShared, "*", Allow, "the shared pool", "it gives no more than a pod without a class has",
		"nothing: it shares the default pool by its CPU shares; its group identity is that of its class",
	}, classHooks, []request{ofClass(Shared)}},
	{Default{
		ClassReclaimed, "*", Allow, "the reclaimed pool", "it gives less than a pod without a class has",
		"nothing: it shares the reclaimed pool, and CPUs that LSR pods lend, by its CPU shares",
	}, classHooks, []request{ofClass(Reclaimed)}},
	{Default{
		AssignedCPUs, "*", Cap, "CPUs nobody else may use", "at most what the scheduler charged the pod for",
		"nothing: it owns none",
	}, []string{"cpuset"}, []request{field(func(p *Pod) *Sourced[[]int] { return &p.CPUs }, topology.FormatList)}},
	{Default{
		NUMANodes, "*", Allow, "a pool narrowed to NUMA nodes", "it narrows a pool",
		"nothing: the pool of a NUMA node takes CPUs from others for whole CPUs that its pods request, and memory counts as far as it is requested",
	}, []string{"cpuset"}, []request{
		field(func(p *Pod) *Sourced[[]int] { return &p.Nodes }, text),
		field(func(p *Pod) *Sourced[NUMABinding] { return &p.NUMA }, text),
	}},
	{Default{
		NUMAExclusive, "*", Refuse, "whole NUMA nodes, or nodes without pods of other classes and pools", "whole NUMA nodes are more than the scheduler charged the pod for",
		"the NUMA nodes that it has alone: a rule that allows it gives them away",
	}, []string{"cpuset"}, []request{{
		key:   exclusiveKey,
		value: func(p *Pod) string { return text(p.NUMA.V) },
		drop:  func(p *Pod) { p.NUMA.V.Exclusive, p.NUMA.V.ExcludeOthers = false, false },
	}}},
	{Default{
		CPUPreference, "*", Allow, "which CPUs it prefers to own, by kind of core and isolation", "which CPUs it owns, and not how many; what others own stays theirs",
		"nothing: it owns none",
	}, []string{"cpuset"}, []request{
		field(func(p *Pod) *Sourced[topology.CoreKind] { return &p.CoreKind }, text),
		field(func(p *Pod) *Sourced[bool] { return &p.Isolated }, text),
	}},
	{Default{
		NamedPool, "*", Allow, "a shared or system pool by name", "a pool is as large as its pods' requests",
		"nothing: a pool that requests less than a CPU has the CPUs of the default pool",
	}, []string{"cpuset"}, []request{field(func(p *Pod) *Sourced[string] { return &p.Pool }, text)}},
	{Default{
		BatchResources, "*", Cap, "shares, quota and memory limit", "only pods that are BestEffort to Kubernetes: the limits of others are not lifted",
		"CPU time of other BestEffort pods: among these its CPU shares are what the annotation says",
	}, []string{"batch"}, []request{field(func(p *Pod) *Sourced[map[string]Batch] { return &p.Batch }, names)}},
	{Default{
		GPUEnv, "*", Allow, "`NVIDIA_VISIBLE_DEVICES`", "an environment variable the pod's author could write as well",
		"nothing of CPU or memory: which GPUs it sees is not kept from others",
	}, []string{"gpu"}, []request{field(func(p *Pod) *Sourced[GPU] { return &p.GPU }, minors)}},
	{Default{
		Devices, "*", Refuse, "RDMA devices, and GPUs as device nodes or CDI devices", "host devices are the node's; the container still gets what Kubernetes granted it",
		"the devices that it is handed",
	}, []string{"rdma"}, []request{field(func(p *Pod) *Sourced[[]string] { return &p.RDMA }, commas)}},
	{Default{
		OOMScore, "*", Refuse, "an OOM score of its own", "it decides whom the kernel kills first",
		"their life before its own when memory is short",
	}, []string{"oomScore"}, []request{
		field(func(p *Pod) *Sourced[int64] { return &p.OOMScore }, text),
		field(func(p *Pod) *Sourced[map[string]int64] { return &p.OOMScores }, names),
	}},
	{Default{
		CPUQoSKind, "*", Allow, "another group identity than the class's", "a group identity within those of the classes; it counts for LS pods only",
		"CPU time of pods with a lower group identity, as its class LS by itself",
	}, []string{"groupIdentity"}, []request{field(func(p *Pod) *Sourced[CPUQoS] { return &p.CPUQoS }, text)}},
	{Default{
		Quota, "*", Allow, "whether the CFS quota is lifted", "it counts only if the pod owns its CPUs",
		"nothing: it owns none",
	}, []string{"cpuset"}, []request{field(func(p *Pod) *Sourced[bool] { return &p.UnsetQuota }, text)}},
	{Default{
		HugepageLimits, "*", Cap, "limits of huge pages by page size", "at most what Kubernetes gave the container",
		"nothing: what Kubernetes gave it is nothing",
	}, []string{"hugepages"}, []request{field(func(p *Pod) *Sourced[Hugepages] { return &p.Hugepages }, func(h Hugepages) string { return names(h.Limits) })}},
	{Default{
		DiskLimits, "*", Allow, "limits of reading and writing disks", "they take from the pod alone",
		"nothing",
	}, []string{"blockIO"}, []request{field(func(p *Pod) *Sourced[[]DiskLimit] { return &p.Disks }, text)}},
	{Default{
		BlockIO, "*", Refuse, "a class of the runtime's block I/O configuration", "a class of the runtime's may give more of the disks than others have",
		"time of the disks, as the runtime's class says",
	}, []string{"blockIO"}, []request{field(func(p *Pod) *Sourced[string] { return &p.BlockIOClass }, text)}},
	{Default{
		RDT, "*", Refuse, "shares of caches and bandwidth, a class of the runtime's RDT configuration", "cache and memory bandwidth are the node's",
		"cache and memory bandwidth",
	}, []string{"rdt"}, []request{
		field(func(p *Pod) *Sourced[RDTShares] { return &p.RDT }, text),
		field(func(p *Pod) *Sourced[string] { return &p.RDTClass }, text),
	}},
	{Default{
		CoreSched, "*", Refuse, "a group of its own for sharing cores", "a cookie keeps others off a core",
		"the other threads of the cores that it runs on, for as long as it runs there",
	}, []string{"coreSched"}, []request{field(func(p *Pod) *Sourced[CoreSchedAsk] { return &p.CoreSched }, text)}},
	{Default{
		Preemption, "*", Allow, "yielding CPU and memory to others", "it takes from the pod alone",
		"nothing",
	}, []string{"preemption"}, []request{yields(field(func(p *Pod) *Sourced[bool] { return &p.Preemptable }, text))}},
	{Default{
		BurstKind, "*", Allow, "CPU time beyond the quota, out of what was left of it", "within the pod's own quota, and only what it left of it before",
		"nothing beyond its CPU limit over time; in a burst it shares by its CPU shares",
	}, []string{"burst"}, []request{field(func(p *Pod) *Sourced[int64] { return &p.Burst }, text)}},
	{Default{
		CacheLimit, "*", Allow, "a smaller part of cache and bandwidth", "it takes from the pod alone, in one of three groups",
		"nothing: the three groups are the node's",
	}, []string{"rdt"}, []request{field(func(p *Pod) *Sourced[string] { return &p.CacheLevel }, text)}},
	{Default{
		CPUEnvKind, "*", Allow, "environment variables that name its CPUs", "environment variables the pod's author could write as well",
		"nothing",
	}, []string{"cpuEnv"}, []request{field(func(p *Pod) *Sourced[CPUVariables] { return &p.CPUEnv }, text)}},
	{Default{
		GPULibrary, "*", Refuse, "HAMi-core, its lock and variables", "a file of the host, and a directory that others write to; containers that Kubernetes granted the GPU still get it",
		"nothing of CPU or memory: it can hold the lock of containers that share a GPU, and have these wait",
	}, []string{"gpu"}, []request{{
		key:   libraryKey,
		value: func(p *Pod) string { return minors(p.GPU.V) },
		drop:  func(p *Pod) { p.GPU.V.Shared = nil },
	}}},
	{Default{
		MemoryProtection, "*", Refuse, "memory that is kept for it, where `hooks.preemption.memoryLow` or `memoryMin` keep some", "memory that is kept for it (hooks.preemption.memoryLow, memoryMin) is kept from others",
		"the memory that is kept for it",
	}, nil, nil},
	{Default{
		UlimitsKind, "*", Refuse, "limits of its processes (`ulimit`)", "limits such as locked memory and open files are the node's to give",
		"memory that it locks and files that it opens beyond the usual limits",
	}, []string{"ulimits"}, []request{field(func(p *Pod) *Sourced[PerContainer[[]lifecycle.Rlimit]] { return &p.Ulimits }, perContainer)}},
	{Default{
		IOPrioKind, "*", Refuse, "an I/O priority of its processes", "it comes before others at the disks",
		"time of the disks",
	}, []string{"ioPriority"}, []request{field(func(p *Pod) *Sourced[PerContainer[lifecycle.IOPriority]] { return &p.IOPriority }, perContainer)}},
	{Default{
		SchedKind, "*", Refuse, "a scheduling policy of its processes", "real-time policies come before everything else on a CPU",
		"CPU time, where `hooks.scheduler.realtime` lets it have a real-time policy",
	}, []string{"scheduler"}, []request{field(func(p *Pod) *Sourced[PerContainer[lifecycle.Scheduler]] { return &p.Scheduler }, perContainer)}},
	{Default{
		MemPolicyKind, "*", Refuse, "a NUMA memory policy of its processes", "it fills memory nodes that others were placed on",
		"memory of the nodes that it names, within its own limit",
	}, []string{"memoryPolicy"}, []request{field(func(p *Pod) *Sourced[PerContainer[lifecycle.MemoryPolicy]] { return &p.MemPolicy }, perContainer)}},
	{Default{
		SysctlKind, "*", Refuse, "kernel parameters of its namespaces", "Kubernetes has a field for them, which admission checks",
		"nothing: only parameters of its own namespaces, from a list of the configuration",
	}, []string{"sysctl"}, []request{field(func(p *Pod) *Sourced[PerContainer[map[string]string]] { return &p.Sysctls }, perContainer)}},
	{Default{
		DeviceNodeKind, "*", Refuse, "device nodes of the host by their numbers", "host devices are the node's",
		"the devices of `hooks.deviceNodes.allowed`",
	}, []string{"deviceNodes"}, []request{field(func(p *Pod) *Sourced[PerContainer[[]lifecycle.Device]] { return &p.DeviceNodes }, perContainer)}},
	{Default{
		CDIKind, "*", Refuse, "CDI devices by name", "a CDI specification may add devices, mounts and OCI hooks",
		"the devices of `hooks.cdiDevices.allowed`",
	}, []string{"cdiDevices"}, []request{field(func(p *Pod) *Sourced[PerContainer[[]string]] { return &p.CDIDevices }, perContainer)}},
	{Default{
		NetDeviceKind, "*", Refuse, "network interfaces of the host", "an interface leaves the host",
		"the interfaces of `hooks.networkDevices.allowed`",
	}, []string{"networkDevices"}, []request{field(func(p *Pod) *Sourced[PerContainer[[]NetDevice]] { return &p.NetDevices }, perContainer)}},
	{Default{
		Mounts, "*", Refuse, "files and directories of the host", "host paths are the node's",
		"what the paths of `hooks.mounts.allowed` and `hooks.mounts.writable` hold",
	}, []string{"mounts"}, []request{field(func(p *Pod) *Sourced[PerContainer[[]HostMount]] { return &p.Mounts }, perContainer)}},
	{Default{
		BalloonKind, "*", Refuse, "a balloon of a type that it names", "a type gives its CPUs to every container in its balloons, also more than the pod requests; namespaces and expressions of types say who that is",
		"what a balloon of the type has: the CPUs of `minCPUs`, and memory of `memoryTypes`",
	}, []string{"cpuset"}, []request{field(func(p *Pod) *Sourced[PerContainer[string]] { return &p.Balloon }, perContainer)}},
	{Default{
		ThreadsKind, "*", Allow, "one thread of each core of its balloon, or all", "its balloon has all threads of these cores in either case",
		"nothing: the CPUs are its balloon's already",
	}, []string{"cpuset"}, []request{field(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.HideThreads }, perContainer)}},
	{Default{
		PreserveKind, "*", Refuse, "CPUs and memory nodes as the runtime requests them, outside of balloons", "it runs on the CPUs of all balloons",
		"time on all CPUs that no container owns, by its CPU shares",
	}, []string{"cpuset"}, []request{
		preserves(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreserveCPU }),
		preserves(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreserveMemory }),
	}},
	{Default{
		MemoryTypeKind, "*", Refuse, "memory nodes of kinds that it names: DRAM, HBM, PMEM", "nodes of scarce memory are the node's to give; `memoryTypes` of a balloon type gives them",
		"memory of these nodes, within its own limit",
	}, []string{"cpuset"}, []request{field(func(p *Pod) *Sourced[PerContainer[[]topology.MemoryKind]] { return &p.MemoryKinds }, perContainer)}},
	{Default{
		OCIHookKind, "*", Refuse, "OCI hooks of the node whose condition is an annotation", "an OCI hook runs as root on the host",
		"what the files in `hooks.ociHooks.directories` have run for it",
	}, []string{"ociHooks"}, nil},
	{Default{
		CgroupKind, "*", Refuse, "write access to its own cgroups", "it may make cgroups without number below its own",
		"memory of the kernel for the cgroups that it makes, within its own limit",
	}, []string{"writableCgroups"}, []request{field(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.WritableCgroups }, perContainer)}},
	{Default{
		IntelRDTKind, "*", Refuse, "a class of resctrl, its schemata and monitoring, in its OCI spec", "cache, memory bandwidth and groups of resctrl are the node's",
		"cache and memory bandwidth, and a group of the few that a processor has",
	}, []string{"intelRDT"}, []request{
		field(func(p *Pod) *Sourced[PerContainer[string]] { return &p.ClosID }, perContainer),
		field(func(p *Pod) *Sourced[PerContainer[[]string]] { return &p.Schemata }, perContainer),
		field(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.Monitoring }, perContainer),
	}},
}

// declared returns the declaration of a kind; an empty one if it is unknown.
func declared(kind Kind) declaration {
	for _, d := range kinds {
		if d.Kind == kind {
			return d
		}
	}
	return declaration{}
}

// requests calls a function for each request of all kinds.
func requests(yield func(Kind, request) bool) {
	for _, d := range kinds {
		for _, r := range d.requests {
			if !yield(d.Kind, r) {
				return
			}
		}
	}
}

// request is a part of a pod's intent that makes a request of one kind.
type request struct {
	key   func(*Pod) string // "" if the pod does not ask for it
	value func(*Pod) string // for people
	drop  func(*Pod)
	// take copies the request of a less trusted dialect into the pod. It is nil for a part of a
	// field.
	take func(p, other *Pod)
}

// field is the request of a whole field of the pod; show formats its value.
func field[T any](of func(*Pod) *Sourced[T], show func(T) string) request {
	return request{
		key:   func(p *Pod) string { return of(p).Key },
		value: func(p *Pod) string { return show(of(p).V) },
		drop:  func(p *Pod) { *of(p) = Sourced[T]{} },
		take:  func(p, other *Pod) { takeFirst(of(p), *of(other)) },
	}
}

// ofClass is the request for a class. Pod.merge decides between the classes of two dialects.
func ofClass(class Class) request {
	return request{
		key: func(p *Pod) string {
			if p.Class.V != class {
				return ""
			}
			return p.Class.Key
		},
		value: func(p *Pod) string { return p.Name },
		drop:  func(p *Pod) { p.Class, p.Name = Sourced[Class]{}, "" },
	}
}

// yields is the request of a preemptable pod; a pod that is not preemptable makes no such
// request.
func yields(said request) request {
	said.key = func(p *Pod) string {
		if !p.Preemptable.V {
			return ""
		}
		return p.Preemptable.Key
	}
	return said
}

// exclusiveKey returns the key that keeps others off NUMA nodes.
func exclusiveKey(p *Pod) string {
	if !p.NUMA.V.Exclusive && !p.NUMA.V.ExcludeOthers {
		return ""
	}
	return p.NUMA.Key
}

// libraryKey returns the key that requests HAMi-core: the key for a part of a GPU.
func libraryKey(p *Pod) string {
	if p.GPU.V.Shared == nil {
		return ""
	}
	return KoordGPUIsolation
}

// perContainer is a request of the pod together with the requests of single containers by name.
func perContainer[T any](p PerContainer[T]) string {
	var parts []string
	if p.Pod.IsSet() {
		parts = append(parts, fmt.Sprintf("%+v", p.Pod.V))
	}
	for _, name := range sortedKeys(p.Own) {
		parts = append(parts, fmt.Sprintf("%s: %+v", name, p.Own[name].V))
	}
	return strings.Join(parts, ", ")
}

func text[T any](v T) string { return fmt.Sprintf("%+v", v) }

func names[T any](m map[string]T) string { return strings.Join(sortedKeys(m), ",") }

func commas(list []string) string { return strings.Join(list, ",") }

func minors(g GPU) string { return fmt.Sprint("minors ", g.Minors) }
