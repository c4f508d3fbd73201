package hook

import (
	"math"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// kubeletSum adds up a pod's containers as the kubelet does for its cgroup
// (Kubernetes 1.36, ResourceConfigForPod and component-helpers' PodRequests and
// PodLimits): app containers and sidecars together, or more where an init
// container beside the sidecars started before it takes more; and the pod's
// overhead. A limit holds only where every container has one. An init container
// is measured together with those sidecars there, too.
func kubeletSum(spec *lifecycle.PodSpec, asks map[string]intent.Batch) intent.Batch {
	var apps, sidecars, most intent.Batch
	cpuLimited, memoryLimited := true, true
	limited := func(b intent.Batch) {
		cpuLimited = cpuLimited && b.LimitCPU > 0
		memoryLimited = memoryLimited && b.LimitMemory > 0
	}
	for _, c := range spec.Containers {
		ask := asks[c.Name]
		switch c.Kind {
		case lifecycle.App:
			limited(ask)
			apps = plus(apps, ask)
		case lifecycle.Sidecar:
			sidecars = plus(sidecars, ask)
			limited(sidecars)
			most = larger(most, sidecars)
		case lifecycle.Init:
			with := plus(sidecars, ask)
			limited(with)
			most = larger(most, with)
		case lifecycle.Ephemeral: // has no resources
		}
	}
	total := larger(plus(apps, sidecars), most)
	cpu, memory := intent.PodOverhead(spec)
	total.RequestCPU = add(total.RequestCPU, cpu)
	total.LimitCPU = limitOf(total.LimitCPU, cpu, cpuLimited)
	total.LimitMemory = limitOf(total.LimitMemory, memory, memoryLimited)
	total.From = spec.From
	return total
}

// limitOf is a limit with the overhead added; -1 for none, or more than there is.
func limitOf(sum, overhead int64, limited bool) int64 {
	if !limited || sum <= 0 {
		return -1
	}
	if total := add(sum, overhead); total < math.MaxInt64 {
		return total
	}
	return -1
}

func plus(a, b intent.Batch) intent.Batch {
	return intent.Batch{
		RequestCPU: add(a.RequestCPU, b.RequestCPU), LimitCPU: add(a.LimitCPU, b.LimitCPU),
		LimitMemory: add(a.LimitMemory, b.LimitMemory),
	}
}

func larger(a, b intent.Batch) intent.Batch {
	return intent.Batch{
		RequestCPU: max(a.RequestCPU, b.RequestCPU), LimitCPU: max(a.LimitCPU, b.LimitCPU),
		LimitMemory: max(a.LimitMemory, b.LimitMemory),
	}
}

// add adds amounts; below 0 counts nothing, and what does not fit is the most
// there is.
func add(a, b int64) int64 {
	a, b = max(a, 0), max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
