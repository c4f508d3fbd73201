package engine

import "github.com/trimtab/trimtab/internal/lifecycle"

// RequestedBySpec are a pod's own resources as its spec tells them, for a runtime
// that does not: the CPU request alone, as shares, summed up as the kubelet does.
// Whether limits are enforced the spec does not know (cpuCFSQuota). It is nil for
// a pod whose containers request nothing, which may be one whose spec is not
// complete.
func RequestedBySpec(spec *lifecycle.PodSpec) *lifecycle.Resources {
	milli := spec.Request(lifecycle.ResourceCPU)
	if milli <= 0 || milli > maxMilli {
		return nil
	}
	r := &lifecycle.Resources{}
	r.CPU.Shares = lifecycle.Some(uint64(max(milli*1024/1000, 2)))
	return r
}

// Limits reports whether the runtime told what limits the pod's own cgroup has,
// none among them.
func (p *Pod) Limits() bool { return p.Pod.Resources != nil && !p.bySpec }

// maxMilli is more than any machine has.
const maxMilli = 1 << 30
