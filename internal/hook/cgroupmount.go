package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// delegationFeature is the feature of a node that mounts cgroups with nsdelegate. Then a program in a cgroup
// namespace cannot change the limits of the namespace's root cgroup.
const delegationFeature = "nsdelegate"

// WritableCgroups lets containers write their own cgroups. The keys and values are those of NRI 0.12, plugin
// writable-cgroups.
type WritableCgroups struct {
	// KernelSupport reports whether the kernel protects the limits of the container's own cgroup.
	KernelSupport lifecycle.Finding
}

// WritableCgroupsOptions tunes the hook of writable cgroups.
type WritableCgroupsOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// Make makes the hook for a node.
func (WritableCgroupsOptions) Make(n Node, _ *Options) (Hook, error) {
	return WritableCgroups{KernelSupport: n.Probe(delegationFeature)}, nil
}

// Info describes the hook.
func (WritableCgroups) Info() Info {
	return Info{
		Name:           "writableCgroups",
		About:          "write access for containers to their own cgroups",
		Stages:         []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:          []string{intent.NRICgroups},
		Sets:           []lifecycle.Field{lifecycle.CgroupMount},
		KernelFeatures: []string{delegationFeature},
		Compose:        "the only hook that sets it",
		Differs: []string{
			"a container that shares the host's cgroup namespace does not get it; the agent reports that",
			"values other than true and false are reported; the plugin treats them as false",
		},
	}
}

// Propose makes the mount of cgroups writable.
func (h WritableCgroups) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.WritableCgroups, "writableCgroups")
	switch {
	case !ok || !asked.V:
	case h.KernelSupport.Support == lifecycle.NotSupported:
		out.decline(asked.Key, "true", "writable-cgroups: "+h.KernelSupport.Why)
	default:
		out.setText(in, lifecycle.CgroupMount, "", "rw", why)
	}
}
