package hook

import (
	"math"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// kubeletSum adds up the batch resources of a pod's containers as the kubelet adds up resources for the
// pod's cgroup (Kubernetes 1.36, ResourceConfigForPod): see lifecycle.PodSpec.Sum. It includes the pod's
// overhead. The pod has a limit only if every container has one.
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

// limitOf returns a limit with the overhead added; -1 if there is no limit, or the sum
// overflows.
func limitOf(sum, overhead int64, limited bool) int64 {
	if !limited || sum <= 0 {
		return -1
	}
	if total := lifecycle.AddAmounts(sum, overhead); total < math.MaxInt64 {
		return total
	}
	return -1
}
