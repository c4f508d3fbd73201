package nri

// NotSet is a field of NRI's adjustments that no policy sets, and why.
type NotSet struct{ Proto, Why string }

// Reasons that several fields share.
const (
	obsolete = "obsolete: cgroups of version 2 do not have it"
	byFile   = "set the file instead, by the setting `unified`: "
)

// NotSets lists the fields of NRI's adjustments that no policy sets. TestEveryAdjustment
// compares it with the messages of the library.
func NotSets() []NotSet {
	return []NotSet{
		{"args[]", "what a container runs is its author's to say"},
		{"linux.cgroups_path", "the kubelet and the runtime look for a container's cgroup where they put it"},
		{"linux.namespaces[]", "another namespace is another's isolation; pods have fields for those that Kubernetes lets them share"},
		{"linux.seccomp_policy", "a filter is a container's security; policies read a summary of it"},
		{"linux.resources.devices[]", "rules of the device cgroup come with the device nodes of the setting `device`"},
		{"linux.resources.pids.limit", "the kubelet says it for all pods of a node (`podPidsLimit`)"},
		{"linux.resources.memory.reservation", byFile + "`memory.low`"},
		{"linux.resources.memory.swap", byFile + "`memory.swap.max`"},
		{"linux.resources.memory.kernel", obsolete},
		{"linux.resources.memory.kernel_tcp", obsolete},
		{"linux.resources.memory.swappiness", obsolete},
		{"linux.resources.memory.disable_oom_killer", obsolete},
		{"linux.resources.memory.use_hierarchy", obsolete},
		{"linux.resources.cpu.realtime_runtime", "only kernels with CONFIG_RT_GROUP_SCHED and cgroups of version 1 have it"},
		{"linux.resources.cpu.realtime_period", "only kernels with CONFIG_RT_GROUP_SCHED and cgroups of version 1 have it"},
	}
}
