package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// CPUSet turns a container's CPU group into its cpuset, and lifts the CFS quota of containers
// that own their CPUs.
type CPUSet struct {
	// UnsetQuota lifts the quota of containers that own their CPUs, unless their pod requests to
	// keep it.
	UnsetQuota bool
}

// CPUSetOptions tunes the cpuset hook.
type CPUSetOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
	// UnsetQuota lifts the CFS quota of containers that own their CPUs, where
	// the pod's annotation trimtab.io/unset-cpu-quota does not say otherwise.
	UnsetQuota bool `json:"unsetQuota" default:"true"`
	// Unlabelled says what pods without a class get: "leave" touches them only
	// where exclusive CPUs must be kept clear, "shared" puts them into the
	// shared pool.
	Unlabelled string `json:"unlabelled" default:"leave" check:"leave|shared"`
	// ReclaimedByNUMA puts a reclaimed pod for which the scheduler chose NUMA
	// nodes into the reclaimed pool of those nodes.
	ReclaimedByNUMA bool `json:"reclaimedByNUMA"`
}

// AllOn is the hook with everything switched on.
func (CPUSetOptions) AllOn() Hook { return CPUSet{} }

// Make makes the hook for a node.
func (o CPUSetOptions) Make(_ Node, _ *Options) (Hook, error) {
	return CPUSet{UnsetQuota: o.UnsetQuota}, nil
}

// Info describes the hook.
func (CPUSet) Info() Info {
	return Info{
		Name:    "cpuset",
		About:   "CPUs that the scheduler assigned, or the CPUs of the container's pool",
		Stages:  lifetimeEvents(),
		Reads:   []string{intent.KoordQoSClass, intent.KoordResourceStatus, intent.TrimtabUnsetQuota, intent.TrimtabCoreType, intent.TrimtabIsolated},
		Sets:    []lifecycle.Field{lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.CPUQuota},
		Pod:     []lifecycle.Field{lifecycle.CPUQuota},
		Kernel:  []string{"cpuset", "cpu"},
		Compose: "sets the quota (to unlimited) only of containers that own CPUs; batch does not change their quota",
		Differs: []string{
			"an UpdateContainerResources is answered for the container it names, so it cannot take assigned CPUs away (Koordinator 1.7 loses the answer)",
			"CPUs that another pod owns, and reserved or offline CPUs, are refused and reported; the container runs in the shared pool",
			"pods without a class keep all CPUs that have no owner; hooks.cpuset.unlabelled: shared puts them into the shared pool as Koordinator does",
			"each pod decides whether its quota is lifted (trimtab.io/unset-cpu-quota); the node only sets the default",
			"CPUs of LSR pods are not lent to batch pods",
			"for unknown or empty NUMA nodes the container gets the whole pool and the agent reports that, instead of setting an empty list",
		},
	}
}

// Propose sets the cpuset.
func (h CPUSet) Propose(in *Input, out *Output) {
	why := lifecycle.Reason{Hook: "cpuset", Source: in.AssignedBy, Text: in.AssignedWhy}
	if in.Container != "" && in.CPUs != "" {
		out.text(in, lifecycle.CPUSetCPUs, "", in.CPUs, why)
	}
	if in.Container != "" && in.Mems != "" {
		why := lifecycle.Reason{Hook: "cpuset", Source: in.AssignedBy, Text: "memory nodes near its CPUs, without nodes that others own exclusively; as decided when it was created"}
		out.text(in, lifecycle.CPUSetMems, "", in.Mems, why)
	}
	unset := h.UnsetQuota
	if own := in.Intent.UnsetQuota; own.IsSet() {
		unset, why.Source = own.V, own.Key
	}
	if unset && in.Pool == placement.Own {
		why.Text = "not throttled on CPUs it owns"
		out.number(in, lifecycle.CPUQuota, -1, why)
	}
}
