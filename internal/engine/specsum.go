package engine

import "github.com/trimtab/trimtab/internal/lifecycle"

// RequestedBySpec are a pod's own resources as its spec tells them, for a runtime
// that does not: the CPU request alone, as shares, summed up as the kubelet does.
// Whether limits are enforced the spec does not know (cpuCFSQuota). It is nil for
// a pod whose containers request nothing, which may be one whose spec is not
// complete.
func RequestedBySpec(spec *lifecycle.PodSpec) *lifecycle.Resources {
	milli := spec.Requests[lifecycle.ResourceCPU] // of the pod as a whole
	if milli <= 0 {
		milli = containersRequest(spec) + max(spec.Overhead[lifecycle.ResourceCPU], 0)
	}
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

// maxMilli is more than any machine has, and keeps sums from overflowing.
const maxMilli = 1 << 30

// containersRequest is the largest sum of requests of containers that run at once.
func containersRequest(spec *lifecycle.PodSpec) int64 {
	var sidecars, apps, peak int64
	for _, c := range spec.Containers {
		milli := min(max(c.Requests[lifecycle.ResourceCPU], 0), maxMilli)
		switch c.Kind {
		case lifecycle.Sidecar:
			sidecars += milli
			peak = max(peak, sidecars)
		case lifecycle.Init:
			peak = max(peak, sidecars+milli)
		case lifecycle.Ephemeral:
		default:
			apps += milli
		}
	}
	return max(peak, sidecars+apps)
}
