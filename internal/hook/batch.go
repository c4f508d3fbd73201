package hook

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// BatchOptions are the options of the hook that sets CPU shares and limits from the batch resources that pods request.
// The kubelet treats these pods as BestEffort: it sets the minimum of CPU shares, and no limits. The formulae are those
// of Koordinator 1.7, plugin BatchResource, and of the kubelet's functions MilliCPUToShares and MilliCPUToQuota.
type BatchOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
}

// Info describes the hook.
func (BatchOptions) Info() Info {
	limits := []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit}
	return Info{
		Name:           "batch",
		About:          "shares, quota and memory limit by batch-cpu and batch-memory",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.KoordQoSClass, intent.KoordExtended},
		Sets:           limits,
		SetsOnPod:      limits,
		KernelFeatures: []string{"cpu", "memory"},
		Compose:        "does not set the quota of containers that own CPUs; cpuset sets it",
		Differs: []string{
			"computes the quota for the CFS period of the container, not always for 100 ms",
			"reports a batch-cpu below 100, because the unit is milli-CPUs",
			"if the pod's spec is known, a pod's values are the kubelet's sums: the largest init container, sidecars and overhead are counted; values that the spec has for the whole pod have priority",
		},
	}
}

// Propose sets shares, quota and memory limit of a batch container or pod.
func (BatchOptions) Propose(in *Input, out *Output) {
	if in.Intent.Class.V != intent.Reclaimed || !in.Intent.Batch.IsSet() {
		return
	}
	ask, ok := in.Intent.Batch.V[in.Container]
	whole, sums := lifecycle.PodSpec{}, ""
	if in.Container == "" {
		ask, ok = sumBatch(in.Intent.Batch.V), true
		if in.Spec != nil {
			ask, whole, sums = kubeletSum(in.Spec, in.Intent.Batch.V), *in.Spec, ", the kubelet's sum over the containers in the spec from "+string(in.Spec.From)
		}
	}
	if !ok {
		return
	}
	why := lifecycle.Reason{Hook: "batch", Source: cmp.Or(string(ask.From), in.Intent.Batch.Key)}
	// The kubelet has already applied the pod-level resources of the spec.
	if whole.Requests[lifecycle.ResourceCPU] <= 0 {
		out.setNumber(in, lifecycle.CPUShares, sharesOfMilli(ask.RequestCPU), withText(why, "batch-cpu request"+sums))
	}
	if in.Pool != placement.Exclusive && whole.Limits[lifecycle.ResourceCPU] <= 0 {
		out.setNumber(in, lifecycle.CPUQuota, quotaOfMilli(ask.LimitCPU, periodOf(in.Pristine)), withText(why, "batch-cpu limit"+sums))
	}
	memory := ask.LimitMemory
	if memory <= 0 {
		memory = -1
	}
	if whole.Limits[lifecycle.ResourceMemory] <= 0 {
		out.setNumber(in, lifecycle.MemoryLimit, memory, withText(why, "batch-memory limit"+sums))
	}
}

// withText returns a reason with another text.
func withText(r lifecycle.Reason, text string) lifecycle.Reason {
	r.Text = text
	return r
}

// sumBatch adds up the batch resources of a pod's containers. If a container has no limit, the pod has no
// limit. A missing request counts as 0.
func sumBatch(all map[string]intent.Batch) (s intent.Batch) {
	for _, b := range all {
		s.RequestCPU += max(b.RequestCPU, 0)
		s.LimitCPU, s.LimitMemory = addLimit(s.LimitCPU, b.LimitCPU), addLimit(s.LimitMemory, b.LimitMemory)
	}
	return s
}

// addLimit adds a limit to the sum of other limits; -1 is no limit.
func addLimit(others, limit int64) int64 {
	if others < 0 || limit <= 0 || others+limit < 0 {
		return -1
	}
	return others + limit
}

// The limits of the kernel and the kubelet: shares 2..262144, quota at least 1 ms, period 100
// ms by default.
const (
	minShares, maxShares = 2, 262144
	minQuota             = 1000
	defaultPeriod        = 100000
)

// sharesOfMilli returns the CPU shares for milli-CPUs.
func sharesOfMilli(milli int64) int64 {
	if milli <= 0 {
		return minShares
	}
	if milli >= maxShares { // also keeps milli*1024 from overflowing
		return maxShares
	}
	return min(max(milli*1024/1000, minShares), maxShares)
}

// quotaOfMilli returns the CFS quota in µs for milli-CPUs; -1 is no limit.
func quotaOfMilli(milli int64, period int64) int64 {
	// More than a million CPUs are no limit, and milli*period would overflow.
	if milli <= 0 || milli > 1e9 {
		return -1
	}
	return max(milli*period/1000, minQuota)
}

// periodOf returns the CFS period of resources in µs. It returns the default if they have none, or one that the kernel
// refuses.
func periodOf(r *lifecycle.Resources) int64 {
	if r == nil || r.CPU.Period.V == 0 || r.CPU.Period.V > 1e6 {
		return defaultPeriod
	}
	return int64(r.CPU.Period.V)
}
