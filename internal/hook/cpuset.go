package hook

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// CPUSetOptions are the options of the hook that sets the cpuset of a container. The CPUs are those that the scheduler
// assigned to the container, or the CPUs of the container's pool. The hook also removes the CFS quota of containers
// that own their CPUs.
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
		Compose:        "removes the quota only of containers that own CPUs; the hook batch does not change the quota of these containers",
		Differs: []string{
			"a request UpdateContainerResources cannot take assigned CPUs away, because the agent puts them into the request (Koordinator 1.7 loses this change)",
			"an assignment with CPUs that another pod owns, or with reserved or offline CPUs, is refused and reported; the container runs in the shared pool",
			"pods without a class may run on all CPUs that no container owns. With hooks.cpuset.unlabelled: shared, such pods run in the shared pool, except BestEffort pods; Koordinator does the same",
			"each pod decides whether its quota is removed (trimtab.io/unset-cpu-quota); the node only sets the default",
			"CPUs of LSR pods are not lent to batch pods by default (placement.lendLSR)",
			"if the NUMA nodes are unknown or empty, the container gets the whole pool instead of an empty list, and the agent reports that",
		},
	}
}

// Propose sets CPUs and memory nodes of a container, and removes the quota of a container or pod with exclusive CPUs.
func (h CPUSetOptions) Propose(in *Input, out *Output) {
	why := lifecycle.Reason{Hook: "cpuset", Source: in.AssignedBy, Text: in.AssignedWhy}
	if in.Container != "" && in.CPUs != "" {
		out.setText(in, lifecycle.CPUSetCPUs, "", in.CPUs, why)
	}
	if in.Container != "" && in.Mems != "" {
		why := lifecycle.Reason{Hook: "cpuset", Source: in.AssignedBy, Text: "memory nodes near the container's CPUs, without nodes that other pods own exclusively; chosen when the container was created"}
		if cold := in.ColdStart; cold.Seconds > 0 {
			why.Text = fmt.Sprintf("a cold start, as the pod's annotation requests: only memory of kind PMEM for %d s, then memory nodes %s", cold.Seconds, cold.Mems)
		}
		out.setText(in, lifecycle.CPUSetMems, "", in.Mems, why)
	}
	unset := h.UnsetQuota
	if own := in.Intent.UnsetQuota; own.IsSet() {
		unset, why.Source = own.V, own.Key
	}
	if unset && in.Pool == placement.Exclusive {
		why.Text = "no quota, because the CPUs are exclusive"
		out.setNumber(in, lifecycle.CPUQuota, -1, why)
	}
}
