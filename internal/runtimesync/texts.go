package runtimesync

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Texts are the texts of values by field. An absent field is not set.
type Texts map[lifecycle.Field]string

// Of reads the texts of a container's resources as the runtime reports them.
func Of(r *lifecycle.Resources) Texts {
	out := Texts{}
	for _, f := range route.Stored() {
		v, _ := r.Of(f, "")
		if f == lifecycle.CPUQuota || f == lifecycle.MemoryLimit {
			v.Int = cmp.Or(v.Int, -1) // unlimited
		}
		if v.Int != 0 || v.Text != "" {
			out[f] = v.String()
		}
	}
	return out
}

// Requested returns the texts of an update's request. The runtime keeps the values of absent
// fields.
func Requested(r *lifecycle.Resources) Texts {
	if r == nil {
		return Texts{}
	}
	out := Of(r)
	if r.CPU.Quota.V == 0 {
		delete(out, lifecycle.CPUQuota)
	}
	if r.Memory.Limit.V == 0 {
		delete(out, lifecycle.MemoryLimit)
	}
	return out
}
