package bypass

import (
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// resourcesOf reads the resources of an OCI spec.
func resourcesOf(r *specs.LinuxResources) lifecycle.Resources {
	var out lifecycle.Resources
	if r == nil {
		return out
	}
	if c := r.CPU; c != nil {
		out.CPU = lifecycle.CPU{CPUs: c.Cpus, Mems: c.Mems, Shares: same(c.Shares), Quota: same(c.Quota), Period: same(c.Period)}
	}
	if m := r.Memory; m != nil {
		out.Memory = lifecycle.Memory{Limit: same(m.Limit), Reservation: same(m.Reservation), Swap: same(m.Swap)}
	}
	if r.Pids != nil {
		out.Pids = opt(r.Pids.Limit)
	}
	for _, h := range r.HugepageLimits {
		out.Hugepages = append(out.Hugepages, lifecycle.HugepageLimit{Size: h.Pagesize, Limit: h.Limit})
	}
	out.Unified = maps.Clone(r.Unified)
	return out
}

func same[T comparable](p *T) lifecycle.Opt[T] {
	if p == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(*p)
}

// resourcesIn reads resources the CRI tells; 0 is "not said" there.
func resourcesIn(r *cri.LinuxContainerResources) lifecycle.Resources {
	if r == nil {
		return lifecycle.Resources{}
	}
	return *(&criResources{
		Period: r.CpuPeriod, Quota: r.CpuQuota, Shares: r.CpuShares, Memory: r.MemoryLimitInBytes,
		CPUs: r.CpusetCpus, Mems: r.CpusetMems, Unified: r.Unified, MemorySwap: r.MemorySwapLimitInBytes,
	}).words()
}

// words translates CRI resources; nil stays nil.
func (r *criResources) words() *lifecycle.Resources {
	if r == nil {
		return nil
	}
	return &lifecycle.Resources{
		CPU: lifecycle.CPU{
			Shares: said(uint64(max(r.Shares, 0))), Quota: said(r.Quota), Period: said(uint64(max(r.Period, 0))),
			CPUs: r.CPUs, Mems: r.Mems,
		},
		Memory:  lifecycle.Memory{Limit: said(r.Memory), Swap: said(r.MemorySwap)},
		Unified: maps.Clone(r.Unified),
	}
}

func said[T int64 | uint64](v T) lifecycle.Opt[T] { return lifecycle.Opt[T]{V: v, Set: v != 0} }

// stored are the resources of a container that the CRI can change, as its
// stored copy has them. 0 and "" are "not said", and an unlimited quota is -1
// or 0: comparing knows no difference.
type stored struct {
	shares, quota, period, memory int64
	cpus, mems                    string
}

func storedOf(r *lifecycle.Resources) stored {
	return stored{
		shares: int64(r.CPU.Shares.V), quota: unlimited(r.CPU.Quota.V), period: int64(r.CPU.Period.V),
		memory: unlimited(r.Memory.Limit.V), cpus: r.CPU.CPUs, mems: r.CPU.Mems,
	}
}

func unlimited(v int64) int64 {
	if v <= 0 {
		return -1
	}
	return v
}

// asked returns what somebody else put into the copy since it was seen: what
// differs from then and is not ours. nil where nothing does.
func asked(now, seen, ours stored) *lifecycle.Resources {
	r := &lifecycle.Resources{}
	any := false
	differs := func(n, s, o int64) bool {
		d := n != s && n != o
		any = any || d
		return d
	}
	if differs(now.shares, seen.shares, ours.shares) {
		r.CPU.Shares = lifecycle.Some(uint64(now.shares))
	}
	if differs(now.quota, seen.quota, ours.quota) {
		r.CPU.Quota = lifecycle.Some(now.quota)
	}
	if differs(now.period, seen.period, ours.period) {
		r.CPU.Period = lifecycle.Some(uint64(now.period))
	}
	if differs(now.memory, seen.memory, ours.memory) {
		r.Memory.Limit = lifecycle.Some(now.memory)
	}
	if now.cpus != seen.cpus && now.cpus != ours.cpus {
		r.CPU.CPUs, any = now.cpus, true
	}
	if now.mems != seen.mems && now.mems != ours.mems {
		r.CPU.Mems, any = now.mems, true
	}
	if !any {
		return nil
	}
	return r
}

// put lays values over a copy, as far as the CRI has a field for them.
func (s *stored) put(values []lifecycle.Value) (left []lifecycle.Value) {
	for _, v := range values {
		switch v.Field {
		case lifecycle.CPUShares:
			s.shares = v.Int
		case lifecycle.CPUQuota:
			s.quota = unlimited(v.Int)
		case lifecycle.CPUPeriod:
			s.period = v.Int
		case lifecycle.MemoryLimit:
			s.memory = unlimited(v.Int)
		case lifecycle.CPUSetCPUs:
			s.cpus = v.Text
		case lifecycle.CPUSetMems:
			s.mems = v.Text
		default:
			left = append(left, v)
		}
	}
	return left
}

// drop takes out what somebody else asked for since: asking for what was there
// before is a request again.
func (s *stored) drop(r *lifecycle.Resources) {
	var none stored
	if r.CPU.Shares.Set {
		s.shares = none.shares
	}
	if r.CPU.Quota.Set {
		s.quota = none.quota
	}
	if r.CPU.Period.Set {
		s.period = none.period
	}
	if r.Memory.Limit.Set {
		s.memory = none.memory
	}
	if r.CPU.CPUs != "" {
		s.cpus = none.cpus
	}
	if r.CPU.Mems != "" {
		s.mems = none.mems
	}
}

// copiedFields are those that the CRI's update has.
var copiedFields = lifecycle.FieldsWhere(func(f lifecycle.Field) bool {
	var none stored
	return len(none.put([]lifecycle.Value{{Field: f}})) == 0
})

// request asks for values, and for nothing else: 0 is "leave it" to runtimes.
func request(values []lifecycle.Value) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{}
	for _, v := range values {
		switch v.Field {
		case lifecycle.CPUShares:
			r.CpuShares = v.Int
		case lifecycle.CPUQuota:
			r.CpuQuota = unlimited(v.Int)
		case lifecycle.CPUPeriod:
			r.CpuPeriod = v.Int
		case lifecycle.MemoryLimit:
			r.MemoryLimitInBytes = unlimited(v.Int)
		case lifecycle.CPUSetCPUs:
			r.CpusetCpus = v.Text
		case lifecycle.CPUSetMems:
			r.CpusetMems = v.Text
		}
	}
	return r
}
