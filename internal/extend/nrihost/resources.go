package nrihost

import (
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// toNRIResources converts CRI resources to NRI resources. In the CRI, a CPU or memory value of 0 means unset, so the
// result leaves the value out.
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

// splitForCRI splits the resources of a plugin's answer. The result forCRI has the resources that the CRI method
// UpdateContainerResources can set. The result rest has all other resources, and all values of 0, because 0 means unset
// in the CRI. The section unified of the answer can also have cpuset files. Its entries cpuset.cpus and cpuset.mems
// become fields of forCRI, because the agent reads only these fields. All its other cpuset files are dropped, and the
// result unsupported has their names.
func splitForCRI(from *api.LinuxResources) (forCRI *cri.LinuxContainerResources, rest *api.LinuxResources, unsupported []string) {
	if from == nil {
		return nil, nil, nil
	}
	rest = proto.Clone(from).(*api.LinuxResources)
	forCRI = &cri.LinuxContainerResources{}
	if c := rest.GetCpu(); c != nil {
		forCRI.CpusetCpus, forCRI.CpusetMems, c.Cpus, c.Mems = c.Cpus, c.Mems, "", ""
		if v := c.Shares.GetValue(); v > 0 {
			forCRI.CpuShares, c.Shares = int64(v), nil //nolint:gosec // the kernel allows at most 262144
		}
		if v := c.Quota.GetValue(); v != 0 {
			forCRI.CpuQuota, c.Quota = v, nil
		}
		if v := c.Period.GetValue(); v > 0 {
			forCRI.CpuPeriod, c.Period = int64(v), nil //nolint:gosec // microseconds, at most a second
		}
	}
	if m := rest.GetMemory(); m != nil {
		if v := m.Limit.GetValue(); v > 0 {
			forCRI.MemoryLimitInBytes, m.Limit = v, nil
		}
	}
	for key, v := range from.GetUnified() {
		if !strings.HasPrefix(key, "cpuset.") {
			continue
		}
		delete(rest.Unified, key)
		switch key {
		case "cpuset.cpus":
			forCRI.CpusetCpus = v
		case "cpuset.mems":
			forCRI.CpusetMems = v
		default:
			unsupported = append(unsupported, "linux.resources.unified["+key+"]")
		}
	}
	if proto.Equal(forCRI, &cri.LinuxContainerResources{}) {
		forCRI = nil
	}
	if hasNoValue(rest) {
		rest = nil
	}
	return forCRI, rest, unsupported
}

// hasNoValue reports whether resources have no value. Empty sections do not count, because the NRI library also sends
// empty CPU and memory sections.
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

// mergeResources returns the resources in base, but with the values of changes for all fields that are set in changes.
// It returns nil if changes and base are nil.
func mergeResources(changes, base *cri.LinuxContainerResources) *cri.LinuxContainerResources {
	if base == nil || changes == nil {
		if changes == nil {
			return base
		}
		return changes
	}
	n := proto.Clone(base).(*cri.LinuxContainerResources)
	proto.Merge(n, changes)
	return n
}

// addResources sets in the NRI message about a container the resources that r has, except the limits of huge pages.
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
	update := toNRIResources(r)
	update.HugepageLimits = nil // proto.Merge appends to lists, so it would repeat the limits
	proto.Merge(c.Linux.Resources, update)
}
