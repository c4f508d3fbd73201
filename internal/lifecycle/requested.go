package lifecycle

import "cmp"

// Resources returns the resources that the kubelet requests from the runtime for the container
// (Kubernetes 1.36: pkg/kubelet/kuberuntime and pkg/kubelet/cm/helpers_linux.go).
func (c ContainerSpec) Resources() Resources {
	var r Resources
	r.CPU.Shares = Some(kubeletShares(cmp.Or(c.Requests[ResourceCPU], c.Limits[ResourceCPU])))
	if limit := c.Limits[ResourceCPU]; limit > 0 {
		r.CPU.Quota, r.CPU.Period = Some(max(min(limit, maxMilli)*kubeletPeriod/1000, 1000)), Some(uint64(kubeletPeriod))
	}
	if limit := c.Limits[ResourceMemory]; limit > 0 {
		r.Memory.Limit = Some(limit)
	}
	return r
}

const (
	kubeletPeriod = 100_000 // the CFS period that the kubelet sets, in microseconds
	// maxMilli limits an amount of milli-CPUs, so that the formulas do not overflow. No node has so many CPUs.
	maxMilli = 1 << 40
)

// kubeletShares converts milli-CPUs to CPU shares, which the kernel limits to 2..262144.
func kubeletShares(milli int64) uint64 {
	return uint64(min(max(min(milli, maxMilli)*1024/1000, 2), 262144)) //nolint:gosec // a positive number
}
