package hook

import (
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Burst lets containers use CPU time beyond their quota that they left of it
// before. Annotation: rubik 2.0, service quotaBurst; kernel: Linux 5.14,
// cpu.max.burst. The engine keeps it within the quota that comes out of all hooks.
type Burst struct {
	// Found says whether the kernel has the file.
	Found lifecycle.Finding
}

// burstFile is the kernel's file, which version 1 calls cpu.cfs_burst_us.
const burstFile = "cpu.max.burst"

// Info describes the hook.
func (Burst) Info() Info {
	return Info{
		Name:    "burst",
		About:   "CPU time beyond the quota, out of what was left of it before",
		Stages:  lives(),
		Reads:   []string{intent.RubikBurst},
		Sets:    []lifecycle.Field{lifecycle.Unified},
		Pod:     []lifecycle.Field{lifecycle.Unified},
		Kernel:  []string{burstFile},
		Compose: "within the quota that all other hooks leave",
		Differs: []string{
			"a burst above the quota is cut to the quota, where rubik leaves the container without any; explain says what was asked for",
			"the pod's own burst is its containers' together, as far as its spec is known, and else its quota, so that it never keeps a container from its own",
			"a container without a quota, or one that owns its CPUs, has no burst",
			"a pod that stops asking for it loses it, where its labels and annotations are told as they are (podspec)",
			"a quota that is lowered below a burst the kernel refuses; over NRI and by the CRI proxy the burst is lowered before the runtime writes, beside the runtime (bypass) a kubelet's request fails until the pod's burst is less",
			"it is written when the container's cgroup exists, and handed only to a runtime behind the CRI proxy: an OCI runtime whose kernel lacks the file fails the container",
		},
	}
}

// Propose sets the burst of a container, or of the pod above all of them.
func (h Burst) Propose(in *Input, out *Output) {
	ask := in.Intent.Burst
	switch {
	case !ask.Said():
		return
	case h.Found.Support == lifecycle.NotSupported:
		if in.Container == "" {
			out.Problems = append(out.Problems, lifecycle.Problem{
				Key: ask.Key, Value: strconv.FormatInt(ask.V, 10), Reason: "burst: " + h.Found.Why, Refused: true,
			})
		}
		return
	}
	why := lifecycle.Reason{Hook: "burst", Source: ask.Key, Text: "the pod's"}
	most := ask.V
	if in.Container == "" {
		why.Text = "its containers' together"
		most = podBurst(in, ask.V)
	}
	out.Values = append(out.Values, lifecycle.Value{
		Field: lifecycle.Unified, Scope: in.Scope(), Key: burstFile, Text: strconv.FormatInt(most, 10), Why: why,
	})
}

// podBurst is what a pod's containers burst to together at most: containers with
// a CPU limit where the spec tells them, and else whatever its quota allows.
func podBurst(in *Input, burst int64) int64 {
	if burst == 0 {
		return 0
	}
	if in.Spec == nil {
		return anyBurst
	}
	sum := int64(0)
	for _, c := range in.Spec.Containers {
		if c.Kind != lifecycle.Init && c.Limits[lifecycle.ResourceCPU] > 0 {
			sum = min(sum+burst, anyBurst)
		}
	}
	return max(sum, burst) // an init container may be the one with a limit
}

// anyBurst is more than any quota.
const anyBurst = 1<<44 - 1
