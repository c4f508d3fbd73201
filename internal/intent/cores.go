package intent

// KoordResourceSpec is the annotation with a pod's preferences for its CPUs. It is an input of Koordinator's scheduler.
// The agent uses the annotation only if no scheduler assigned CPUs to the pod.
const KoordResourceSpec = "scheduling.koordinator.sh/resource-spec"

// CoreUse is a pod's request for how its CPUs are spread over cores. The request has an effect only if the agent
// chooses the CPUs.
type CoreUse struct {
	// WholeCores accepts only whole cores. PreferWholeCores prefers whole cores. SpreadCores takes threads
	// of as many cores as possible.
	WholeCores, PreferWholeCores, SpreadCores bool
	// AvoidOwnedCores and AvoidOwnedNodes avoid cores, or NUMA nodes, on which other containers own CPUs, if
	// possible.
	AvoidOwnedCores, AvoidOwnedNodes bool
}

// readResourceSpec reads the annotation KoordResourceSpec.
func readResourceSpec(t *podTexts, out *Pod) {
	var spec struct {
		Required  string `json:"requiredCPUBindPolicy"`
		Preferred string `json:"preferredCPUBindPolicy"`
		Exclusive string `json:"preferredCPUExclusivePolicy"`
	}
	if !t.decode(KoordResourceSpec, &spec, out) {
		return
	}
	var use CoreUse
	for _, policy := range []string{spec.Preferred, spec.Required} {
		switch policy {
		case "", "Default":
		case "FullPCPUs":
			use.WholeCores, use.PreferWholeCores, use.SpreadCores = policy == spec.Required, true, false
		case "SpreadByPCPUs":
			use.WholeCores, use.PreferWholeCores, use.SpreadCores = false, false, true
		case "ConstrainedBurst":
			out.reportUnserved(KoordResourceSpec, policy, "CPU bind policy ConstrainedBurst is not supported")
		default:
			out.reportMalformed(KoordResourceSpec, policy, "not a CPU bind policy: want Default, FullPCPUs or SpreadByPCPUs")
		}
	}
	switch spec.Exclusive {
	case "", "None":
	case "PCPULevel":
		use.AvoidOwnedCores = true
	case "NUMANodeLevel":
		use.AvoidOwnedNodes = true
	default:
		out.reportMalformed(KoordResourceSpec, spec.Exclusive, "not a CPU exclusive policy: want None, PCPULevel or NUMANodeLevel")
	}
	out.Cores = Sourced[CoreUse]{use, KoordResourceSpec}
}
