package criclient

import (
	"maps"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// resourceSetters are the fields of resources that values can set, at creation and in updates. 0 and "" mean unset in the CRI.
// A function returns false for a value that the CRI cannot express.
var resourceSetters = map[lifecycle.Field]func(*pRes, lifecycle.Value) bool{
	lifecycle.CPUShares:   putNumber(func(r *pRes) *int64 { return &r.CpuShares }, 1),
	lifecycle.CPUQuota:    putNumber(func(r *pRes) *int64 { return &r.CpuQuota }, -1),
	lifecycle.CPUPeriod:   putNumber(func(r *pRes) *int64 { return &r.CpuPeriod }, 1),
	lifecycle.CPUSetCPUs:  putList(func(r *pRes) *string { return &r.CpusetCpus }),
	lifecycle.CPUSetMems:  putList(func(r *pRes) *string { return &r.CpusetMems }),
	lifecycle.MemoryLimit: putNumber(func(r *pRes) *int64 { return &r.MemoryLimitInBytes }, -1),
	lifecycle.Unified:     func(r *pRes, v lifecycle.Value) bool { return PutPair(&r.Unified, v) },
}

// CanPut reports whether the CRI's resources have a field for these values of a container.
func CanPut(f lifecycle.Field) bool { return resourceSetters[f] != nil }

// Put puts a value into resources. It returns false for a value that the CRI cannot express. The caller then
// reports that value as left.
func Put(r *pRes, v lifecycle.Value) bool {
	put := resourceSetters[v.Field]
	return put != nil && v.Scope == lifecycle.OfContainer && put(r, v)
}

// PutPair puts a value into m under its key. It returns false for a value without a key.
func PutPair(m *map[string]string, v lifecycle.Value) bool {
	if v.Key != "" {
		*m = WithPairs(*m, map[string]string{v.Key: v.Text})
	}
	return v.Key != ""
}

// WithPairs merges pairs into m, which may be nil.
func WithPairs(m, more map[string]string) map[string]string {
	if m == nil && len(more) > 0 {
		m = make(map[string]string, len(more))
	}
	maps.Copy(m, more)
	return m
}

// putNumber sets a number that is not 0 and not below least.
func putNumber(of func(*pRes) *int64, least int64) func(*pRes, lifecycle.Value) bool {
	return func(r *pRes, v lifecycle.Value) bool {
		if v.Int == 0 || v.Int < least {
			return false
		}
		*of(r) = v.Int
		return true
	}
}

// putList sets a list that is not empty.
func putList(of func(*pRes) *string) func(*pRes, lifecycle.Value) bool {
	return func(r *pRes, v lifecycle.Value) bool {
		if v.Text != "" {
			*of(r) = v.Text
		}
		return v.Text != ""
	}
}
