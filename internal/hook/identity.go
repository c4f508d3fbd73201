package hook

import (
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// The cgroup files of group identities and of the fallback "idle".
const (
	bvtFile     = "cpu.bvt_warp_ns"
	cpuIdleFile = "cpu.idle"
)

// GroupIdentity gives pods the group identity of their class. By the group identities of pods, a kernel that has them
// decides which pods run first, and which pods preempt others immediately. The values are those of Koordinator 1.7,
// plugin GroupIdentity.
type GroupIdentity struct {
	// LSR, LS and BE are the identities of the QoS classes, -1 to 2; 0 means no identity.
	LSR, LS, BE int
	// Fallback replaces identities below zero if the kernel has no group identities. Identities
	// above zero have no fallback.
	Fallback Yield
	// KernelSupport reports whether the kernel has group identities. If the agent does not know, the hook sets
	// identities, and the agent reports it if the kernel refuses them.
	KernelSupport lifecycle.Support
}

// GroupIdentityOptions tunes the group identity hook.
type GroupIdentityOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// LSR is the identity of LSE and LSR pods, and of Guaranteed pods without a
	// class; 0 means no identity.
	LSR int `json:"lsr" default:"2" check:"-1..2"`
	// LS is the identity of LS pods, and of Burstable pods without a class; 0
	// means no identity.
	LS int `json:"ls" default:"2" check:"-1..2"`
	// BE is the identity of BE pods, and of BestEffort pods without a class; 0
	// means no identity.
	BE int `json:"be" default:"-1" check:"-1..2"`
	// Fallback replaces identities below 0 if the kernel has no group identities:
	// "idle" sets cpu.idle of the pod's cgroup, "weight" gives it the lowest weight.
	Fallback string `json:"fallback" default:"none" check:"none|idle|weight"`
}

// WithAllFeatures returns the hook with every feature enabled.
func (GroupIdentityOptions) WithAllFeatures() Hook { return GroupIdentity{Fallback: YieldIdle} }

// Make makes the hook for a node.
func (o GroupIdentityOptions) Make(n Node, _ *Options) (Hook, error) {
	return GroupIdentity{LSR: o.LSR, LS: o.LS, BE: o.BE, KernelSupport: n.Probe(bvtFile).Support, Fallback: ParseYield(o.Fallback)}, nil
}

// Info describes the hook.
func (h GroupIdentity) Info() Info {
	kernel := map[Yield]string{
		YieldNone: bvtFile, YieldIdle: bvtFile + "|" + cpuIdleFile, YieldWeight: bvtFile + "|cpu",
	}[h.Fallback]
	option := ""
	if h.Fallback == YieldNone {
		option = "hooks.groupIdentity.fallback: idle uses cpu.idle instead"
	}
	return Info{
		Name:  "groupIdentity",
		About: "group identities: which pods the CPU scheduler prefers, by class",
		Stages: []lifecycle.Kind{
			lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox,
		},
		Reads:          []string{intent.KoordQoSClass, intent.KoordCPUQoS},
		SetsOnPod:      []lifecycle.Field{lifecycle.Unified, lifecycle.CPUShares},
		KernelFeatures: []string{kernel},
		FallbackOption: option,
		Compose:        "sets the weight only if the hook batch does not set the pod's shares",
		TestedOn:       "a file model only, for group identities; a kernel model that is compared with a kernel, for cpu.idle and weights",
		Differs: []string{
			"if the kernel has no group identities, hooks.groupIdentity.fallback can use cpu.idle or the lowest weight for identities below zero. They are set on pods and never on a QoS class, whose directory belongs to the kubelet",
			"identity 0 disables a class. So with lsr: 0, Guaranteed pods without a class get the identity of class LS",
			"the directories of QoS classes and of host applications are not written",
			"the agent does not enable sched_group_identity_enabled; the administrator does that",
			"koordinator.sh/cpuQOS on pods of classes other than LS is ignored and reported; Koordinator ignores it without a report",
		},
	}
}

// Propose sets the identity of a pod, or its fallback.
func (h GroupIdentity) Propose(in *Input, out *Output) {
	if in.Container != "" {
		return
	}
	id, why, ok := h.identity(in.Intent)
	if !ok {
		return
	}
	switch {
	case h.KernelSupport != lifecycle.NotSupported:
		out.setFile(in, bvtFile, strconv.Itoa(id), why)
	case id < 0 && h.Fallback == YieldIdle:
		why.Text += "; cpu.idle replaces it, because the kernel has no group identities"
		out.setFile(in, cpuIdleFile, "1", why)
	case id < 0 && h.Fallback == YieldWeight && !in.Intent.Batch.IsSet():
		why.Text += "; the lowest weight replaces it, because the kernel has no group identities"
		out.setNumber(in, lifecycle.CPUShares, minShares, why)
	case in.Intent.CPUQoS.IsSet() && in.Intent.ClassName == "LS" && h.Fallback == YieldNone:
		out.addProblem(lifecycle.Problem{
			Key: in.Intent.CPUQoS.Key, Value: strconv.Itoa(id), Reason: "the kernel has no " + bvtFile, Warning: true,
		})
	}
}

// identity returns the group identity of a pod, and the reason for it. It returns false if the pod requests an
// identity, and the request is malformed.
func (h GroupIdentity) identity(p *intent.Pod) (int, lifecycle.Reason, bool) {
	why := lifecycle.Reason{Hook: "groupIdentity", Source: p.Class.Key, Text: "the identity of the pod's class"}
	switch p.Class.V {
	case intent.Dedicated:
		return h.LSR, why, true
	case intent.Reclaimed:
		return h.BE, why, true
	case intent.Shared:
		own := p.CPUQoS
		if !own.IsSet() {
			return h.LS, why, true
		}
		why.Source, why.Text = own.Key, "the identity that the pod requests"
		switch {
		case own.V.Malformed:
			return 0, why, false
		case !own.V.Enabled:
			return 0, why, true
		}
		return own.V.Identity.Or(h.LS), why, true
	}
	why.Source, why.Text = "", "the identity of "+p.QoS.String()+" pods without a class"
	switch {
	case p.QoS == intent.BestEffort:
		return h.BE, why, true
	case p.QoS == intent.Guaranteed && h.LSR != 0:
		return h.LSR, why, true
	}
	return h.LS, why, true
}
