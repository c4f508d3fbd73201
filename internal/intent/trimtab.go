package intent

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// The keys of Trimtab, for requests that other dialects do not have.
const (
	// TrimtabUnsetQuota removes ("true") or keeps ("false") the CPU quota of a pod that owns its
	// CPUs. The annotation has priority over the node's default.
	TrimtabUnsetQuota = "trimtab.io/unset-cpu-quota"
	// TrimtabBlockIOClass names a class of the runtime's block I/O configuration.
	TrimtabBlockIOClass = "trimtab.io/blockio-class"
	// TrimtabRDTClass names a class of the runtime's RDT configuration.
	TrimtabRDTClass = "trimtab.io/rdt-class"
	// TrimtabHugepages limits containers' huge pages, by container and resource:
	// {"main":{"hugepages-2Mi":"64Mi"}}.
	TrimtabHugepages = "trimtab.io/hugepage-limits"
	// TrimtabCPUEnv requests environment variables that tell a container its CPUs: "true" for the variables
	// in the node's configuration, or a list such as GOMAXPROCS=count,MY_CPUS=list.
	TrimtabCPUEnv = "trimtab.io/cpu-env"
	// TrimtabCDIDevices requests exclusive CDI devices by container and kind, as a number or by name:
	// {"main":{"vendor.com/gpu":2,"vendor.com/nic":["nic0"]}}.
	TrimtabCDIDevices = "trimtab.io/cdi-devices"
	// TrimtabCoreType is the kind of cores that a pod prefers for CPUs that it owns: "performance" or
	// "efficient".
	TrimtabCoreType = "trimtab.io/prefer-core-type"
	// TrimtabIsolated makes a pod prefer isolated CPUs ("true") or other CPUs ("false") for CPUs that
	// it owns.
	TrimtabIsolated = "trimtab.io/prefer-isolated-cpus"
)

// CoreTypes returns the kinds of cores by their names in nri-plugins' balloons
// (preferCoreType, 0.12).
func CoreTypes() map[string]topology.CoreKind {
	return map[string]topology.CoreKind{"performance": topology.PerformanceCore, "efficient": topology.EfficiencyCore}
}

// readTrimtab reads Trimtab's own annotations.
func readTrimtab(t *podTexts, _ *lifecycle.PodSpec, out *Pod) {
	readHugepages(t, out)
	readCPUEnv(t, out)
	readExclusiveDevices(t, out)
	out.RDTClass = readClassName(t, TrimtabRDTClass, out)
	out.BlockIOClass = readClassName(t, TrimtabBlockIOClass, out)
	out.UnsetQuota = readBool(t, TrimtabUnsetQuota, out)
	out.PrefersIsolatedCPUs = readBool(t, TrimtabIsolated, out)
	if text := t.annotation(TrimtabCoreType); text != "" {
		kind, known := CoreTypes()[text]
		if !known {
			out.reportMalformed(TrimtabCoreType, text, `want "performance" or "efficient"`)
			return
		}
		out.CoreKind = Sourced[topology.CoreKind]{kind, TrimtabCoreType}
	}
}

// readBool reads an annotation that is "true" or "false". For another text it reports a problem.
func readBool(t *podTexts, key string, out *Pod) (none Sourced[bool]) {
	switch text := t.annotation(key); text {
	case "":
	case "true", "false":
		return Sourced[bool]{text == "true", key}
	default:
		out.reportMalformed(key, text, `want "true" or "false"`)
	}
	return none
}
