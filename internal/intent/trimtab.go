package intent

import "github.com/trimtab/trimtab/internal/lifecycle"

// Keys of our own, for what no other dialect has a word for.
const (
	// TrimtabUnsetQuota lifts ("true") or keeps ("false") the CPU quota of a pod
	// that owns its CPUs, whatever the node does with others.
	TrimtabUnsetQuota = "trimtab.io/unset-cpu-quota"
	// TrimtabBlockIOClass names a class of the runtime's block I/O configuration.
	TrimtabBlockIOClass = "trimtab.io/blockio-class"
	// TrimtabRDTClass names a class of the runtime's RDT configuration.
	TrimtabRDTClass = "trimtab.io/rdt-class"
	// TrimtabHugepages limits containers' huge pages, by container and resource:
	// {"main":{"hugepages-2Mi":"64Mi"}}.
	TrimtabHugepages = "trimtab.io/hugepage-limits"
	// TrimtabCPUEnv asks for environment variables that tell containers of their
	// CPUs: "true" for those of the node, or names, GOMAXPROCS=count,MY_CPUS=list.
	TrimtabCPUEnv = "trimtab.io/cpu-env"
)

func readTrimtab(pod *lifecycle.Pod, _ *lifecycle.PodSpec, out *Pod) {
	readHugepages(pod, out)
	readCPUEnv(pod, out)
	out.RDTClass = readClassName(pod, TrimtabRDTClass, out)
	out.BlockIOClass = readClassName(pod, TrimtabBlockIOClass, out)
	switch text := pod.Annotations[TrimtabUnsetQuota]; text {
	case "":
	case "true", "false":
		out.UnsetQuota = Sourced[bool]{text == "true", TrimtabUnsetQuota}
	default:
		out.problem(TrimtabUnsetQuota, text, `want "true" or "false"`)
	}
}
