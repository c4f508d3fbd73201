package engine

import "github.com/trimtab/trimtab/internal/lifecycle"

// RequestedBySpec are a pod's own resources by its spec, for a runtime that does
// not report them: the CPU request alone, as shares, summed up as the kubelet does.
// A spec does not say whether limits are enforced (cpuCFSQuota). It is nil for a
// pod whose containers request nothing, whose spec may be incomplete.
func RequestedBySpec(spec *lifecycle.PodSpec) *lifecycle.Resources {
	milli := spec.Request(lifecycle.ResourceCPU)
	if milli <= 0 || milli > maxMilli {
		return nil
	}
	r := &lifecycle.Resources{}
	r.CPU.Shares = lifecycle.Some(uint64(max(milli*1024/1000, 2)))
	return r
}

// Limits reports whether the runtime said which limits the pod's own cgroup has,
// even if none.
func (p *Pod) Limits() bool { return p.Pod.Resources != nil && !p.bySpec }

// maxMilli is more than any machine has.
const maxMilli = 1 << 30
