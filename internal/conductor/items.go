package conductor

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// item is a value of a container for the keeper, with what would be there
// without us.
func (c *Conductor) item(t keeper.Target, ctr *engine.Container, v lifecycle.Value) keeper.Item {
	it := keeper.Item{Target: t, Value: v, Asked: asked(&ctr.Pristine, v), Back: putsBack(v)}
	if copied, told := c.told[ctr.ID][v.Field]; told && it.Asked != nil && copied != it.Asked.String() {
		it.Carried = true // by the runtime, into the kernel
	}
	return it
}

// putsBack reports whether a value only takes back what was decided before.
func putsBack(v lifecycle.Value) bool { return v.Why.Hook == "" }

// asked is what would be in a container's cgroup without us: what the runtime
// asked for, and where it did not ask, what a new cgroup has. It is nil for what
// runtimes do not tell.
func asked(p *lifecycle.Resources, v lifecycle.Value) *lifecycle.Value {
	out := lifecycle.Value{Field: v.Field, Key: v.Key}
	switch v.Field {
	case lifecycle.CPUShares:
		out.Int = int64(cmp.Or(p.CPU.Shares.V, 1024))
	case lifecycle.CPUQuota:
		out.Int = unlimited(p.CPU.Quota.V)
	case lifecycle.CPUPeriod:
		out.Int = int64(cmp.Or(p.CPU.Period.V, 100000))
	case lifecycle.MemoryLimit:
		out.Int = unlimited(p.Memory.Limit.V)
	case lifecycle.CPUSetCPUs:
		out.Text = p.CPU.CPUs
	case lifecycle.CPUSetMems:
		out.Text = p.CPU.Mems
	case lifecycle.Unified:
		var known bool
		if out.Text, known = p.Unified[v.Key]; !known {
			out.Text, known = engine.Neutral(v.Key)
		}
		if !known {
			return nil
		}
	default:
		return nil
	}
	return &out
}
