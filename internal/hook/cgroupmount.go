package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// delegationFeature is the name of a feature of the node. The node has it if cgroup2 is mounted with the option
// nsdelegate. With this option, a program in a cgroup namespace cannot change the limits of the namespace's root
// cgroup.
const delegationFeature = "nsdelegate"

// WritableCgroups lets containers write the files of their own cgroups. The keys and values of the pod's annotations
// are those of NRI 0.12, plugin writable-cgroups.
type WritableCgroups struct {
	// KernelSupport reports whether the kernel protects the limits of the container's own cgroup from programs in the
	// container.
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
		Compose:        "no other hook sets this field",
		Differs: []string{
			"a container that shares the host's cgroup namespace does not get write access; the agent reports that",
			"values other than true and false are reported; the plugin treats them as false",
		},
	}
}

// Propose makes a container's mount of cgroups writable, if the pod requests it.
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
