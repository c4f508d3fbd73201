package engine

import "github.com/trimtab/trimtab/internal/lifecycle"

// RequestFromSpec returns the resources of a whole pod from its spec, for a runtime that does not report them. The
// result has only the CPU request, as CPU shares, summed up like in the kubelet. It has no limits, because a spec does
// not show whether the kubelet enforces limits (cpuCFSQuota). The result is nil if the containers request no CPU,
// because the spec may then be incomplete.
func RequestFromSpec(spec *lifecycle.PodSpec) *lifecycle.Resources {
	milli := spec.Request(lifecycle.ResourceCPU)
	if milli <= 0 || milli > maxCPUMilli {
		return nil
	}
	r := &lifecycle.Resources{}
	r.CPU.Shares = lifecycle.Some(uint64(max(milli*1024/1000, 2)))
	return r
}

// LimitsKnown reports whether the runtime reported the resources of the pod's own cgroup. Only then are the limits of
// the pod known.
func (p *Pod) LimitsKnown() bool { return p.Pod.Resources != nil && !p.requestFromSpec }

// maxCPUMilli is the largest number of milli-CPUs that is accepted as a request. No machine has so many CPUs.
const maxCPUMilli = 1 << 30
