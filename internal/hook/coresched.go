package hook

import (
	"errors"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// CoreSched puts threads into groups. Only threads of the same group may share a core's hyperthreads.
// The groups are those of Koordinator 1.7, plugin CoreSched.
type CoreSched struct {
	// KernelSupport reports whether the kernel has core scheduling cookies.
	KernelSupport lifecycle.Finding
}

// CoreSchedOptions tunes the core scheduling hook.
type CoreSchedOptions struct {
	// Enabled switches the hook on. On a kernel that has group identities,
	// hooks.coreSched and hooks.groupIdentity cannot both be enabled.
	Enabled bool `json:"enabled"`
}

// Make makes the hook for a node.
func (CoreSchedOptions) Make(n Node, all *Options) (Hook, error) {
	if all.GroupIdentity.Enabled && n.Probe(bvtFile).Support == lifecycle.Supported {
		return nil, errors.New("hooks.coreSched: cannot be enabled together with hooks.groupIdentity on a kernel that has group identities; disable one of them")
	}
	return CoreSched{KernelSupport: n.Probe("coreSched")}, nil
}

// Info describes the hook.
func (CoreSched) Info() Info {
	return Info{
		Name:           "coreSched",
		About:          "which pods may share a core's hyperthreads at a time",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.KoordQoSClass, intent.KoordCoreSchedGroup, intent.KoordCoreSchedPolicy},
		Sets:           []lifecycle.Field{lifecycle.CoreSched},
		KernelFeatures: []string{"coreSched"},
		Compose:        "cannot be enabled together with groupIdentity on a kernel that has group identities: with both, kernels locked up (koordinator issue 1829)",
		TestedOn:       "a model of the kernel's cookies only; no kernel with core scheduling was available",
		Differs: []string{
			"cookies are set before a container's first instruction",
			"a pod's sandbox keeps cookie 0, because it does no work",
			"pods without a class are not changed, like those of class SYSTEM",
			"cpu.idle of the directories of QoS classes is not written, because they belong to the kubelet",
			"requests by a pod's labels are refused by default, because a pod with its own group keeps other pods off the hyperthreads of its cores",
		},
	}
}

// expellerSuffix is the end of the group names of dedicated and shared pods, as in Koordinator. The group names of
// reclaimed pods lack the suffix. So a reclaimed pod and a dedicated or shared pod never share a core's hyperthreads.
const expellerSuffix = "-expeller"

// Propose sets a container's core scheduling group.
func (h CoreSched) Propose(in *Input, out *Output) {
	ask := in.Intent.CoreSched
	end, classed := map[intent.Class]string{intent.Dedicated: expellerSuffix, intent.Shared: expellerSuffix, intent.Reclaimed: ""}[in.Intent.Class.V]
	switch {
	case !classed || ask.V.None:
		return
	case h.KernelSupport.Support == lifecycle.NotSupported:
		if ask.IsSet() && in.Container == "" {
			out.decline(ask.Key, "", "coreSched: "+h.KernelSupport.Why)
		}
		return
	case in.Container == "":
		return
	}
	group, why := "default", lifecycle.Reason{Hook: "coreSched", Source: in.Intent.Class.Key, Text: "the group of the pod's class"}
	switch {
	case ask.V.Exclusive:
		group, why.Source, why.Text = in.Pod.UID, ask.Key, "a group for this pod only"
	case ask.V.Group != "":
		group, why.Source, why.Text = ask.V.Group, ask.Key, "requested by the pod"
	}
	out.setText(in, lifecycle.CoreSched, "", group+end, why)
}
