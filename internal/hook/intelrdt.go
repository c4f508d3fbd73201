package hook

import (
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// IntelRDT gives containers the intelRdt section of the OCI spec that their pod requests. The keys and values are those
// of NRI 0.12, plugin rdt.
type IntelRDT struct {
	// Classes are the resctrl groups that pods may name; an entry that ends with * stands for all names that begin
	// with the text before it. Schemata reports whether pods may set schemata.
	Classes  []string
	Schemata bool
	// KernelSupport reports whether the node has resctrl.
	KernelSupport lifecycle.Finding
}

// IntelRDTOptions tunes the hook that sets intelRdt in the OCI spec.
type IntelRDTOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Classes are the groups of resctrl that pods may name; an entry that ends with * stands for all names that begin
	// with the text before it. If the list is empty, pods may name no group.
	Classes []string `json:"classes" check:"RDT classes"`
	// Schemata lets pods set the schemata of their group.
	Schemata bool `json:"schemata"`
}

// Make makes the hook for a node.
func (o IntelRDTOptions) Make(n Node, _ *Options) (Hook, error) {
	return IntelRDT{Classes: o.Classes, Schemata: o.Schemata, KernelSupport: n.Probe("resctrl")}, nil
}

// Info describes the hook.
func (IntelRDT) Info() Info {
	return Info{
		Name:           "intelRDT",
		About:          "resctrl group, schemata and monitoring of a container, which the OCI runtime sets",
		Stages:         []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:          []string{intent.NRIClosID, intent.NRISchemata, intent.NRIMonitoring},
		Sets:           []lifecycle.Field{lifecycle.IntelRDT},
		KernelFeatures: []string{"resctrl"},
		Compose:        "no other hook sets this field; the hook rdt makes Trimtab's own groups",
		TestedOn:       "the embedded runtime only; no processor with resctrl was available",
		Differs: []string{
			"pods may name only classes in hooks.intelRDT.classes, and set schemata only with hooks.intelRDT.schemata; the agent refuses and reports other requests",
			"KEY/pod and KEY without a suffix apply to all containers of the pod, in addition to KEY/container.NAME",
			"nothing is set if the node has no resctrl, because an OCI runtime then fails the container",
			"malformed texts are reported, and the container starts without them",
		},
	}
}

// Propose sets the members of the OCI spec's intelRdt section that the pod requests.
func (h IntelRDT) Propose(in *Input, out *Output) {
	class, ofClass, named := scopedRequest(in, in.Intent.ClosID, "intelRDT")
	lines, ofLines, shared := scopedRequest(in, in.Intent.Schemata, "intelRDT")
	monitor, ofMonitor, measured := scopedRequest(in, in.Intent.Monitoring, "intelRDT")
	for _, asked := range []struct {
		requested, allowed bool
		name, key, text    string
		why                lifecycle.Reason
		whyNot             string // the reason why allowed is false
	}{
		{named, matchesList(h.Classes, class.V), "closid", class.Key, class.V, ofClass, "hooks.intelRDT.classes does not list this class"},
		{shared, h.Schemata, "schemata", lines.Key, strings.Join(lines.V, ","), ofLines, "hooks.intelRDT.schemata is false"},
		{measured && monitor.V, true, "monitoring", monitor.Key, "true", ofMonitor, ""},
	} {
		switch {
		case !asked.requested:
		case h.KernelSupport.Support == lifecycle.NotSupported:
			out.decline(asked.key, asked.text, "intel-rdt: "+h.KernelSupport.Why)
		case !asked.allowed:
			out.decline(asked.key, asked.text, "intel-rdt: "+asked.whyNot)
		default:
			out.setText(in, lifecycle.IntelRDT, asked.name, asked.text, asked.why)
		}
	}
}
