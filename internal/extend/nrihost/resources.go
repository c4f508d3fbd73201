package nrihost

import (
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// toNRIResources converts resources of the CRI to resources of NRI. In the CRI, 0 means unset.
func toNRIResources(r *cri.LinuxContainerResources) *api.LinuxResources {
	if r == nil {
		return nil
	}
	out := &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: r.CpusetCpus, Mems: r.CpusetMems}, Memory: &api.LinuxMemory{}, Unified: r.Unified}
	if r.CpuShares > 0 {
		out.Cpu.Shares = api.UInt64(r.CpuShares)
	}
	if r.CpuQuota != 0 {
		out.Cpu.Quota = api.Int64(r.CpuQuota)
	}
	if r.CpuPeriod > 0 {
		out.Cpu.Period = api.UInt64(r.CpuPeriod)
	}
	if r.MemoryLimitInBytes != 0 {
		out.Memory.Limit = api.Int64(r.MemoryLimitInBytes)
	}
	if r.MemorySwapLimitInBytes != 0 {
		out.Memory.Swap = api.Int64(r.MemorySwapLimitInBytes)
	}
	for _, h := range r.HugepageLimits {
		out.HugepageLimits = append(out.HugepageLimits, &api.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	return out
}

// splitForCRI splits the resources of a plugin's answer. carried has the resources that UpdateContainerResources of the
// CRI can set, and rest has the others. A value of 0 is in rest, because 0 means unset in the CRI. CPUs and memory
// nodes in unified become fields of the CRI, because the agent reads only these fields. unsupported has the names of
// other cpuset files in unified, which are in neither part.
func splitForCRI(from *api.LinuxResources) (carried *cri.LinuxContainerResources, rest *api.LinuxResources, unsupported []string) {
	if from == nil {
		return nil, nil, nil
	}
	rest = proto.Clone(from).(*api.LinuxResources)
	carried = &cri.LinuxContainerResources{}
	if c := rest.GetCpu(); c != nil {
		carried.CpusetCpus, carried.CpusetMems, c.Cpus, c.Mems = c.Cpus, c.Mems, "", ""
		if v := c.Shares.GetValue(); v > 0 {
			carried.CpuShares, c.Shares = int64(v), nil //nolint:gosec // the kernel's greatest is 262144
		}
		if v := c.Quota.GetValue(); v != 0 {
			carried.CpuQuota, c.Quota = v, nil
		}
		if v := c.Period.GetValue(); v > 0 {
			carried.CpuPeriod, c.Period = int64(v), nil //nolint:gosec // microseconds, at most a second
		}
	}
	if m := rest.GetMemory(); m != nil {
		if v := m.Limit.GetValue(); v > 0 {
			carried.MemoryLimitInBytes, m.Limit = v, nil
		}
	}
	for key, v := range from.GetUnified() {
		if !strings.HasPrefix(key, "cpuset.") {
			continue
		}
		delete(rest.Unified, key)
		switch key {
		case "cpuset.cpus":
			carried.CpusetCpus = v
		case "cpuset.mems":
			carried.CpusetMems = v
		default:
			unsupported = append(unsupported, "linux.resources.unified["+key+"]")
		}
	}
	if proto.Equal(carried, &cri.LinuxContainerResources{}) {
		carried = nil
	}
	if hasNoValue(rest) {
		rest = nil
	}
	return carried, rest, unsupported
}

// hasNoValue reports whether resources have no value. The library also sends empty sections.
func hasNoValue(r *api.LinuxResources) bool {
	n := proto.Clone(r).(*api.LinuxResources)
	if proto.Equal(n.Cpu, &api.LinuxCPU{}) {
		n.Cpu = nil
	}
	if proto.Equal(n.Memory, &api.LinuxMemory{}) {
		n.Memory = nil
	}
	return proto.Equal(n, &api.LinuxResources{})
}

// mergeResources returns the resources in under, with the values in over replacing those in under. It returns nil if
// over and under are nil.
func mergeResources(over, under *cri.LinuxContainerResources) *cri.LinuxContainerResources {
	if under == nil || over == nil {
		if over == nil {
			return under
		}
		return over
	}
	n := proto.Clone(under).(*cri.LinuxContainerResources)
	proto.Merge(n, over)
	return n
}

// addResources replaces the resources in a container's message that r sets, except limits of huge pages.
func addResources(c *api.Container, r *cri.LinuxContainerResources) {
	if r == nil {
		return
	}
	if c.Linux == nil {
		c.Linux = &api.LinuxContainer{}
	}
	if c.Linux.Resources == nil {
		c.Linux.Resources = &api.LinuxResources{}
	}
	now := toNRIResources(r)
	now.HugepageLimits = nil // merging would repeat the limits
	proto.Merge(c.Linux.Resources, now)
}
