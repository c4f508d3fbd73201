package intent

// These reasons are shared by several keys.
const (
	schedulerReason    = "an input of the scheduler, which writes its decision into another key"
	evictionReason     = "it orders evictions under pressure; this agent evicts no pod because of its memory or CPU usage"
	nodeReason         = "not a request of a pod; with cluster.config.alsoRead: [koordinator] the agent reads some keys of the Node and of its NodeResourceTopology as configuration"
	nodeGroupReason    = "not a request of a pod; with cluster.config.alsoRead: [nri-plugins] the agent uses it to select the policies of nri-plugins for this node"
	devicePluginReason = "a resource of a scheduler or device plugin; the agent reads the assigned devices from device-allocated and from the kubelet"
)

// koordinatorKeys are the keys of Koordinator 1.7, and of 1.8 where it is newer.
func koordinatorKeys() []Key {
	keys := []Key{
		{Name: KoordQoSClass, Location: PodLabel, Edit: EditLive, Kinds: []Kind{ClassSystem, ClassDedicated, ClassShared, ClassReclaimed}},
		{Name: KoordResourceStatus, Location: PodAnnotation, Field: "cpuset", Edit: EditFixed, Kinds: []Kind{AssignedCPUs}},
		{Name: KoordResourceStatus, Location: PodAnnotation, Field: "numaNodeResources", Edit: EditFixed, Kinds: []Kind{NUMANodes}},
		{Name: KoordResourceSpec, Location: PodAnnotation, Edit: EditFixed, Why: "the agent uses it only if the agent chooses the CPUs (placement.policy: pools); otherwise only the scheduler uses it"},
		{Name: KoordExtended, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{BatchResources}, Why: "batch resources of the pod's spec have priority, if the spec is known"},
		{Name: KoordDevices, Location: PodAnnotation, Field: "gpu", Edit: EditFixed, Kinds: []Kind{GPUEnv, Devices}},
		{Name: KoordDevices, Location: PodAnnotation, Field: "rdma", Edit: EditFixed, Kinds: []Kind{Devices}},
		{Name: KoordDevices, Location: PodAnnotation, Field: "fpga", Handling: KeyUnsupported, Why: "no hook gives FPGAs to containers"},
		{Name: KoordGPUIsolation, Location: PodLabel, Edit: EditFixed, Kinds: []Kind{GPULibrary}},
		{Name: KoordCPUQoS, Location: PodAnnotation, Field: "enable", Edit: EditLive, Kinds: []Kind{CPUQoSKind}},
		{Name: KoordCPUQoS, Location: PodAnnotation, Field: "groupIdentity", Edit: EditLive, Kinds: []Kind{CPUQoSKind}},
		{Name: KoordCPUQoS, Location: PodAnnotation, Field: "schedIdle", Handling: KeyUnsupported, Why: "the class of the pod determines cpu.idle (hooks.groupIdentity.fallback)"},
		{Name: KoordCPUQoS, Location: PodAnnotation, Field: "coreExpeller", Handling: KeyUnsupported, Why: "it needs a kernel of Koordinator's distribution"},
		{Name: KoordBlkioQoS, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{DiskLimits}},
		{Name: KoordResctrl, Location: PodAnnotation, Edit: EditLive, Kinds: []Kind{RDT}},
		{Name: KoordCoreSchedGroup, Location: PodLabel, Edit: EditLive, Kinds: []Kind{CoreSched}},
		{Name: KoordCoreSchedPolicy, Location: PodLabel, Edit: EditLive, Kinds: []Kind{CoreSched}},
		{Name: KoordOOMScore, Location: PodAnnotation, Edit: EditNext, Kinds: []Kind{OOMScore}},
		{Name: KoordOOMScoreSpec, Location: PodAnnotation, Edit: EditNext, Kinds: []Kind{OOMScore}},
		{Name: "runtimeproxy.koordinator.sh/skip-hookserver", Location: PodLabel, Edit: EditFixed, Why: "the agent does not call hook servers for the pod"},
		{Name: "koordinator.sh/cpuBurst", Location: PodAnnotation, Handling: KeyUnsupported, Why: "only volcano.sh/quota-burst-time sets CPU burst"},
		{Name: "koordinator.sh/memoryQOS", Location: PodAnnotation, Handling: KeyUnsupported, Why: "only the class sets memory protection and watermarks (hooks.preemption)"},
		{Name: "koordinator.sh/networkQOS", Location: PodAnnotation, Handling: KeyUnsupported, Why: "this agent shapes no network traffic"},
	}
	keys = append(keys, koordinatorIgnored()...)
	return keys
}

// koordinatorIgnored are Koordinator's keys that are no requests to a node agent (KeyIgnored).
func koordinatorIgnored() []Key {
	var keys []Key
	for _, row := range []struct {
		location Location
		why      string
		names    []string
	}{
		{PodAnnotation, schedulerReason, []string{
			"scheduling.koordinator.sh/numa-topology-spec", "scheduling.koordinator.sh/device-allocate-hint",
			"scheduling.koordinator.sh/device-joint-allocate", "scheduling.koordinator.sh/gpu-partition-spec",
		}},
		{PodLabel, "the scheduler and evictions order pods by it; the agent uses the pod's class instead, and only reports the priority in NodeMetric", []string{"koordinator.sh/priority", "koordinator.sh/priority-class"}},
		{PodLabel, evictionReason, []string{"koordinator.sh/eviction-enabled"}},
		{PodAnnotation, evictionReason, []string{"koordinator.sh/eviction-policy", "koordinator.sh/eviction-priority"}},
		{ResourceName, "not a label or annotation: the agent reads it as a resource in extended-resource-spec and in the pod's spec", []string{batchCPU, batchMemory}},
		{ResourceName, "neither this agent nor Koordinator's node agent sets anything because of it", []string{"kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"}},
		{ResourceName, "not a label or annotation: the agent reads it as a resource in device-allocated", []string{gpuCore, gpuMemory, gpuMemoryRatio}},
		{ResourceName, devicePluginReason, []string{
			"koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/rdma", "koordinator.sh/fpga", "nvidia.com/gpu", "dcu.com/gpu", "amd.com/gpu",
			"huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp",
		}},
		{NodeObject, nodeReason, []string{
			"node.koordinator.sh/cpu-normalization-enabled", "node.koordinator.sh/reservation", "node.koordinator.sh/network-bandwidth",
			"node.koordinator.sh/cpu-bind-policy", "node.koordinator.sh/numa-topology-policy", "node.koordinator.sh/numa-allocate-strategy",
			"node.koordinator.sh/gpu-vendor",
		}},
		{NodeObject, "set hooks.normalization.ratio in the configuration, or let the agent read the annotation: cluster.config.alsoRead: [koordinator]", []string{"node.koordinator.sh/cpu-normalization-ratio"}},
		{TopologyObject, nodeReason, []string{
			"node.koordinator.sh/cpu-topology", "node.koordinator.sh/cpu-shared-pools", "node.koordinator.sh/be-cpu-shared-pools", "node.koordinator.sh/pod-cpu-allocs",
			"kubelet.koordinator.sh/cpu-manager-policy", "node.koordinator.sh/system-qos-resource", "node.koordinator.sh/cpu-basic-info",
		}},
	} {
		for _, name := range row.names {
			keys = append(keys, Key{Name: name, Location: row.location, Handling: KeyIgnored, Why: row.why})
		}
	}
	return keys
}
