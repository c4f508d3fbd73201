package conductor

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// keeperItem makes the item that tells the keeper to write a container's value. The item also has the original value.
func (n *node) keeperItem(t keeper.Target, ctr *engine.Container, v lifecycle.Value) keeper.Item {
	item := keeper.Item{Target: t, Value: v, Requested: originalOf(&ctr.Pristine, v), Restore: isRestore(v)}
	if copied, stored := n.track(ctr.ID).Stored[v.Field]; stored && item.Requested != nil && copied != item.Requested.String() {
		item.RuntimeMayHaveWritten = true // the runtime writes the value of its copy to the kernel
	}
	return item
}

// podItem makes the item that tells the keeper to write a value into a pod's own cgroup. The original value is the
// runtime's request for the pod. If that is unknown, the keeper takes the kernel's present value as the original.
func podItem(p *engine.Pod, dir string, v lifecycle.Value) keeper.Item {
	item := keeper.Item{Target: keeper.Target{Owner: p.Pod.ID, Dir: dir, Parent: true}, Value: v, Restore: isRestore(v)}
	requested := engine.PodRequest(p.Pod)
	_, known := requested.Value(v.Field, v.Key)
	switch v.Field {
	case lifecycle.CPUShares:
		item.RequestUnknown = !known
	case lifecycle.CPUQuota, lifecycle.MemoryLimit:
		item.RequestUnknown = !p.LimitsKnown()
	default: // the runtime does not set the two files of a cpuset partition, so their original value is that of a new cgroup
		known = v.Field == lifecycle.Unified && (v.Key == cgroup.ExclusiveFile || v.Key == cgroup.PartitionFile)
	}
	if known {
		item.Requested = originalOf(requested, v)
	}
	return item
}

// requestedWeight returns the CPU weight that the runtime requested for a pod. The second result is true if cpu.idle of
// the pod returns to 0, no hook decides a weight, and the requested weight is known. Then the keeper must write the
// requested weight again, because the kernel forgets the weight of a cgroup while cpu.idle is 1. An agent that lost its
// state does not know the weight from elsewhere either.
func requestedWeight(p *engine.Pod) (lifecycle.Value, bool) {
	requested := engine.PodRequest(p.Pod).CPU.Shares
	idleEnds := false
	for _, v := range p.Values {
		if v.Field == lifecycle.CPUShares {
			return lifecycle.Value{}, false
		}
		idleEnds = idleEnds || v.Key == "cpu.idle" && v.Text == "0" && isRestore(v)
	}
	return lifecycle.Value{
		Field: lifecycle.CPUShares, Scope: lifecycle.OfPod, Int: int64(requested.V), Why: lifecycle.Reason{Text: "as the runtime requested"},
	}, idleEnds && requested.Set
}

// isRestore reports whether a value restores the original, because no hook decides the setting any more.
func isRestore(v lifecycle.Value) bool { return v.Why.Hook == "" }

// originalOf returns the original value of a cgroup file: the request in p, or the value in a new cgroup if p has no
// request. It returns nil if neither is known.
func originalOf(p *lifecycle.Resources, v lifecycle.Value) *lifecycle.Value {
	out, known := p.Value(v.Field, v.Key)
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
			out.Text, known = engine.InitialValue(v.Key)
		}
		if v.Field != lifecycle.Unified || !known {
			return nil
		}
	}
	return &out
}
