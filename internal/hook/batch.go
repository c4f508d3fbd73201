package hook

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Batch sets the shares and limits of the batch resources that pods request. For the kubelet
// these pods are BestEffort and have none. Formulae: Koordinator 1.7, plugin BatchResource;
// shares and quota as the kubelet's MilliCPUToShares and MilliCPUToQuota.
type Batch struct{}

// BatchOptions tunes the batch resource hook.
type BatchOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
}

// AllOn is the hook with everything switched on.
func (BatchOptions) AllOn() Hook { return Batch{} }

// Make makes the hook for a node.
func (BatchOptions) Make(_ Node, _ *Options) (Hook, error) {
	return Batch{}, nil
}

// Info describes the hook.
func (Batch) Info() Info {
	limits := []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit}
	return Info{
		Name:    "batch",
		About:   "shares, quota and memory limit by batch-cpu and batch-memory",
		Stages:  lifetimeEvents(),
		Reads:   []string{intent.KoordQoSClass, intent.KoordExtended},
		Sets:    limits,
		Pod:     limits,
		Kernel:  []string{"cpu", "memory"},
		Compose: "does not set the quota of containers that own CPUs; cpuset sets it",
		Differs: []string{
			"computes the quota for the CFS period of the container, not always for 100 ms",
			"reports a batch-cpu below 100, because the unit is milli-CPUs",
			"if the pod's spec is known, a pod's values are the kubelet's sums: the largest init container, sidecars and overhead are counted; values that the spec has for the whole pod have priority",
		},
	}
}

// Propose sets shares, quota and memory limit of a batch container or pod.
func (Batch) Propose(in *Input, out *Output) {
	if in.Intent.Class.V != intent.Reclaimed || !in.Intent.Batch.IsSet() {
		return
	}
	ask, ok := in.Intent.Batch.V[in.Container]
	whole, sums := lifecycle.PodSpec{}, ""
	if in.Container == "" {
		ask, ok = sum(in.Intent.Batch.V), true
		if in.Spec != nil {
			ask, whole, sums = kubeletSum(in.Spec, in.Intent.Batch.V), *in.Spec, ", summed up as the kubelet does by its "+string(in.Spec.From)
		}
	}
	if !ok {
		return
	}
	why := lifecycle.Reason{Hook: "batch", Source: cmp.Or(string(ask.From), in.Intent.Batch.Key)}
	// The kubelet has already applied the pod-level resources of the spec.
	if whole.Requests[lifecycle.ResourceCPU] <= 0 {
		out.number(in, lifecycle.CPUShares, shares(ask.RequestCPU), with(why, "batch-cpu request"+sums))
	}
	if in.Pool != placement.Own && whole.Limits[lifecycle.ResourceCPU] <= 0 {
		out.number(in, lifecycle.CPUQuota, quota(ask.LimitCPU, period(in.Pristine)), with(why, "batch-cpu limit"+sums))
	}
	memory := ask.LimitMemory
	if memory <= 0 {
		memory = -1
	}
	if whole.Limits[lifecycle.ResourceMemory] <= 0 {
		out.number(in, lifecycle.MemoryLimit, memory, with(why, "batch-memory limit"+sums))
	}
}

func with(r lifecycle.Reason, text string) lifecycle.Reason {
	r.Text = text
	return r
}

// sum adds up a pod's containers. If a container has no limit, the pod is unlimited; missing
// requests count as 0.
func sum(all map[string]intent.Batch) intent.Batch {
	var s intent.Batch
	unlimitedCPU, unlimitedMemory := false, false
	for _, b := range all {
		s.RequestCPU += max(b.RequestCPU, 0)
		s.LimitCPU += max(b.LimitCPU, 0)
		s.LimitMemory += max(b.LimitMemory, 0)
		unlimitedCPU = unlimitedCPU || b.LimitCPU <= 0
		unlimitedMemory = unlimitedMemory || b.LimitMemory <= 0
	}
	if unlimitedCPU || s.LimitCPU < 0 {
		s.LimitCPU = -1
	}
	if unlimitedMemory || s.LimitMemory < 0 {
		s.LimitMemory = -1
	}
	return s
}

// The limits of the kernel and the kubelet: shares 2..262144, quota at least 1 ms, period 100
// ms by default.
const (
	minShares, maxShares = 2, 262144
	minQuota             = 1000
	defaultPeriod        = 100000
)

func shares(milli int64) int64 {
	if milli <= 0 {
		return minShares
	}
	if milli >= maxShares { // also keeps milli*1024 from overflowing
		return maxShares
	}
	return min(max(milli*1024/1000, minShares), maxShares)
}

func quota(milli int64, period int64) int64 {
	// above a million CPUs there is no limit, and milli*period would overflow
	if milli <= 0 || milli > 1e9 {
		return -1
	}
	return max(milli*period/1000, minQuota)
}

func period(r *lifecycle.Resources) int64 {
	if r == nil || r.CPU.Period.V == 0 || r.CPU.Period.V > 1e6 {
		return defaultPeriod
	}
	return int64(r.CPU.Period.V)
}
