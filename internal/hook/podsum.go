package hook

import (
	"math"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// kubeletSum adds up a pod's containers as the kubelet does for its cgroup
// (Kubernetes 1.36, ResourceConfigForPod): see lifecycle.PodSpec.Sum, and the pod's
// overhead. A limit holds only where every container has one.
func kubeletSum(spec *lifecycle.PodSpec, asks map[string]intent.Batch) intent.Batch {
	request, _ := spec.Sum(func(c *lifecycle.ContainerSpec) int64 { return asks[c.Name].RequestCPU })
	limitCPU, cpuLimited := spec.Sum(func(c *lifecycle.ContainerSpec) int64 { return asks[c.Name].LimitCPU })
	limitMemory, memoryLimited := spec.Sum(func(c *lifecycle.ContainerSpec) int64 { return asks[c.Name].LimitMemory })
	cpu, memory := intent.PodOverhead(spec)
	return intent.Batch{
		RequestCPU: lifecycle.AddAmounts(request, cpu),
		LimitCPU:   limitOf(limitCPU, cpu, cpuLimited), LimitMemory: limitOf(limitMemory, memory, memoryLimited),
		From: spec.From,
	}
}

// limitOf is a limit with the overhead added; -1 for none, or more than there is.
func limitOf(sum, overhead int64, limited bool) int64 {
	if !limited || sum <= 0 {
		return -1
	}
	if total := lifecycle.AddAmounts(sum, overhead); total < math.MaxInt64 {
		return total
	}
	return -1
}
