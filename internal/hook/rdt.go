package hook

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// RDT gives pods shares of the last level cache and of the memory bandwidth. It makes a resctrl group for each QoS
// class with limited shares, and for each cache level (a key of rubik) with limited shares. A pod that requests its own
// shares gets its own group. The annotation and the formulae are those of Koordinator 1.7, plugin Resctrl and strategy
// RdtResctrl.
type RDT struct {
	// Shares are the shares of the group of each QoS class, such as "L3 0-30, MB 50". The pods of a class without
	// shares stay in the kernel's root group.
	Shares ByClass[string]
	// Measure makes a monitoring group for each container.
	Measure bool
	// KernelSupport reports whether the node has resctrl.
	KernelSupport lifecycle.Finding
}

// groupPrefix is the beginning of the names of Trimtab's resctrl groups.
const groupPrefix = "trimtab-"

// RDTOptions tunes the hook of caches and memory bandwidth.
type RDTOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// LSRCache is the part of the ways of the L3 cache for LSE and LSR pods, as a
	// range in percent; 0-100 is the whole cache.
	LSRCache string `json:"lsrCache" default:"0-100" check:"ways"`
	// LSRBandwidth is the percentage of the memory bandwidth that LSE and LSR pods may use.
	LSRBandwidth int `json:"lsrBandwidth" default:"100" check:"1..100"`
	// LSCache is the part of the ways of the L3 cache for LS pods, as a range in percent.
	LSCache string `json:"lsCache" default:"0-100" check:"ways"`
	// LSBandwidth is the percentage of the memory bandwidth that LS pods may use.
	LSBandwidth int `json:"lsBandwidth" default:"100" check:"1..100"`
	// BECache is the part of the ways of the L3 cache for BE pods, as a range in percent.
	BECache string `json:"beCache" default:"0-30" check:"ways"`
	// BEBandwidth is the percentage of the memory bandwidth that BE pods may use.
	BEBandwidth int `json:"beBandwidth" default:"100" check:"1..100"`
	// Measure makes the kernel measure each container's use of cache and
	// bandwidth, with a group below mon_groups.
	Measure bool `json:"measure"`
}

// Make makes the hook for a node.
func (o RDTOptions) Make(n Node, _ *Options) (Hook, error) {
	return RDT{
		Measure: o.Measure, KernelSupport: n.Probe("resctrl"),
		Shares: ByClass[string]{
			LSR: sharesOf(o.LSRCache, o.LSRBandwidth), LS: sharesOf(o.LSCache, o.LSBandwidth), BE: sharesOf(o.BECache, o.BEBandwidth),
		},
	}, nil
}

// sharesOf returns the shares of a QoS class in the form of RDT.Shares; "" if the class has the whole cache and
// bandwidth.
func sharesOf(cache string, bandwidth int) string {
	var parts []string
	if cache != "0-100" {
		parts = append(parts, "L3 "+cache)
	}
	if bandwidth != 100 {
		parts = append(parts, fmt.Sprintf("MB %d", bandwidth))
	}
	return strings.Join(parts, ", ")
}

// Info describes the hook.
func (h RDT) Info() Info {
	i := Info{
		Name:           "rdt",
		About:          "shares of the last level cache and of the memory bandwidth, by class or by a pod's request",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.KoordQoSClass, intent.KoordResctrl, intent.TrimtabRDTClass, intent.RubikPreemptable, intent.RubikCacheLimit},
		Sets:           []lifecycle.Field{lifecycle.RDTClass, lifecycle.RDTGroup, lifecycle.RDTMonitor},
		SetsOnPod:      []lifecycle.Field{lifecycle.RDTSchemata},
		KernelFeatures: []string{"resctrl"},
		Compose:        "no other hook sets these fields",
		TestedOn:       "a model of resctrl only; no processor with resctrl was available",
		Differs: []string{
			"groups are named trimtab-CLASS and trimtab-UID, and are removed with their last pod; when the agent connects to the runtime, it also removes unused groups of an earlier run",
			"the agent moves all threads of a container before its first instruction, and does not depend on a periodic scan",
			"a QoS class with the whole cache and bandwidth gets no group, because the hardware supports few groups",
			"a changed configuration changes the existing groups",
			"trimtab.io/rdt-class names a class of the runtime's own RDT configuration. It is set when the container is created, and replaces all other settings; such a container is in no group of Trimtab",
			"the create request names no group, because an OCI runtime fails a container whose group does not exist",
		},
	}
	if h.Measure {
		i.KernelFeatures = append(i.KernelFeatures, "resctrl.L3_MON")
	}
	return i
}

// Propose sets the shares of a pod's resctrl group, and puts the pod's containers into this group.
func (h RDT) Propose(in *Input, out *Output) {
	group, shares, why := h.group(in)
	own := in.Intent.RDT
	switch {
	case in.Intent.RDTClass.IsSet():
		if in.Container != "" {
			why := lifecycle.Reason{Hook: "rdt", Source: in.Intent.RDTClass.Key, Text: "requested by the pod"}
			out.setText(in, lifecycle.RDTClass, "", in.Intent.RDTClass.V, why)
		}
		return
	case h.KernelSupport.Support == lifecycle.NotSupported:
		if own.IsSet() && in.Container == "" {
			out.decline(own.Key, string(own.V), "rdt: "+h.KernelSupport.Why)
		}
		return
	case own.IsSet() && group == "":
		if in.Container == "" {
			out.addProblem(lifecycle.Problem{Key: own.Key, Reason: "rdt: the pod's UID is not valid in the name of a resctrl group"})
		}
		return
	}
	switch {
	case in.Container == "" && group != "":
		out.setText(in, lifecycle.RDTSchemata, group, shares, why)
	case in.Container != "" && group != "":
		out.setText(in, lifecycle.RDTGroup, "", group, why)
	}
	if name := groupName(in.Pod.UID + "-" + in.Container); h.Measure && in.Container != "" && name != "" {
		why.Text, why.Source = "a monitoring group for the container", "hooks.rdt.measure"
		out.setText(in, lifecycle.RDTMonitor, "", group+"/"+name, why)
	}
}

// group returns the name and the shares of a pod's resctrl group. The name is "" for the root group.
func (h RDT) group(in *Input) (name, shares string, why lifecycle.Reason) {
	why = lifecycle.Reason{Hook: "rdt", Source: in.Intent.Class.Key, Text: "configured for the pod's class"}
	if own := in.Intent.RDT; own.IsSet() {
		why.Source, why.Text = own.Key, "requested by the pod"
		return groupName(in.Pod.UID), string(own.V), why
	}
	if level := in.Intent.CacheLevel; level.IsSet() {
		why.Source, why.Text = level.Key, "the cache level that the pod requests"
		if shares = string(intent.CacheLevels()[level.V]); shares == "" {
			return "", "", why
		}
		return groupPrefix + "cache-" + level.V, shares, why
	}
	if shares = h.Shares.Of(in.Intent); shares == "" {
		return "", "", why
	}
	class := ByClass[string]{LSR: "LSR", LS: "LS", BE: "BE"}.Of(in.Intent)
	return groupPrefix + class, shares, why
}

// groupName returns the name of the resctrl group for a text such as a pod's UID. It returns "" if the text is too
// long, or has characters that a name may not have.
func groupName(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	if text == "" || len(text) > 120 || strings.Trim(text, plain) != "" {
		return ""
	}
	return groupPrefix + text
}
