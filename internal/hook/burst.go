package hook

import (
	"fmt"
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Burst lets containers save unused quota and use it later as CPU time above the quota.
// The annotation is that of rubik 2.0, service quotaBurst. The kernel has the file cpu.max.burst since Linux 5.14. The
// engine keeps the burst within the final quota of all hooks.
type Burst struct {
	// KernelSupport reports whether the kernel has cpu.max.burst.
	KernelSupport lifecycle.Finding
}

// burstFile is the kernel's file; cgroup v1 has it as cpu.cfs_burst_us.
const burstFile = "cpu.max.burst"

// BurstOptions tunes the CPU burst hook.
type BurstOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// Make makes the hook for a node.
func (BurstOptions) Make(n Node, _ *Options) (Hook, error) {
	return Burst{KernelSupport: n.Probe(burstFile)}, nil
}

// Info describes the hook.
func (Burst) Info() Info {
	return Info{
		Name:           "burst",
		About:          "CPU time beyond the quota, from unused quota of earlier periods",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.RubikBurst},
		Sets:           []lifecycle.Field{lifecycle.Unified},
		SetsOnPod:      []lifecycle.Field{lifecycle.Unified},
		KernelFeatures: []string{burstFile},
		Compose:        "limited by the quota that all other hooks leave",
		Differs: []string{
			"a burst above the quota is reduced to the quota, while rubik then sets no burst; explain shows the request",
			"the burst of the pod itself is the sum of its live containers' bursts, so that it never limits the burst of a container, and the pod's quota can change together with their quotas",
			"containers without a quota, and containers that own their CPUs, get no burst",
			"a pod that no longer requests a burst loses it, if the agent knows its current labels and annotations (podspec)",
			"the kernel refuses a quota below the burst. Over NRI and the CRI proxy the agent lowers the burst before the runtime lowers the quota. With bypass it lowers the burst when the pod's spec has the lower limit (podspec); an earlier update of the kubelet fails, and the kubelet repeats it",
			"the agent writes the burst when the container's cgroup exists. Only the CRI proxy sends it to the runtime, because an OCI runtime fails the container if the kernel lacks the file",
		},
	}
}

// Propose sets the burst of a container, or of the pod above all of them.
func (h Burst) Propose(in *Input, out *Output) {
	ask := in.Intent.Burst
	switch {
	case !ask.IsSet():
		return
	case h.KernelSupport.Support == lifecycle.NotSupported:
		if in.Container == "" {
			out.decline(ask.Key, strconv.FormatInt(ask.V, 10), "burst: "+h.KernelSupport.Why)
		}
		return
	}
	why := lifecycle.Reason{Hook: "burst", Source: ask.Key, Text: "requested by the pod"}
	most := ask.V
	if in.Container == "" {
		why.Text = "the sum of its containers' bursts"
		most = in.BurstSum
	}
	if limit := in.limitMicros(); limit > 0 && limit < most {
		why.Text += fmt.Sprintf(", reduced from %d to the CPU limit in the current spec", most)
		most = limit
	}
	if most == 0 && in.Container == "" && ask.V > 0 {
		return // no container of the pod has a burst
	}
	out.setFile(in, burstFile, strconv.FormatInt(most, 10), why)
}

// limitMicros returns the quota for the CPU limit in the spec of a container or pod, in µs per period
// (Kubernetes 1.36, cm/helpers_linux.go, MilliCPUToQuota); 0 if the spec has no limit. The kubelet may
// not yet have sent the request that sets this quota.
func (in *Input) limitMicros() int64 {
	if in.Spec == nil {
		return 0
	}
	milli := in.Spec.Limits[lifecycle.ResourceCPU]
	if in.Container != "" {
		c, _ := in.Spec.Container(in.Container)
		milli = c.Limits[lifecycle.ResourceCPU]
	}
	if milli <= 0 {
		return 0
	}
	return max(min(milli, maxMilli)*periodOf(in.Pristine)/1000, minQuota)
}

// maxMilli limits milli-CPUs, so that products do not overflow. No machine has so many CPUs.
const maxMilli = 1 << 40
