package hook

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// BatchOptions are the options of the hook that sets CPU shares and limits from the batch resources that pods request.
// The kubelet treats these pods as BestEffort: it gives them the minimum of CPU shares, and no limits. The formulae are
// those of Koordinator 1.7, plugin BatchResource, and of the kubelet's functions MilliCPUToShares and MilliCPUToQuota.
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
		Compose:        "does not set the quota of containers that own CPUs; the hook cpuset sets the quota of these containers",
		Differs: []string{
			"computes the quota for the CFS period of the container, not always for 100 ms",
			"reports a batch-cpu below 100 as a probable mistake: the unit is milli-CPUs, so 100 is a tenth of a CPU",
			"if the agent knows the pod's spec, it adds up the pod's values as the kubelet does: with the largest init container, the sidecars and the overhead. Values that the spec has for the whole pod have priority",
		},
	}
}

// Propose sets shares, quota and memory limit of a container or pod that requests batch resources.
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
	// If the spec has a request or limit for the whole pod, the kubelet sets the pod's value from it. The hook does not
	// change such a value.
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

// withText returns a copy of the reason with another text.
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

// addLimit adds a container's limit to the sum of other containers' limits. It returns -1, for no limit, if one of the
// containers has no limit, or if the sum overflows.
func addLimit(sum, limit int64) int64 {
	if sum < 0 || limit <= 0 || sum+limit < 0 {
		return -1
	}
	return sum + limit
}

// The limits of the kernel and the kubelet for CPU shares and CFS quotas, and the default CFS period. Quota and period
// are in µs.
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
	if milli >= maxShares { // without this check, milli*1024 could overflow
		return maxShares
	}
	return min(max(milli*1024/1000, minShares), maxShares)
}

// quotaOfMilli returns the CFS quota in µs for milli-CPUs; -1 is no limit.
func quotaOfMilli(milli int64, period int64) int64 {
	// A limit of more than a million CPUs means no limit. Without this check, milli*period could overflow.
	if milli <= 0 || milli > 1e9 {
		return -1
	}
	return max(milli*period/1000, minQuota)
}

// periodOf returns the CFS period of r in µs. If r has no period, or a period that the kernel refuses, periodOf returns
// the default period.
func periodOf(r *lifecycle.Resources) int64 {
	if r == nil || r.CPU.Period.V == 0 || r.CPU.Period.V > 1e6 {
		return defaultPeriod
	}
	return int64(r.CPU.Period.V)
}
