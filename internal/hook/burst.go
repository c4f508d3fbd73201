package hook

import (
	"fmt"
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Burst lets containers save unused quota and use it later as CPU time above the quota. The annotation is that of rubik
// 2.0, service quotaBurst. The kernel has the file cpu.max.burst since Linux 5.14. If the final quota is lower than the
// burst, the engine reduces the burst to the quota.
type Burst struct {
	// KernelSupport reports whether the kernel has cpu.max.burst.
	KernelSupport lifecycle.Finding
}

// burstFile is the cgroup v2 file for the burst. In cgroup v1 the file has the name cpu.cfs_burst_us.
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
		Compose:        "the burst is at most the quota that results from all other hooks",
		Differs: []string{
			"a burst above the quota is reduced to the quota, while rubik then sets no burst; `trimtab explain` shows the requested burst",
			"the burst of the pod's own cgroup is the sum of the bursts of its live containers. So it never limits the burst of a container, and the pod's quota can change together with the containers' quotas",
			"containers without a quota, and containers that own their CPUs, get no burst",
			"if a pod no longer requests a burst, the agent removes the burst, provided that it knows the pod's current labels and annotations (podspec)",
			"the kernel refuses a quota below the burst. Over NRI and the CRI proxy the agent lowers the burst before the runtime lowers the quota. With bypass the agent lowers the burst when it sees the lower limit in the pod's spec (podspec). If the kubelet's update comes earlier, the update fails, and the kubelet repeats it",
			"the agent writes the burst itself when the container's cgroup exists; only the CRI proxy sends the burst to the runtime. If the kernel lacks the file, an OCI runtime would fail the container",
		},
	}
}

// Propose sets the burst of a container's cgroup, or of the pod's own cgroup.
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
		why.Text = "the sum of the bursts of the pod's containers"
		most = in.BurstSum
	}
	if limit := in.limitMicros(); limit > 0 && limit < most {
		why.Text += fmt.Sprintf(", reduced from %d µs to the CPU limit in the current spec", most)
		most = limit
	}
	if most == 0 && in.Container == "" && ask.V > 0 {
		return // no container of the pod has a burst
	}
	out.setFile(in, burstFile, strconv.FormatInt(most, 10), why)
}

// limitMicros returns the CFS quota in µs that the kubelet computes from the CPU limit in the spec (Kubernetes 1.36,
// cm/helpers_linux.go, MilliCPUToQuota); 0 if the spec has no limit. After a change of the spec, the runtime can have
// another quota until the kubelet sends the new one.
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

// maxMilli is the highest CPU limit in milli-CPUs. limitMicros reduces higher limits to maxMilli, so that the product
// of limit and period does not overflow. No machine has so many CPUs.
const maxMilli = 1 << 40
