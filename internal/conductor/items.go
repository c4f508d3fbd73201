package conductor

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// keeperItem makes a keeper item from a container's value and its original value.
func (n *node) keeperItem(t keeper.Target, ctr *engine.Container, v lifecycle.Value) keeper.Item {
	item := keeper.Item{Target: t, Value: v, Requested: originalOf(&ctr.Pristine, v), Restore: isRestore(v)}
	if copied, stored := n.track(ctr.ID).Stored[v.Field]; stored && item.Requested != nil && copied != item.Requested.String() {
		item.RuntimeMayHaveWritten = true // the runtime writes the value of its copy to the kernel
	}
	return item
}

// podItem makes a keeper item from a value of a pod's own cgroup. The original is the runtime's
// request for the pod, or else the kernel's present value.
func podItem(p *engine.Pod, dir string, v lifecycle.Value) keeper.Item {
	item := keeper.Item{Target: keeper.Target{Owner: p.Pod.ID, Dir: dir, Parent: true}, Value: v, Restore: isRestore(v)}
	requested := engine.PodRequest(p.Pod)
	_, known := requested.Value(v.Field, v.Key)
	switch v.Field {
	case lifecycle.CPUShares:
		item.RequestUnknown = !known
	case lifecycle.CPUQuota, lifecycle.MemoryLimit:
		item.RequestUnknown = !p.LimitsKnown()
	default: // the runtime does not set the two files of a partition, so their original is the value in a new cgroup
		known = v.Field == lifecycle.Unified && (v.Key == cgroup.ExclusiveFile || v.Key == cgroup.PartitionFile)
	}
	if known {
		item.Requested = originalOf(requested, v)
	}
	return item
}

// requestedWeight returns the requested weight of a pod whose cpu.idle returns to 0, if no hook decides a weight for
// the pod. The kernel forgets the weight of a cgroup while cpu.idle is 1, and an agent that lost its state does not
// know the weight either.
func requestedWeight(p *engine.Pod) (lifecycle.Value, bool) {
	requested := engine.PodRequest(p.Pod).CPU.Shares
	ends := false
	for _, v := range p.Values {
		if v.Field == lifecycle.CPUShares {
			return lifecycle.Value{}, false
		}
		ends = ends || v.Key == "cpu.idle" && v.Text == "0" && isRestore(v)
	}
	return lifecycle.Value{
		Field: lifecycle.CPUShares, Scope: lifecycle.OfPod, Int: int64(requested.V), Why: lifecycle.Reason{Text: "as the runtime requested"},
	}, ends && requested.Set
}

// isRestore reports whether a value only undoes an earlier decision. Such a value names no hook.
func isRestore(v lifecycle.Value) bool { return v.Why.Hook == "" }

// originalOf returns the original value of a container's cgroup file: the runtime's request, or
// else the value in a new cgroup. It is nil for values that runtimes do not report.
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
