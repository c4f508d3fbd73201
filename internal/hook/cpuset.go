package hook

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// CPUSetOptions are the options of the hook that sets the cpuset of a container to the CPUs of its CPU group. The hook
// also removes the CFS quota of containers that own their CPUs.
type CPUSetOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
	// UnsetQuota removes the CFS quota of containers that own their CPUs. The
	// annotation trimtab.io/unset-cpu-quota of a pod has priority.
	UnsetQuota bool `json:"unsetQuota" default:"true"`
	// Unlabelled is the treatment of pods without a class: "leave" changes them only
	// to keep them off exclusive CPUs, "shared" puts them into the shared pool, unless
	// they are BestEffort.
	Unlabelled string `json:"unlabelled" default:"leave" check:"leave|shared"`
	// ReclaimedByNUMA puts a reclaimed pod for which the scheduler chose NUMA
	// nodes into the reclaimed pool of those nodes.
	ReclaimedByNUMA bool `json:"reclaimedByNUMA"`
}

// Info describes the hook.
func (CPUSetOptions) Info() Info {
	return Info{
		Name:           "cpuset",
		About:          "CPUs that the scheduler assigned, or the CPUs of the container's pool",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.KoordQoSClass, intent.KoordResourceStatus, intent.TrimtabUnsetQuota, intent.TrimtabCoreType, intent.TrimtabIsolated},
		Sets:           []lifecycle.Field{lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.CPUQuota},
		SetsOnPod:      []lifecycle.Field{lifecycle.CPUQuota},
		KernelFeatures: []string{"cpuset", "cpu"},
		Compose:        "sets the quota (to unlimited) only of containers that own CPUs; batch does not change their quota",
		Differs: []string{
			"the answer to UpdateContainerResources changes the container that the request names, so a request cannot take assigned CPUs away (Koordinator 1.7 loses the answer)",
			"CPUs that another pod owns, and reserved or offline CPUs, are refused and reported; the container runs in the shared pool",
			"pods without a class keep all CPUs that have no owner; hooks.cpuset.unlabelled: shared puts those that are not BestEffort into the shared pool as Koordinator does",
			"each pod decides whether its quota is removed (trimtab.io/unset-cpu-quota); the node only sets the default",
			"CPUs of LSR pods are not lent to batch pods by default (placement.lendLSR)",
			"if the NUMA nodes are unknown or empty, the container gets the whole pool instead of an empty list, and the agent reports that",
		},
	}
}

// Propose sets the cpuset.
func (h CPUSetOptions) Propose(in *Input, out *Output) {
	why := lifecycle.Reason{Hook: "cpuset", Source: in.AssignedBy, Text: in.AssignedWhy}
	if in.Container != "" && in.CPUs != "" {
		out.setText(in, lifecycle.CPUSetCPUs, "", in.CPUs, why)
	}
	if in.Container != "" && in.Mems != "" {
		why := lifecycle.Reason{Hook: "cpuset", Source: in.AssignedBy, Text: "memory nodes near its CPUs, without nodes that other pods own exclusively; decided when it was created"}
		if cold := in.ColdStart; cold.Seconds > 0 {
			why.Text = fmt.Sprintf("a cold start, as its annotation requests: only memory of kind PMEM, and after %d s memory nodes %s", cold.Seconds, cold.Mems)
		}
		out.setText(in, lifecycle.CPUSetMems, "", in.Mems, why)
	}
	unset := h.UnsetQuota
	if own := in.Intent.UnsetQuota; own.IsSet() {
		unset, why.Source = own.V, own.Key
	}
	if unset && in.Pool == placement.Exclusive {
		why.Text = "no quota, because it owns its CPUs"
		out.setNumber(in, lifecycle.CPUQuota, -1, why)
	}
}
