package hook

import (
	"fmt"
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Burst lets containers save unused quota and use it later as CPU time above the quota.
// Annotation: rubik 2.0, service quotaBurst; kernel: Linux 5.14, cpu.max.burst. The engine
// keeps the burst within the final quota of all hooks.
type Burst struct {
	// KernelSupport is whether the kernel has the file.
	KernelSupport lifecycle.Finding
}

// burstFile is the kernel's file; cgroup v1 has it as cpu.cfs_burst_us.
const burstFile = "cpu.max.burst"

// BurstOptions tunes the CPU burst hook.
type BurstOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// AllOn is the hook with everything switched on.
func (BurstOptions) AllOn() Hook { return Burst{} }

// Make makes the hook for a node.
func (BurstOptions) Make(n Node, _ *Options) (Hook, error) {
	return Burst{KernelSupport: n.Probe(burstFile)}, nil
}

// Info describes the hook.
func (Burst) Info() Info {
	return Info{
		Name:    "burst",
		About:   "CPU time beyond the quota, out of what was left of it before",
		Stages:  lifetimeEvents(),
		Reads:   []string{intent.RubikBurst},
		Sets:    []lifecycle.Field{lifecycle.Unified},
		Pod:     []lifecycle.Field{lifecycle.Unified},
		Kernel:  []string{burstFile},
		Compose: "within the quota that all other hooks leave",
		Differs: []string{
			"a burst above the quota is cut to the quota, where rubik leaves the container without any; explain says what was asked for",
			"the pod's own burst is that of its live containers together, so that it never keeps a container from its own and a pod's quota may follow theirs",
			"a container without a quota, or one that owns its CPUs, has no burst",
			"a pod that stops asking for it loses it, where the agent knows its current labels and annotations (podspec)",
			"a quota that is lowered below a burst the kernel refuses; over NRI and by the CRI proxy the burst is lowered before the runtime writes, beside the runtime (bypass) when the pod's spec says the lower limit (podspec): a request of the kubelet's that comes earlier fails, and is repeated by it",
			"it is written when the container's cgroup exists, and handed only to a runtime behind the CRI proxy: an OCI runtime whose kernel lacks the file fails the container",
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
			out.report(lifecycle.Problem{
				Key: ask.Key, Value: strconv.FormatInt(ask.V, 10), Reason: "burst: " + h.KernelSupport.Why, Refused: true,
			})
		}
		return
	}
	why := lifecycle.Reason{Hook: "burst", Source: ask.Key, Text: "the pod's"}
	most := ask.V
	if in.Container == "" {
		why.Text = "its containers' together"
		most = in.Bursts
	}
	if limit := in.limitMicros(); limit > 0 && limit < most {
		why.Text += fmt.Sprintf(", no more than the limit its spec says now; %d was asked for", most)
		most = limit
	}
	if most == 0 && in.Container == "" && ask.V > 0 {
		return // no container of the pod has a burst
	}
	out.file(in, burstFile, strconv.FormatInt(most, 10), why)
}

// limitMicros is the quota of the CPU limit in the spec of a container or pod, in µs per period
// (Kubernetes 1.36, cm/helpers_linux.go, MilliCPUToQuota); 0 if the spec has none. The
// kubelet's request that sets this quota may still be on its way.
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
	period := int64(defaultPeriod)
	if in.Pristine != nil && in.Pristine.CPU.Period.V > 0 {
		period = int64(min(in.Pristine.CPU.Period.V, longestPeriod))
	}
	return max(min(milli, mostMilli)*period/1000, minQuota)
}

// mostMilli is more than the CPUs of any machine; larger numbers would overflow products.
const mostMilli = 1 << 40
