package intent

// These reasons are shared by several keys.
const (
	forScheduler = "an input of the scheduler, which writes its decision into another key"
	forEviction  = "it orders evictions under pressure; this agent evicts no pod for its usage"
	nodeReason   = "not a request of a pod; this agent does not read Node or topology objects"
	devicePlugin = "a resource of a scheduler or device plugin; the agent reads the assigned devices from device-allocated and from the kubelet"
)

// koordinatorKeys are the keys of Koordinator 1.7, and of 1.8 where it is newer.
func koordinatorKeys() []Key {
	keys := []Key{
		{Name: KoordQoSClass, Place: AsLabel, Edit: EditLive, Kinds: []Kind{ClassSystem, ClassDedicated, ClassShared, ClassReclaimed}},
		{Name: KoordResourceStatus, Place: OnPod, Field: "cpuset", Edit: EditFixed, Kinds: []Kind{AssignedCPUs}},
		{Name: KoordResourceStatus, Place: OnPod, Field: "numaNodeResources", Edit: EditFixed, Kinds: []Kind{NUMANodes}},
		{Name: KoordResourceSpec, Place: OnPod, Edit: EditFixed, Why: "it applies if the agent chooses CPUs (placement.policy: pools); otherwise only the scheduler uses it"},
		{Name: KoordExtended, Place: OnPod, Edit: EditLive, Kinds: []Kind{BatchResources}, Why: "batch resources of the pod's spec have priority, if the spec is known"},
		{Name: KoordDevices, Place: OnPod, Field: "gpu", Edit: EditFixed, Kinds: []Kind{GPUEnv, Devices}},
		{Name: KoordDevices, Place: OnPod, Field: "rdma", Edit: EditFixed, Kinds: []Kind{Devices}},
		{Name: KoordDevices, Place: OnPod, Field: "fpga", Handling: KeyUnsupported, Why: "no hook gives FPGAs to containers"},
		{Name: KoordGPUIsolation, Place: AsLabel, Edit: EditFixed, Kinds: []Kind{GPULibrary}},
		{Name: KoordCPUQoS, Place: OnPod, Field: "enable", Edit: EditLive, Kinds: []Kind{CPUQoSKind}},
		{Name: KoordCPUQoS, Place: OnPod, Field: "groupIdentity", Edit: EditLive, Kinds: []Kind{CPUQoSKind}},
		{Name: KoordCPUQoS, Place: OnPod, Field: "schedIdle", Handling: KeyUnsupported, Why: "cpu.idle follows the class (hooks.groupIdentity.fallback)"},
		{Name: KoordCPUQoS, Place: OnPod, Field: "coreExpeller", Handling: KeyUnsupported, Why: "it needs a kernel of Koordinator's distribution"},
		{Name: KoordBlkioQoS, Place: OnPod, Edit: EditLive, Kinds: []Kind{DiskLimits}},
		{Name: KoordResctrl, Place: OnPod, Edit: EditLive, Kinds: []Kind{RDT}},
		{Name: KoordCoreSchedGroup, Place: AsLabel, Edit: EditLive, Kinds: []Kind{CoreSched}},
		{Name: KoordCoreSchedPolicy, Place: AsLabel, Edit: EditLive, Kinds: []Kind{CoreSched}},
		{Name: KoordOOMScore, Place: OnPod, Edit: EditNext, Kinds: []Kind{OOMScore}},
		{Name: KoordOOMScoreSpec, Place: OnPod, Edit: EditNext, Kinds: []Kind{OOMScore}},
		{Name: "runtimeproxy.koordinator.sh/skip-hookserver", Place: AsLabel, Edit: EditFixed, Why: "hook servers are not asked about the pod"},
		{Name: "koordinator.sh/cpuBurst", Place: OnPod, Handling: KeyUnsupported, Why: "only volcano.sh/quota-burst-time sets CPU burst"},
		{Name: "koordinator.sh/memoryQOS", Place: OnPod, Handling: KeyUnsupported, Why: "only the class sets memory protection and watermarks (hooks.preemption)"},
		{Name: "koordinator.sh/networkQOS", Place: OnPod, Handling: KeyUnsupported, Why: "this agent shapes no network traffic"},
	}
	keys = append(keys, koordinatorIgnored()...)
	return keys
}

func koordinatorIgnored() []Key {
	var keys []Key
	for _, row := range []struct {
		place Place
		why   string
		names []string
	}{
		{OnPod, forScheduler, []string{
			"scheduling.koordinator.sh/numa-topology-spec", "scheduling.koordinator.sh/device-allocate-hint",
			"scheduling.koordinator.sh/device-joint-allocate", "scheduling.koordinator.sh/gpu-partition-spec",
		}},
		{AsLabel, "an input for the scheduler's order and the order of evictions; on the node the class decides", []string{"koordinator.sh/priority", "koordinator.sh/priority-class"}},
		{AsLabel, forEviction, []string{"koordinator.sh/eviction-enabled"}},
		{OnPod, forEviction, []string{"koordinator.sh/eviction-policy", "koordinator.sh/eviction-priority"}},
		{AsResource, "read inside extended-resource-spec and the pod's spec", []string{batchCPU, batchMemory}},
		{AsResource, "Koordinator's node agent sets nothing from it either", []string{"kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"}},
		{AsResource, "read inside device-allocated", []string{gpuCore, gpuMemory, gpuMemoryRatio}},
		{AsResource, devicePlugin, []string{
			"koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/rdma", "koordinator.sh/fpga", "nvidia.com/gpu", "dcu.com/gpu", "amd.com/gpu",
			"huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp",
		}},
		{OnNode, nodeReason, []string{
			"node.koordinator.sh/cpu-normalization-enabled", "node.koordinator.sh/reservation", "node.koordinator.sh/network-bandwidth",
			"node.koordinator.sh/cpu-bind-policy", "node.koordinator.sh/numa-topology-policy", "node.koordinator.sh/numa-allocate-strategy",
			"node.koordinator.sh/gpu-vendor",
		}},
		{OnNode, "set hooks.normalization.ratio in the configuration instead", []string{"node.koordinator.sh/cpu-normalization-ratio"}},
		{OnTopology, nodeReason, []string{
			"node.koordinator.sh/cpu-topology", "node.koordinator.sh/cpu-shared-pools", "node.koordinator.sh/be-cpu-shared-pools", "node.koordinator.sh/pod-cpu-allocs",
			"kubelet.koordinator.sh/cpu-manager-policy", "node.koordinator.sh/system-qos-resource", "node.koordinator.sh/cpu-basic-info",
		}},
	} {
		for _, name := range row.names {
			keys = append(keys, Key{Name: name, Place: row.place, Handling: KeyIgnored, Why: row.why})
		}
	}
	return keys
}
