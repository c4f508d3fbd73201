package intent

import "slices"

// otherPlugin returns the reason why the agent reports a key of another NRI plugin. The agent cannot know
// whether that plugin runs on the node.
func otherPlugin(name string) string {
	return "this agent does not serve it; only the NRI plugin " + name + " does"
}

// plugin is a list of scoped pod annotations that one NRI plugin reads.
type plugin struct {
	name, suffix string
	keys         []string
}

// keyRows returns the plugin's keys for the table of keys.
func (p plugin) keyRows() []Key {
	rows := make([]Key, 0, len(p.keys))
	for _, key := range p.keys {
		rows = append(rows, Key{Name: key + p.suffix, Scoped: true, Place: OnPod, Handling: KeyUnsupported, Why: otherPlugin(p.name)})
	}
	return rows
}

// nriPluginsKeys are the keys of nri-plugins 0.14 and of its ancestor
// cri-resource-manager 0.8.
func nriPluginsKeys() []Key {
	var keys []Key
	for _, p := range []plugin{
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
	for _, r := range policyReads {
		keys = append(keys, Key{Name: r.key, Scoped: true, Place: OnPod, Edit: EditFixed, Kinds: []Kind{r.kind}, Why: servingPolicies(r.key)})
	}
	for _, r := range pluginReads {
		keys = append(keys, Key{Name: r.key, Scoped: true, Place: OnPod, Edit: EditFixed, Kinds: []Kind{r.kind}})
	}
	return append(
		keys,
		Key{Name: NRIAffinity, Place: OnPod, Edit: EditFixed, Kinds: []Kind{CPUPreference}, Why: servingPolicies(NRIAffinity)},
		Key{Name: NRIAntiAffinity, Place: OnPod, Edit: EditFixed, Kinds: []Kind{CPUPreference}, Why: servingPolicies(NRIAntiAffinity)},
		Key{Name: "noderesource.dev/resources", Place: OnPod, Handling: KeyIgnored, Why: "the pod's resources, written by a webhook; here the pod's spec has them"},
		Key{Name: "intel.com/resources", Place: OnPod, Handling: KeyIgnored, Why: "the pod's resources, written by a webhook; here the pod's spec has them"},
		Key{Name: "resource-policy.nri.io/group", Place: OnNode, Handling: KeyIgnored, Why: nodeReason},
		Key{Name: "config.nri/group", Place: OnNode, Handling: KeyIgnored, Why: nodeReason},
		Key{Name: "group.config.nri", Place: OnNode, Handling: KeyIgnored, Why: nodeReason},
		Key{Name: "cpuclass.balloons.nri.io/<class>", Place: AsResource, Handling: KeyIgnored, Why: devicePlugin},
		Key{Name: "cpuclass.resource-policy.nri.io/<class>", Place: AsResource, Handling: KeyIgnored, Why: devicePlugin},
	)
}

// nriKeys are the keys of the plugins in the NRI repository (0.12), in the domain noderesource.dev and
// in older domains.
func nriKeys() []Key {
	const noInterface = "no program reads it: the README of the NRI plugin network-device-injector names it, but the plugin reads netdevice.noderesource.dev"
	keys := []Key{
		{Name: "netdevices.noderesource.dev", Scoped: true, Place: OnPod, Handling: KeyUnsupported, Why: noInterface},
	}
	for _, r := range nriReads {
		k := Key{Name: r.key, Scoped: true, Place: OnPod, Edit: EditFixed, Kinds: []Kind{r.kind}}
		if r.key == NRIPodNetwork || r.key == nriOldPodNetwork {
			k.Why = podNetworkOnly
		}
		keys = append(keys, k)
	}
	const runtimes = "an option of the runtime, which reads it itself"
	return append(
		keys,
		Key{Name: "required-plugins.noderesource.dev", Scoped: true, Place: OnPod, Handling: KeyIgnored, Why: "the runtime's own validator reads it"},
		Key{Name: "tolerate-missing.example.org", Place: OnPod, Handling: KeyIgnored, Why: "an example of a name that the runtime's own validator is configured with"},
		Key{Name: "rdt.resources.beta.kubernetes.io/container.<name>", Place: OnPod, Handling: KeyIgnored, Why: runtimes},
		Key{Name: "blockio.resources.beta.kubernetes.io/container.<name>", Place: OnPod, Handling: KeyIgnored, Why: runtimes},
		Key{Name: "blockio.resources.beta.kubernetes.io/pod", Place: OnPod, Handling: KeyIgnored, Why: runtimes},
	)
}

// podNetworkOnly is the reason why the agent reports a key of the pod's interfaces with the scope of one container.
const podNetworkOnly = "it cannot name one container, because the interface moves into the network namespace that the pod's containers share"

// scopedRead is a scoped key that the agent reads, and the kind of request that it makes.
type scopedRead struct {
	key  string
	kind Kind
}

// policyReads are the keys of nri-plugins' policies that the agent reads, without their scopes.
var policyReads = []scopedRead{
	{NRIBalloon, BalloonKind}, {NRIHideThreads, ThreadsKind}, {NRIPreserveCPU, PreserveKind}, {NRIPreserveMemory, PreserveKind},
	{NRIMemoryType, MemoryTypeKind}, {NRIColdStart, MemoryTypeKind}, {NRISchedulingClass, SchedClassKind},
	{NRIPreferShared, CPUPreference}, {NRIPreferIsolated, CPUPreference}, {NRIRequireIsolated, CPUPreference},
	{NRIPreferReserved, ClassSystem}, {NRIUnlimited, CPUPreference},
	{NRIHints, CPUPreference}, {NRIDenyHints, CPUPreference}, {NRIAllowHints, CPUPreference},
}

// pluginReads are the keys of nri-plugins' other plugins that the agent reads, without their scopes.
var pluginReads = []scopedRead{
	{NRIMemoryQoS, MemoryQoSKind}, {NRIMemoryHigh, MemoryQoSKind}, {NRISwapMax, MemoryQoSKind},
	{NRIMemoryPolicyClass, MemPolicyKind}, {NRIMemoryPolicyText, MemPolicyKind},
}

// servingPolicies names the placement policies that serve a key of nri-plugins.
func servingPolicies(key string) string {
	switch key {
	case NRIBalloon:
		return "with placement.policy: balloons"
	case NRIHideThreads, NRIPreserveCPU, NRIPreserveMemory, NRIMemoryType, NRISchedulingClass:
		return "with placement.policy: balloons or topology-aware"
	}
	return "with placement.policy: topology-aware"
}

// nriReads are the keys of NRI's plugins that the agent reads, without their scopes.
var nriReads = []scopedRead{
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

// nriRead has the scoped keys that the agent reads, each with its form for the whole pod. It is built once, because
// the runtime waits while the agent reads a pod.
var nriRead = func() map[string]string {
	set := map[string]string{}
	for _, r := range slices.Concat(nriReads, policyReads, pluginReads) {
		set[r.key] = r.key + "/pod"
	}
	return set
}()
