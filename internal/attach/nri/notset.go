package nri

// UnsetField is a field of NRI's adjustments that no policy sets, and the reason.
type UnsetField struct{ Proto, Reason string }

// Reasons that several fields share.
const (
	reasonObsolete  = "obsolete: cgroups of version 2 do not have it"
	reasonSetByFile = "set this cgroup file with the setting `unified` instead: "
)

// UnsetFields lists the fields of NRI's adjustments that no policy sets. TestEveryAdjustment compares the list with the
// messages of the NRI library.
func UnsetFields() []UnsetField {
	return []UnsetField{
		{"args[]", "the pod's author decides what a container runs"},
		{"linux.cgroups_path", "the kubelet and the runtime expect a container's cgroup at the path that they chose"},
		{"linux.namespaces[]", "a namespace isolates its containers; a pod has fields for the namespaces of the host that Kubernetes lets it share"},
		{"linux.seccomp_policy", "a seccomp filter protects the node; policies only read a summary of it"},
		{"linux.resources.devices[]", "device cgroup rules are added together with the device nodes of the setting `device`"},
		{"linux.resources.pids.limit", "the kubelet sets it for all pods of a node (`podPidsLimit`)"},
		{"linux.resources.memory.reservation", reasonSetByFile + "`memory.low`"},
		{"linux.resources.memory.swap", reasonSetByFile + "`memory.swap.max`"},
		{"linux.resources.memory.kernel", reasonObsolete},
		{"linux.resources.memory.kernel_tcp", reasonObsolete},
		{"linux.resources.memory.swappiness", reasonObsolete},
		{"linux.resources.memory.disable_oom_killer", reasonObsolete},
		{"linux.resources.memory.use_hierarchy", reasonObsolete},
		{"linux.resources.cpu.realtime_runtime", "only kernels with CONFIG_RT_GROUP_SCHED and cgroups of version 1 have it"},
		{"linux.resources.cpu.realtime_period", "only kernels with CONFIG_RT_GROUP_SCHED and cgroups of version 1 have it"},
	}
}
