package criclient

import (
	"github.com/trimtab/trimtab/internal/attach/carry"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// resourceSetters has, for each setting that the CRI's resources can carry, a function that sets the field in the
// resources. The function returns false for a value that the CRI cannot express: in the CRI, 0 and "" mean unset. The
// requests CreateContainer and UpdateContainerResources both contain such resources.
var resourceSetters = map[lifecycle.Field]func(*criResources, lifecycle.Value) bool{
	lifecycle.CPUShares:   carry.NumberSetter(1, func(r *criResources, n int64) { r.CpuShares = n }),
	lifecycle.CPUQuota:    carry.NumberSetter(-1, func(r *criResources, n int64) { r.CpuQuota = n }),
	lifecycle.CPUPeriod:   carry.NumberSetter(1, func(r *criResources, n int64) { r.CpuPeriod = n }),
	lifecycle.CPUSetCPUs:  carry.TextSetter(func(r *criResources, list string) { r.CpusetCpus = list }),
	lifecycle.CPUSetMems:  carry.TextSetter(func(r *criResources, list string) { r.CpusetMems = list }),
	lifecycle.MemoryLimit: carry.NumberSetter(-1, func(r *criResources, n int64) { r.MemoryLimitInBytes = n }),
	lifecycle.Unified:     func(r *criResources, v lifecycle.Value) bool { return carry.SetPair(&r.Unified, v) },
}

// CanPut reports whether the resources of the CRI have a field for values of f.
func CanPut(f lifecycle.Field) bool { return resourceSetters[f] != nil }

// Put puts a value into resources. It returns false if the value is not for a container, or if the CRI cannot express
// the value.
func Put(r *criResources, v lifecycle.Value) bool {
	put := resourceSetters[v.Field]
	return put != nil && v.Scope == lifecycle.OfContainer && put(r, v)
}
