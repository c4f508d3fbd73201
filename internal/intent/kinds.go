package intent

import (
	"cmp"
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
	SchedClassKind   Kind = "scheduling-class"
	MemoryQoSKind    Kind = "memory-qos"
	OCIHookKind      Kind = "oci-hooks"
	CgroupKind       Kind = "writable-cgroups"
	IntelRDTKind     Kind = "intel-rdt"
	PluginKind       Kind = "plugin-values"

	ExclusiveDevicesKind Kind = "exclusive-devices"
)

// Default is the decision about one kind of request if no rule matches the request, with texts for users. docs/kinds.md
// shows it.
type Default struct {
	Kind       Kind
	Namespaces string // the decision applies to these namespaces, "*" for all; in others the request is refused
	Decision   Decision
	Request    string // what a pod requests
	Why        string // the reason for the decision
	// Cost describes what other pods lose if the agent grants the request to a pod without CPU and memory requests.
	Cost string
}

// declaration declares one kind of request: its default decision, the hooks that serve it (one of them is
// enough), and the fields of a pod's intent that request it.
type declaration struct {
	Default

	hooks    []string
	requests []request
}

// classHooks are the hooks that depend on a pod's class.
var classHooks = []string{"cpuset", "batch", "normalization", "groupIdentity", "blockIO", "rdt", "coreSched"}

// kinds declares every kind, in the order in which the agent reports refusals. A new kind needs a constant, and
// a row here.
var kinds = []declaration{
	{Default{
		ClassSystem, "kube-system", Allow, "the system pool", "the system pool belongs to the cluster's own pods; refused in other namespaces",
		"it shares the system pool with the cluster's own pods",
	}, classHooks, []request{classRequest(System), booleanRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferReserved })}},
	{Default{
		ClassDedicated, "*", Allow, "the class dedicated", "the class alone gives only the shared pool; exclusive CPUs are a separate kind",
		"nothing: it owns no CPU and shares the default pool according to its CPU shares",
	}, classHooks, []request{classRequest(Dedicated)}},
	{Default{
		ClassShared, "*", Allow, "the shared pool", "the class gives no more than a pod without a class gets",
		"nothing: it shares the default pool according to its CPU shares, and has the group identity of its class",
	}, classHooks, []request{classRequest(Shared)}},
	{Default{
		ClassReclaimed, "*", Allow, "the reclaimed pool", "the class gives less than a pod without a class gets",
		"nothing: it shares the reclaimed pool, and CPUs that LSR pods lend, according to its CPU shares",
	}, classHooks, []request{classRequest(Reclaimed)}},
	{Default{
		AssignedCPUs, "*", Cap, "CPUs that no other container may use", "at most as many as the scheduler reserved for the pod",
		"nothing: it owns no CPUs",
	}, []string{"cpuset"}, []request{fieldRequest(func(p *Pod) *Sourced[[]int] { return &p.CPUs }, topology.FormatList)}},
	{Default{
		NUMANodes, "*", Allow, "a pool limited to NUMA nodes", "the request limits a pool to fewer CPUs",
		"nothing: the pool of a NUMA node takes CPUs from other pools only for whole CPUs that its pods request, and the agent reserves only memory that pods request",
	}, []string{"cpuset"}, []request{
		fieldRequest(func(p *Pod) *Sourced[[]int] { return &p.Nodes }, describeValue),
		fieldRequest(func(p *Pod) *Sourced[NUMABinding] { return &p.NUMA }, describeValue),
	}},
	{Default{
		NUMAExclusive, "*", Refuse, "exclusive NUMA nodes, or nodes without pods of other classes and pools", "exclusive NUMA nodes are more than the scheduler reserved for the pod",
		"the NUMA nodes that it has exclusively, if a rule allows the kind",
	}, []string{"cpuset"}, []request{{
		key:    numaExclusiveKey,
		value:  func(p *Pod) string { return describeValue(p.NUMA.V) },
		remove: func(p *Pod) { p.NUMA.V.Exclusive, p.NUMA.V.ExcludeOthers = false, false },
	}}},
	{Default{
		CPUPreference, "*", Allow, "preferred CPUs: of a kind of cores, isolated or shared, in a part of the node, or near some containers of the node",
		"the request affects which CPUs the pod gets, not how many: the pod owns at most the CPUs that it requests, and the CPUs of other pods do not change",
		"nothing: it owns no CPUs",
	}, []string{"cpuset"}, []request{
		fieldRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferShared }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreferIsolated }, describePerContainer),
		booleanRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.RequireIsolated }),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[string]] { return &p.UnlimitedLevel }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[map[string][]Affinity] { return &p.Affinity }, joinNames),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[HintKinds]] { return &p.HintKinds }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[HintPaths]] { return &p.HintDeny }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[HintPaths]] { return &p.HintAllow }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[map[string][]Affinity] { return &p.AntiAffinity }, joinNames),
		fieldRequest(func(p *Pod) *Sourced[topology.CoreKind] { return &p.CoreKind }, describeValue),
		fieldRequest(func(p *Pod) *Sourced[bool] { return &p.PrefersIsolatedCPUs }, describeValue),
	}},
	{Default{
		NamedPool, "*", Allow, "a shared or system pool by name", "a pool is as large as its pods' requests",
		"nothing: a pool whose pods request less than one CPU uses the CPUs of the default pool",
	}, []string{"cpuset"}, []request{fieldRequest(func(p *Pod) *Sourced[string] { return &p.Pool }, describeValue)}},
	{Default{
		BatchResources, "*", Cap, "CPU shares, CPU quota and memory limit", "only for pods that are BestEffort in Kubernetes: for a pod of another QoS class, the request would remove the limits of the pod",
		"CPU time of other BestEffort pods, according to the CPU shares of its annotation",
	}, []string{"batch"}, []request{fieldRequest(func(p *Pod) *Sourced[map[string]Batch] { return &p.Batch }, joinNames)}},
	{Default{
		GPUEnv, "*", Allow, "`NVIDIA_VISIBLE_DEVICES`", "an environment variable that the pod's author could also write",
		"no CPU or memory: the GPUs that it sees remain visible to others",
	}, []string{"gpu"}, []request{fieldRequest(func(p *Pod) *Sourced[GPU] { return &p.GPU }, formatMinors)}},
	{Default{
		Devices, "*", Refuse, "RDMA devices, and GPUs as device nodes or CDI devices", "host devices belong to the node; the container still gets what Kubernetes granted it",
		"the devices that it gets",
	}, []string{"rdma"}, []request{fieldRequest(func(p *Pod) *Sourced[[]string] { return &p.RDMA }, joinTexts)}},
	{Default{
		OOMScore, "*", Refuse, "an OOM score of its own", "the score decides which container the kernel kills first",
		"if memory runs out, the kernel may kill other pods before it",
	}, []string{"oomScore"}, []request{
		fieldRequest(func(p *Pod) *Sourced[int64] { return &p.OOMScore }, describeValue),
		fieldRequest(func(p *Pod) *Sourced[map[string]int64] { return &p.OOMScores }, joinNames),
	}},
	{Default{
		CPUQoSKind, "*", Allow, "a group identity other than that of its class", "a group identity in the range of the classes; it applies only to LS pods",
		"CPU time of pods with a lower group identity, as with its class LS",
	}, []string{"groupIdentity"}, []request{fieldRequest(func(p *Pod) *Sourced[CPUQoS] { return &p.CPUQoS }, describeValue)}},
	{Default{
		Quota, "*", Allow, "whether the CFS quota is unlimited", "it applies only if the pod owns its CPUs",
		"nothing: it owns its CPUs",
	}, []string{"cpuset"}, []request{fieldRequest(func(p *Pod) *Sourced[bool] { return &p.UnsetQuota }, describeValue)}},
	{Default{
		HugepageLimits, "*", Cap, "limits of huge pages by page size", "at most what Kubernetes gave the container",
		"nothing: it keeps at most what Kubernetes gave it",
	}, []string{"hugepages"}, []request{fieldRequest(func(p *Pod) *Sourced[Hugepages] { return &p.Hugepages }, func(h Hugepages) string { return joinNames(h.Limits) })}},
	{Default{
		DiskLimits, "*", Allow, "limits of reading and writing disks", "they limit only the pod itself",
		"nothing",
	}, []string{"blockIO"}, []request{fieldRequest(func(p *Pod) *Sourced[[]DiskLimit] { return &p.Disks }, describeValue)}},
	{Default{
		BlockIO, "*", Refuse, "a class of the runtime's block I/O configuration", "a class of the runtime can give more of the disks than others have",
		"time of the disks, according to the runtime's class",
	}, []string{"blockIO"}, []request{fieldRequest(func(p *Pod) *Sourced[string] { return &p.BlockIOClass }, describeValue)}},
	{Default{
		RDT, "*", Refuse, "shares of caches and bandwidth, a class of the runtime's RDT configuration", "cache and memory bandwidth belong to the node",
		"cache and memory bandwidth",
	}, []string{"rdt"}, []request{
		fieldRequest(func(p *Pod) *Sourced[RDTShares] { return &p.RDT }, describeValue),
		fieldRequest(func(p *Pod) *Sourced[string] { return &p.RDTClass }, describeValue),
	}},
	{Default{
		CoreSched, "*", Refuse, "a core scheduling group of its own", "a core scheduling cookie excludes other pods from a core",
		"the other threads of the cores that it runs on, while it runs there",
	}, []string{"coreSched"}, []request{fieldRequest(func(p *Pod) *Sourced[CoreSchedRequest] { return &p.CoreSched }, describeValue)}},
	{Default{
		Preemption, "*", Allow, "yielding CPU and memory to others", "it takes only from the pod itself",
		"nothing",
	}, []string{"preemption"}, []request{preemptableRequest(fieldRequest(func(p *Pod) *Sourced[bool] { return &p.Preemptable }, describeValue))}},
	{Default{
		BurstKind, "*", Allow, "CPU time beyond the quota, from unused quota of earlier periods", "within the pod's own quota, and only what it left unused before",
		"nothing beyond its CPU limit over time; during a burst it shares CPUs according to its CPU shares",
	}, []string{"burst"}, []request{fieldRequest(func(p *Pod) *Sourced[int64] { return &p.Burst }, describeValue)}},
	{Default{
		CacheLimit, "*", Allow, "a smaller part of cache and bandwidth", "the request limits only the pod itself, which joins one of three resctrl groups",
		"nothing: the three groups belong to the node",
	}, []string{"rdt"}, []request{fieldRequest(func(p *Pod) *Sourced[string] { return &p.CacheLevel }, describeValue)}},
	{Default{
		CPUEnvKind, "*", Allow, "environment variables that name its CPUs", "environment variables that the pod's author could also write",
		"nothing",
	}, []string{"cpuEnv"}, []request{fieldRequest(func(p *Pod) *Sourced[CPUVariables] { return &p.CPUEnv }, describeValue)}},
	{Default{
		GPULibrary, "*", Refuse, "HAMi-core, its lock and variables", "HAMi-core is a file of the host, and its lock is in a directory that other containers write to; without a rule, only containers that get the GPU from Kubernetes or from the agent get HAMi-core",
		"no CPU or memory: the pod can hold the lock of containers that share a GPU, so that these containers wait",
	}, []string{"gpu"}, []request{{
		key:    gpuLibraryKey,
		value:  func(p *Pod) string { return formatMinors(p.GPU.V) },
		remove: func(p *Pod) { p.GPU.V.Share = nil },
	}}},
	{Default{
		MemoryProtection, "*", Refuse, "memory that is protected for it, if `hooks.preemption.memoryLow` or `memoryMin` are set", "memory that is protected for it (hooks.preemption.memoryLow, memoryMin) is not available to others",
		"the memory that is protected for it",
	}, nil, nil},
	{Default{
		UlimitsKind, "*", Refuse, "limits of its processes (`ulimit`)", "limits such as locked memory and open files belong to the node",
		"memory that it locks and files that it opens beyond the default limits",
	}, []string{"ulimits"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[[]lifecycle.Rlimit]] { return &p.Ulimits }, describePerContainer)}},
	{Default{
		IOPrioKind, "*", Refuse, "an I/O priority of its processes", "it gets disk time before other pods",
		"time of the disks",
	}, []string{"ioPriority"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[lifecycle.IOPriority]] { return &p.IOPriority }, describePerContainer)}},
	{Default{
		SchedKind, "*", Refuse, "a scheduling policy of its processes", "real-time policies run before everything else on a CPU",
		"CPU time, if `hooks.scheduler.realtime` allows it a real-time policy",
	}, []string{"scheduler"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[lifecycle.Scheduler]] { return &p.Scheduler }, describePerContainer)}},
	{Default{
		MemPolicyKind, "*", Refuse, "a NUMA memory policy of its processes", "it can fill memory nodes on which other pods were placed",
		"memory of the nodes that it names, within its own limit",
	}, []string{"memoryPolicy"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[lifecycle.MemoryPolicy]] { return &p.MemPolicy }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[MemoryRequest]] { return &p.MemoryRequest }, describePerContainer)}},
	{Default{
		SysctlKind, "*", Refuse, "kernel parameters of its namespaces", "a pod's spec has a field for sysctls, which Kubernetes checks at admission",
		"nothing: only parameters of its own namespaces, from a list in the configuration",
	}, []string{"sysctl"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[map[string]string]] { return &p.Sysctls }, describePerContainer)}},
	{Default{
		DeviceNodeKind, "*", Refuse, "device nodes of the host by their numbers", "host devices belong to the node",
		"the devices of `hooks.deviceNodes.allowed`",
	}, []string{"deviceNodes"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[[]lifecycle.Device]] { return &p.DeviceNodes }, describePerContainer)}},
	{Default{
		CDIKind, "*", Refuse, "CDI devices by name", "a CDI specification may add devices, mounts and OCI hooks",
		"the devices of `hooks.cdiDevices.allowed`",
	}, []string{"cdiDevices"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[[]string]] { return &p.CDIDevices }, describePerContainer)}},
	{Default{
		ExclusiveDevicesKind, "*", Refuse, "CDI devices that no other container has, by kind and number or by name", "a node has few of them, and a CDI specification may add devices, mounts and OCI hooks",
		"the devices that it gets, of the kinds in `hooks.cdiDevices.classes`: no other container can have them",
	}, []string{"cdiDevices"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[[]DeviceRequest]] { return &p.ExclusiveDevices }, describePerContainer)}},
	{Default{
		NetDeviceKind, "*", Refuse, "network interfaces of the host, which move into the pod", "the host loses the interfaces",
		"the interfaces of `hooks.networkDevices.allowed`",
	}, []string{"networkDevices"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[[]NetDevice]] { return &p.NetDevices }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[[]NetDevice] { return &p.PodInterfaces }, describeValue)}},
	{Default{
		Mounts, "*", Refuse, "files and directories of the host", "host paths belong to the node",
		"the contents of the paths in `hooks.mounts.allowed` and `hooks.mounts.writable`",
	}, []string{"mounts"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[[]HostMount]] { return &p.Mounts }, describePerContainer)}},
	{Default{
		BalloonKind, "*", Refuse, "a balloon of a type that it names", "a type gives its CPUs to every container in its balloons, also more than the pod requests; the type's namespaces and expressions decide which pods may use it",
		"the resources of the balloon type: the CPUs of `minCPUs`, and memory of `memoryTypes`",
	}, []string{"cpuset"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[string]] { return &p.Balloon }, describePerContainer)}},
	{Default{
		SchedClassKind, "*", Refuse, "a scheduling class that it names", "a class may have a real-time policy, which runs before everything else on a CPU; the configuration decides which pods have it without a request",
		"CPU time and time of the disks, according to the priority of the scheduling class",
	}, []string{"schedulingClass"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[string]] { return &p.SchedulingClass }, describePerContainer)}},
	{Default{
		MemoryQoSKind, "*", Refuse, "a memory class, or values of memory.high and memory.swap.max", "swap space and the time of its disk belong to the node, and kubelets leave swap off",
		"swap space, possibly all of it, and time of the swap disk",
	}, []string{"memoryQoS"}, []request{
		fieldRequest(func(p *Pod) *Sourced[PerContainer[string]] { return &p.MemoryClass }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[MemoryBytes]] { return &p.MemoryHigh }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[MemoryBytes]] { return &p.SwapMax }, describePerContainer),
	}},
	{Default{
		ThreadsKind, "*", Allow, "one thread of each of its cores, or all threads", "in both cases, all threads of the cores belong to the container or its balloon",
		"nothing: it or its balloon already has these CPUs",
	}, []string{"cpuset"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.HideThreads }, describePerContainer)}},
	{Default{
		PreserveKind, "*", Refuse, "the CPUs and memory nodes of the request to the runtime, instead of those of a balloon or a part of the node", "the pod runs on the CPUs of all balloons",
		"time on all CPUs that no container owns, according to its CPU shares",
	}, []string{"cpuset"}, []request{
		booleanRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreserveCPU }),
		booleanRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.PreserveMemory }),
	}},
	{Default{
		MemoryTypeKind, "*", Refuse, "memory nodes of kinds that it names: DRAM, HBM, PMEM", "nodes of scarce memory belong to the node; `memoryTypes` of a balloon type gives them to pods",
		"memory of these nodes, within its own limit",
	}, []string{"cpuset"}, []request{
		memoryKindsRequest(), coldStartRequest(),
	}},
	{Default{
		OCIHookKind, "*", Refuse, "OCI hooks of the node whose condition is an annotation", "an OCI hook runs as root on the host",
		"the resources of the programs that the files in `hooks.ociHooks.directories` run for it",
	}, []string{"ociHooks"}, nil},
	{Default{
		CgroupKind, "*", Refuse, "write access to its own cgroups", "the pod may create any number of cgroups below its own",
		"kernel memory for the cgroups that it creates, within its own limit",
	}, []string{"writableCgroups"}, []request{fieldRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.WritableCgroups }, describePerContainer)}},
	{Default{
		IntelRDTKind, "*", Refuse, "a class of resctrl, its schemata and monitoring, in its OCI spec", "cache, memory bandwidth and resctrl groups belong to the node",
		"cache and memory bandwidth, and one of the few resctrl groups of a processor",
	}, []string{"intelRDT"}, []request{
		fieldRequest(func(p *Pod) *Sourced[PerContainer[string]] { return &p.ClosID }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[[]string]] { return &p.Schemata }, describePerContainer),
		fieldRequest(func(p *Pod) *Sourced[PerContainer[bool]] { return &p.Monitoring }, describePerContainer),
	}},
	{Default{
		PluginKind, "*", Allow, "variables, annotations, mounts and devices that resource plugins give for resources that it requests", "resource plugins are programs of root, and decide themselves what they give",
		"nothing: a pod gets them for a resource that it requests",
	}, nil, nil},
}

// declarationOf returns the declaration of a kind; an empty one for an unknown kind.
func declarationOf(kind Kind) declaration {
	for _, d := range kinds {
		if d.Kind == kind {
			return d
		}
	}
	return declaration{}
}

// requests is an iterator over the requests of all kinds.
func requests(yield func(Kind, *request) bool) {
	for i := range kinds { // by index: a copy of a declaration would be large
		d := &kinds[i]
		for j := range d.requests {
			if !yield(d.Kind, &d.requests[j]) {
				return
			}
		}
	}
}

// request is a part of a pod's intent that makes a request of one kind.
type request struct {
	key    func(*Pod) string // the source of the request; "" if the pod does not make the request
	value  func(*Pod) string // the requested value as a text for users
	remove func(*Pod)        // removes the request from the intent
	// mergeFrom copies the request from the intent other, which comes from a dialect with less priority, to the intent
	// p. If p already has such a request, mergeFrom does nothing. mergeFrom is nil if the method merge copies the field
	// itself, or if the request is a part of a field that the request of another kind copies.
	mergeFrom func(p, other *Pod)
}

// fieldRequest returns the request that one field of the intent makes. The function of returns this field, and the
// function show formats the field's value for users.
func fieldRequest[T any](of func(*Pod) *Sourced[T], show func(T) string) request {
	return request{
		key:       func(p *Pod) string { return of(p).Key },
		value:     func(p *Pod) string { return show(of(p).V) },
		remove:    func(p *Pod) { *of(p) = Sourced[T]{} },
		mergeFrom: func(p, other *Pod) { setIfUnset(of(p), *of(other)) },
	}
}

// classRequest returns the request for a class. It has no mergeFrom, because Pod.merge merges classes.
func classRequest(class Class) request {
	return request{
		key: func(p *Pod) string {
			if p.Class.V != class {
				return ""
			}
			return p.Class.Key
		},
		value:  func(p *Pod) string { return p.ClassName },
		remove: func(p *Pod) { p.Class, p.ClassName = Sourced[Class]{}, "" },
	}
}

// preemptableRequest changes the request that the field Preemptable makes. With the change, a pod makes the request
// only if it sets Preemptable to true.
func preemptableRequest(r request) request {
	r.key = func(p *Pod) string {
		if !p.Preemptable.V {
			return ""
		}
		return p.Preemptable.Key
	}
	return r
}

// numaExclusiveKey returns the key that requests NUMA nodes without other pods; "" for none.
func numaExclusiveKey(p *Pod) string {
	if !p.NUMA.V.Exclusive && !p.NUMA.V.ExcludeOthers {
		return ""
	}
	return p.NUMA.Key
}

// gpuLibraryKey returns the key that requests HAMi-core; "" if the pod does not request a share of a GPU.
func gpuLibraryKey(p *Pod) string {
	if p.GPU.V.Share == nil {
		return ""
	}
	return KoordGPUIsolation
}

// describePerContainer describes the request for the whole pod, and the requests for single containers by name.
func describePerContainer[T any](p PerContainer[T]) string {
	var parts []string
	if p.Pod.IsSet() {
		parts = append(parts, describeValue(p.Pod.V))
	}
	for _, name := range sortedKeys(p.ByContainer) {
		parts = append(parts, name+": "+cmp.Or(describeValue(p.ByContainer[name].V), "nothing"))
	}
	return strings.Join(parts, ", ")
}

// joinNames joins the sorted keys of a map with commas.
func joinNames[T any](m map[string]T) string { return strings.Join(sortedKeys(m), ",") }

// joinTexts joins texts with commas.
func joinTexts(list []string) string { return strings.Join(list, ",") }

// formatMinors formats the device minors of GPUs for users.
func formatMinors(g GPU) string { return fmt.Sprint("minors ", g.Minors) }
