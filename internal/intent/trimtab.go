package intent

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Our own keys, for requests that no other dialect has.
const (
	// TrimtabUnsetQuota lifts ("true") or keeps ("false") the CPU quota of a pod that owns its
	// CPUs, whatever the node's default is.
	TrimtabUnsetQuota = "trimtab.io/unset-cpu-quota"
	// TrimtabBlockIOClass names a class of the runtime's block I/O configuration.
	TrimtabBlockIOClass = "trimtab.io/blockio-class"
	// TrimtabRDTClass names a class of the runtime's RDT configuration.
	TrimtabRDTClass = "trimtab.io/rdt-class"
	// TrimtabHugepages limits containers' huge pages, by container and resource:
	// {"main":{"hugepages-2Mi":"64Mi"}}.
	TrimtabHugepages = "trimtab.io/hugepage-limits"
	// TrimtabCPUEnv asks for environment variables with a container's CPUs: "true" for those of
	// the node's configuration, or names, GOMAXPROCS=count,MY_CPUS=list.
	TrimtabCPUEnv = "trimtab.io/cpu-env"
	// TrimtabCoreType makes an owner prefer CPUs of "performance" or of "efficient" cores.
	TrimtabCoreType = "trimtab.io/prefer-core-type"
	// TrimtabIsolated makes an owner prefer isolated CPUs ("true") or others
	// ("false"), however many it owns.
	TrimtabIsolated = "trimtab.io/prefer-isolated-cpus"
)

// CoreTypes are the kinds of cores by their names in nri-plugins' balloons
// (preferCoreType, 0.12).
func CoreTypes() map[string]topology.CoreKind {
	return map[string]topology.CoreKind{"performance": topology.PerformanceCore, "efficient": topology.EfficiencyCore}
}

func readTrimtab(t *texts, _ *lifecycle.PodSpec, out *Pod) {
	readHugepages(t, out)
	readCPUEnv(t, out)
	out.RDTClass = readClassName(t, TrimtabRDTClass, out)
	out.BlockIOClass = readClassName(t, TrimtabBlockIOClass, out)
	out.UnsetQuota = readBool(t, TrimtabUnsetQuota, out)
	out.Isolated = readBool(t, TrimtabIsolated, out)
	if text := t.annotation(TrimtabCoreType); text != "" {
		kind, known := CoreTypes()[text]
		if !known {
			out.problem(TrimtabCoreType, text, `want "performance" or "efficient"`)
			return
		}
		out.CoreKind = Sourced[topology.CoreKind]{kind, TrimtabCoreType}
	}
}

func readBool(t *texts, key string, out *Pod) (said Sourced[bool]) {
	switch text := t.annotation(key); text {
	case "":
	case "true", "false":
		return Sourced[bool]{text == "true", key}
	default:
		out.problem(key, text, `want "true" or "false"`)
	}
	return said
}
