package hook

import (
	"math"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// kubeletSum adds up the batch resources of a pod's containers as the kubelet does for the pod's cgroup (Kubernetes
// 1.36, ResourceConfigForPod): with the largest init container, the sidecars and the pod's overhead. The pod has a
// limit only if every container has a limit.
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

// limitOf returns the sum of containers' limits and the pod's overhead. It returns -1, for no limit, if limited is
// false or the result overflows.
func limitOf(sum, overhead int64, limited bool) int64 {
	if !limited || sum <= 0 {
		return -1
	}
	if total := lifecycle.AddAmounts(sum, overhead); total < math.MaxInt64 {
		return total
	}
	return -1
}
