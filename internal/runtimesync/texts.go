package runtimesync

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// FieldTexts has the texts of values, by field. A field without an entry is not set.
type FieldTexts map[lifecycle.Field]string

// FieldTextsOf returns the texts of the values of the resources that the runtime reports for a container.
func FieldTextsOf(r *lifecycle.Resources) FieldTexts {
	out := FieldTexts{}
	for _, f := range route.CopiedFields() {
		v, _ := r.Value(f, "")
		if f == lifecycle.CPUQuota || f == lifecycle.MemoryLimit {
			v.Int = cmp.Or(v.Int, -1) // unlimited
		}
		if v.Int != 0 || v.Text != "" {
			out[f] = v.String()
		}
	}
	return out
}

// RequestedTexts returns the texts of the values that an update requests. It leaves out the fields that the update does
// not set, because the runtime does not change these fields.
func RequestedTexts(r *lifecycle.Resources) FieldTexts {
	if r == nil {
		return FieldTexts{}
	}
	out := FieldTextsOf(r)
	if r.CPU.Quota.V == 0 {
		delete(out, lifecycle.CPUQuota)
	}
	if r.Memory.Limit.V == 0 {
		delete(out, lifecycle.MemoryLimit)
	}
	return out
}
