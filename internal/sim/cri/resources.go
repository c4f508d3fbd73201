package cri

import (
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// nonZero converts a number of the CRI to a pointer. It returns nil for 0, because 0 means unset in the CRI.
func nonZero[T int64 | uint64](v int64) *T {
	if v == 0 {
		return nil
	}
	return new(T(v))
}

// scenarioResources converts a kubelet's request to the resources of a scenario.
func scenarioResources(r *cri.LinuxContainerResources) scenario.Resources {
	out := scenario.Resources{
		Shares: nonZero[uint64](r.GetCpuShares()), Quota: nonZero[int64](r.GetCpuQuota()), Period: nonZero[uint64](r.GetCpuPeriod()),
		Memory: nonZero[int64](r.GetMemoryLimitInBytes()), CPUs: r.GetCpusetCpus(), Mems: r.GetCpusetMems(),
	}
	for _, h := range r.GetHugepageLimits() {
		if out.HugePages == nil {
			out.HugePages = map[string]uint64{}
		}
		out.HugePages[h.GetPageSize()] = h.GetLimit()
	}
	return out
}

// AsCRI converts a scenario's resources to a kubelet's request.
func AsCRI(r scenario.Resources) *cri.LinuxContainerResources {
	out := &cri.LinuxContainerResources{CpusetCpus: r.CPUs, CpusetMems: r.Mems}
	if r.Shares != nil {
		out.CpuShares = int64(*r.Shares)
	}
	if r.Quota != nil {
		out.CpuQuota = *r.Quota
	}
	if r.Period != nil {
		out.CpuPeriod = int64(*r.Period)
	}
	if r.Memory != nil {
		out.MemoryLimitInBytes = *r.Memory
	}
	for size, limit := range r.HugePages {
		out.HugepageLimits = append(out.HugepageLimits, &cri.HugepageLimit{PageSize: size, Limit: limit})
	}
	return out
}

// nriResources converts the resources of a request to NRI's form. It does not set fields that are 0 or empty.
func nriResources(r *cri.LinuxContainerResources) *api.LinuxResources {
	out := &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}, Memory: &api.LinuxMemory{}}
	out.Cpu.Shares = api.UInt64(nonZero[uint64](r.GetCpuShares()))
	out.Cpu.Quota = api.Int64(nonZero[int64](r.GetCpuQuota()))
	out.Cpu.Period = api.UInt64(nonZero[uint64](r.GetCpuPeriod()))
	out.Memory.Limit = api.Int64(nonZero[int64](r.GetMemoryLimitInBytes()))
	for _, h := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits, &api.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	out.Unified = r.GetUnified()
	return out
}

// statusResources returns the resources in a container's status. containerd reports them since 2.0.
func statusResources(s *specs.Spec) *cri.LinuxContainerResources {
	out, r := &cri.LinuxContainerResources{}, s.Linux.Resources
	if c := r.CPU; c != nil {
		out.CpusetCpus, out.CpusetMems = c.Cpus, c.Mems
		out.CpuShares, out.CpuQuota, out.CpuPeriod = int64(valueOrZero(c.Shares)), valueOrZero(c.Quota), int64(valueOrZero(c.Period))
	}
	if r.Memory != nil {
		out.MemoryLimitInBytes = valueOrZero(r.Memory.Limit)
	}
	for _, h := range r.HugepageLimits {
		out.HugepageLimits = append(out.HugepageLimits, &cri.HugepageLimit{PageSize: h.Pagesize, Limit: h.Limit})
	}
	out.Unified = r.Unified
	if s.Process.OOMScoreAdj != nil {
		out.OomScoreAdj = int64(*s.Process.OOMScoreAdj)
	}
	return out
}

// valueOrZero returns the value of a pointer; zero for nil.
func valueOrZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
