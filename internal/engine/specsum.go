package engine

import "github.com/trimtab/trimtab/internal/lifecycle"

// RequestFromSpec returns a pod's own resources from its spec, for a runtime that does not report them. The
// result has only the CPU request, as shares, which it sums up as the kubelet does. It has no limits, because
// a spec does not show whether the kubelet enforces them (cpuCFSQuota). It is nil if the containers request
// nothing, because the spec may be incomplete.
func RequestFromSpec(spec *lifecycle.PodSpec) *lifecycle.Resources {
	milli := spec.Request(lifecycle.ResourceCPU)
	if milli <= 0 || milli > maxCPUMilli {
		return nil
	}
	r := &lifecycle.Resources{}
	r.CPU.Shares = lifecycle.Some(uint64(max(milli*1024/1000, 2)))
	return r
}

// LimitsKnown reports whether the runtime reported the resources of the pod's own cgroup, so that its limits are
// known.
func (p *Pod) LimitsKnown() bool { return p.Pod.Resources != nil && !p.requestFromSpec }

// maxCPUMilli is a number of milli-CPUs that no machine has.
const maxCPUMilli = 1 << 30
