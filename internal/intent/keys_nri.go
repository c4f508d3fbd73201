package intent

import "slices"

// otherPluginReason returns the reason why the agent reports a key as not supported, although the NRI plugin with this
// name serves the key. The agent cannot know whether the plugin runs on the node.
func otherPluginReason(name string) string {
	return "this agent does not serve it; only the NRI plugin " + name + " does"
}

// unsupportedPlugin has the pod annotations of one NRI plugin that the agent does not read. Each annotation is scoped:
// it also has the forms KEY/pod and KEY/container.NAME. The KEY is an entry of keys, followed by suffix.
type unsupportedPlugin struct {
	name, suffix string
	keys         []string
}

// keyRows returns the plugin's keys for the table of keys.
func (p unsupportedPlugin) keyRows() []Key {
	rows := make([]Key, 0, len(p.keys))
	for _, key := range p.keys {
		rows = append(rows, Key{Name: key + p.suffix, Scoped: true, Location: PodAnnotation, Handling: KeyUnsupported, Why: otherPluginReason(p.name)})
	}
	return rows
}

// nriPluginsKeys are the keys of nri-plugins 0.14 and of its ancestor
// cri-resource-manager 0.8.
func nriPluginsKeys() []Key {
	var keys []Key
	for _, p := range []unsupportedPlugin{
		{"nri-resource-policy-topology-aware", ".resource-policy.nri.io", []string{
			"prefer-cpu-priority", "cpu-class", "irq-affinity", "pick-resources-by-hints",
			"strict.topologyhints", "test.topologyhints",
		}},
		{"nri-resource-policy (balloons or topology-aware)", ".resource-policy.nri.io", []string{
			"rdtclass", "blockioclass",
		}},
		{"nri-memtierd", ".memtierd.nri.io", []string{"class"}},
		{"nri-sgx-epc", ".nri.io", []string{"epc-limit"}},
	} {
		keys = append(keys, p.keyRows()...)
	}
	for _, r := range policyScopedKeys {
		keys = append(keys, Key{Name: r.key, Scoped: true, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{r.kind}, Why: servingPolicies(r.key)})
	}
	for _, r := range pluginScopedKeys {
		keys = append(keys, Key{Name: r.key, Scoped: true, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{r.kind}})
	}
	return append(
		keys,
		Key{Name: NRIAffinity, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{CPUPreference}, Why: servingPolicies(NRIAffinity)},
		Key{Name: NRIAntiAffinity, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{CPUPreference}, Why: servingPolicies(NRIAntiAffinity)},
		Key{Name: "noderesource.dev/resources", Location: PodAnnotation, Handling: KeyIgnored, Why: "a webhook copies the pod's resources into it; the agent reads the resources from the pod's spec"},
		Key{Name: "intel.com/resources", Location: PodAnnotation, Handling: KeyIgnored, Why: "a webhook copies the pod's resources into it; the agent reads the resources from the pod's spec"},
		Key{Name: "resource-policy.nri.io/group", Location: NodeObject, Handling: KeyIgnored, Why: nodeGroupReason},
		Key{Name: "config.nri/group", Location: NodeObject, Handling: KeyIgnored, Why: nodeGroupReason},
		Key{Name: "group.config.nri", Location: NodeObject, Handling: KeyIgnored, Why: nodeGroupReason},
		Key{Name: "cpuclass.balloons.nri.io/<class>", Location: ResourceName, Handling: KeyIgnored, Why: devicePluginReason},
		Key{Name: "cpuclass.resource-policy.nri.io/<class>", Location: ResourceName, Handling: KeyIgnored, Why: devicePluginReason},
	)
}

// nriKeys are the keys of the plugins in the NRI repository (0.12), in the domain noderesource.dev and
// in older domains.
func nriKeys() []Key {
	const noInterface = "no program reads it: the README of the NRI plugin network-device-injector names it, but the plugin reads netdevice.noderesource.dev"
	keys := []Key{
		{Name: "netdevices.noderesource.dev", Scoped: true, Location: PodAnnotation, Handling: KeyUnsupported, Why: noInterface},
	}
	for _, r := range nriScopedKeys {
		k := Key{Name: r.key, Scoped: true, Location: PodAnnotation, Edit: EditFixed, Kinds: []Kind{r.kind}}
		if r.key == NRIPodNetwork || r.key == nriOldPodNetwork {
			k.Why = podNetworkOnly
		}
		keys = append(keys, k)
	}
	const runtimes = "an option for the runtime, not for the agent"
	return append(
		keys,
		Key{Name: "required-plugins.noderesource.dev", Scoped: true, Location: PodAnnotation, Handling: KeyIgnored, Why: "the runtime's own validator reads it"},
		Key{Name: "tolerate-missing.example.org", Location: PodAnnotation, Handling: KeyIgnored, Why: "an example; the administrator of the runtime chooses the name of the annotation that the runtime's own validator reads"},
		Key{Name: "rdt.resources.beta.kubernetes.io/container.<name>", Location: PodAnnotation, Handling: KeyIgnored, Why: runtimes},
		Key{Name: "blockio.resources.beta.kubernetes.io/container.<name>", Location: PodAnnotation, Handling: KeyIgnored, Why: runtimes},
		Key{Name: "blockio.resources.beta.kubernetes.io/pod", Location: PodAnnotation, Handling: KeyIgnored, Why: runtimes},
	)
}

// podNetworkOnly says why the agent does not support KEY/container.NAME for the keys of the pod's network interfaces.
const podNetworkOnly = "it cannot name one container, because the interface moves into the network namespace that the pod's containers share"

// scopedKey is a key that the agent reads and that also has the forms KEY/pod and KEY/container.NAME. It makes a
// request of one kind.
type scopedKey struct {
	key  string
	kind Kind
}

// policyScopedKeys are the keys of nri-plugins' policies that the agent reads. The keys in this list have no suffix
// /pod or /container.NAME, but the agent reads the keys with these suffixes too.
var policyScopedKeys = []scopedKey{
	{NRIBalloon, BalloonKind}, {NRIHideThreads, ThreadsKind}, {NRIPreserveCPU, PreserveKind}, {NRIPreserveMemory, PreserveKind},
	{NRIMemoryType, MemoryTypeKind}, {NRIColdStart, MemoryTypeKind}, {NRISchedulingClass, SchedClassKind},
	{NRIPreferShared, CPUPreference}, {NRIPreferIsolated, CPUPreference}, {NRIRequireIsolated, CPUPreference},
	{NRIPreferReserved, ClassSystem}, {NRIUnlimited, CPUPreference},
	{NRIHints, CPUPreference}, {NRIDenyHints, CPUPreference}, {NRIAllowHints, CPUPreference},
}

// pluginScopedKeys are the keys of nri-plugins' other plugins that the agent reads. The keys in this list have no
// suffix /pod or /container.NAME, but the agent reads the keys with these suffixes too.
var pluginScopedKeys = []scopedKey{
	{NRIMemoryQoS, MemoryQoSKind}, {NRIMemoryHigh, MemoryQoSKind}, {NRISwapMax, MemoryQoSKind},
	{NRIMemoryPolicyClass, MemPolicyKind}, {NRIMemoryPolicyText, MemPolicyKind},
}

// servingPolicies returns a text that names the placement policies that serve a key of nri-plugins.
func servingPolicies(key string) string {
	switch key {
	case NRIBalloon:
		return "with placement.policy: balloons"
	case NRIHideThreads, NRIPreserveCPU, NRIPreserveMemory, NRIMemoryType, NRISchedulingClass:
		return "with placement.policy: balloons or topology-aware"
	}
	return "with placement.policy: topology-aware"
}

// nriScopedKeys are the keys of NRI's plugins that the agent reads. The keys in this list have no suffix /pod or
// /container.NAME, but the agent reads the keys with these suffixes too.
var nriScopedKeys = []scopedKey{
	{NRIUlimits, UlimitsKind}, {NRIOldUlimits, UlimitsKind},
	{NRIIOPriority, IOPrioKind}, {nriOldIOPriority, IOPrioKind},
	{NRIScheduler, SchedKind}, {nriOldScheduler, SchedKind},
	{NRIMemPolicy, MemPolicyKind}, {nriOldMemPolicy, MemPolicyKind},
	{NRISysctl, SysctlKind},
	{NRIDevices, DeviceNodeKind}, {nriOldDevices, DeviceNodeKind},
	{NRIMounts, Mounts}, {nriOldMounts, Mounts},
	{NRICDI, CDIKind}, {nriOldCDI, CDIKind},
	{NRINetDevices, NetDeviceKind}, {nriOldNetDevices, NetDeviceKind},
	{NRIPodNetwork, NetDeviceKind}, {nriOldPodNetwork, NetDeviceKind},
	{NRICgroups, CgroupKind},
	{NRIClosID, IntelRDTKind}, {NRISchemata, IntelRDTKind}, {NRIMonitoring, IntelRDTKind},
}

// nriPodKeys maps each scoped key that the agent reads to its form for the whole pod, KEY/pod. The map is built once,
// because the runtime waits while the agent reads a pod.
var nriPodKeys = func() map[string]string {
	set := map[string]string{}
	for _, r := range slices.Concat(nriScopedKeys, policyScopedKeys, pluginScopedKeys) {
		set[r.key] = r.key + "/pod"
	}
	return set
}()
