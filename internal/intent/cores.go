package intent

// KoordResourceSpec is the annotation with a pod's preferences for its CPUs. Koordinator's scheduler
// reads it. The agent uses it only if no scheduler assigned CPUs.
const KoordResourceSpec = "scheduling.koordinator.sh/resource-spec"

// CoreUse is the way in which a container that owns CPUs wants to use cores. It takes effect if the
// agent chooses the CPUs.
type CoreUse struct {
	// Whole accepts only whole cores. PreferWhole prefers whole cores. Spread takes threads of as
	// many cores as possible.
	Whole, PreferWhole, Spread bool
	// CoreApart and NodeApart avoid cores, or NUMA nodes, on which other containers own CPUs, if
	// possible.
	CoreApart, NodeApart bool
}

func readResourceSpec(t *texts, out *Pod) {
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
			use.Whole, use.PreferWhole, use.Spread = policy == spec.Required, true, false
		case "SpreadByPCPUs":
			use.Whole, use.PreferWhole, use.Spread = false, false, true
		case "ConstrainedBurst":
			out.reportUnserved(KoordResourceSpec, policy, "CPU bind policy ConstrainedBurst is not supported")
		default:
			out.reportMalformed(KoordResourceSpec, policy, "not a CPU bind policy: Default, FullPCPUs or SpreadByPCPUs")
		}
	}
	switch spec.Exclusive {
	case "", "None":
	case "PCPULevel":
		use.CoreApart = true
	case "NUMANodeLevel":
		use.NodeApart = true
	default:
		out.reportMalformed(KoordResourceSpec, spec.Exclusive, "not a CPU exclusive policy: None, PCPULevel or NUMANodeLevel")
	}
	out.Cores = Sourced[CoreUse]{use, KoordResourceSpec}
}
