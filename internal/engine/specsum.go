package engine

import "github.com/trimtab/trimtab/internal/lifecycle"

// RequestedBySpec returns a pod's own resources from its spec, for a runtime that does not
// report them. It has only the CPU request, as shares, summed up as the kubelet does. A spec
// does not show whether the kubelet enforces limits (cpuCFSQuota). The result is nil if the
// containers request nothing, since the spec may be incomplete.
func RequestedBySpec(spec *lifecycle.PodSpec) *lifecycle.Resources {
	milli := spec.Request(lifecycle.ResourceCPU)
	if milli <= 0 || milli > maxMilli {
		return nil
	}
	r := &lifecycle.Resources{}
	r.CPU.Shares = lifecycle.Some(uint64(max(milli*1024/1000, 2)))
	return r
}

// Limits reports whether the runtime reported the limits of the pod's own cgroup, even if there
// are none.
func (p *Pod) Limits() bool { return p.Pod.Resources != nil && !p.bySpec }

// maxMilli is more than any machine has.
const maxMilli = 1 << 30
