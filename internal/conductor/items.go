package conductor

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// item is a value of a container for the keeper, with what would be there
// without us.
func (n *node) item(t keeper.Target, ctr *engine.Container, v lifecycle.Value) keeper.Item {
	it := keeper.Item{Target: t, Value: v, Asked: asked(&ctr.Pristine, v), Back: putsBack(v)}
	if copied, stored := n.track(ctr.ID).Stored[v.Field]; stored && it.Asked != nil && copied != it.Asked.String() {
		it.Carried = true // by the runtime, into the kernel
	}
	return it
}

// podItem is a value of a pod's own cgroup. What would be there without us is what the runtime told of the pod; of what
// it did not tell, the kernel knows.
func podItem(p *engine.Pod, dir string, v lifecycle.Value) keeper.Item {
	it := keeper.Item{Target: keeper.Target{Owner: p.Pod.ID, Dir: dir, Parent: true}, Value: v, Back: putsBack(v)}
	requested := engine.PodPristine(p.Pod)
	_, known := requested.Of(v.Field, v.Key)
	switch v.Field {
	case lifecycle.CPUShares:
		it.Unknown = !known
	case lifecycle.CPUQuota, lifecycle.MemoryLimit:
		it.Unknown = !p.Limits()
	default: // but for what the runtime has no part in
		known = v.Field == lifecycle.Unified && (v.Key == cgroup.Exclusive || v.Key == cgroup.Partition)
	}
	if known {
		it.Asked = asked(requested, v)
	}
	return it
}

// weightAfterIdle is the weight of a pod that is idle no more, where the runtime told it and nobody decides another: the
// kernel forgets it, and so did an agent whose state is gone.
func weightAfterIdle(p *engine.Pod) (lifecycle.Value, bool) {
	requested := engine.PodPristine(p.Pod).CPU.Shares
	ends := false
	for _, v := range p.Values {
		if v.Field == lifecycle.CPUShares {
			return lifecycle.Value{}, false
		}
		ends = ends || v.Key == "cpu.idle" && v.Text == "0" && putsBack(v)
	}
	return lifecycle.Value{
		Field: lifecycle.CPUShares, Scope: lifecycle.OfPod, Int: int64(requested.V), Why: lifecycle.Reason{Text: "as the runtime asked"},
	}, ends && requested.Set
}

// putsBack reports whether a value only takes back what was decided before.
func putsBack(v lifecycle.Value) bool { return v.Why.Hook == "" }

// asked is what would be in a container's cgroup without us: what the runtime
// asked for, and where it did not ask, what a new cgroup has. It is nil for what
// runtimes do not tell.
func asked(p *lifecycle.Resources, v lifecycle.Value) *lifecycle.Value {
	out, known := p.Of(v.Field, v.Key)
	switch v.Field {
	case lifecycle.CPUShares:
		out.Int = cmp.Or(out.Int, 1024)
	case lifecycle.CPUQuota, lifecycle.MemoryLimit:
		out.Int = cmp.Or(out.Int, -1) // unlimited
	case lifecycle.CPUPeriod:
		out.Int = cmp.Or(out.Int, 100000)
	case lifecycle.CPUSetCPUs, lifecycle.CPUSetMems:
	default:
		if !known {
			out.Text, known = engine.Neutral(v.Key)
		}
		if v.Field != lifecycle.Unified || !known {
			return nil
		}
	}
	return &out
}
