package facts

import (
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readCPUs reads the CPUs that the kernel gives to a container, if the agent's record of the container possibly lacks
// the present CPUs. At a StartContainer, it does this if the runtime could not return the container's status before, or
// cannot return it now. At a Synchronize, it does this for:
//   - containers without a record, if the attachment cannot write records into annotations
//   - containers without a record, if the agent takes over from another agent
//   - containers in a balloon that the checkpoint does not have
//   - containers that own CPUs, if their record is possibly older than a resize
//   - all containers, if one record is not trusted or the runtime cannot return the status of one container: the agent
//     then finds the owners of CPUs by what the kernel gives
func (g *Gatherer) readCPUs(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	list := ev.Kind == lifecycle.Synchronize
	if !list && ev.Kind != lifecycle.StartContainer {
		return
	}
	if list {
		f.ExpectsMorePods = g.o.DecidesAhead
		f.KernelCPUs, f.OwnedCPUs, f.Balloons = map[string]string{}, g.o.Checkpoint.Grants(), g.o.Checkpoint.Balloons()
		f.LentPods = g.o.Checkpoint.Lent()
	}
	undescribed := slices.ContainsFunc(ev.Containers, func(ctr *lifecycle.Container) bool { return ctr != nil && ctr.Undescribed != "" })
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		c := *ctr
		if list && f.Records[c.ID].ColdStart.Seconds > 0 {
			g.readMems(p, c, f)
		}
		forKernelCPUs, forRunningCPUs := g.needsKernelCPUs(can, c, f, list)
		if forRunningCPUs = forRunningCPUs || list && undescribed; !forKernelCPUs && !forRunningCPUs {
			return
		}
		f.OwnedCPUs = g.o.Checkpoint.Grants()
		dir, err := cgroup.Path(p.CgroupParent, c.CgroupsPath)
		if err != nil {
			return // the agent reports this error when it must write a value to this cgroup
		}
		given, ok := g.o.AllowedCPUs(dir)
		if ok && forKernelCPUs {
			put(&f.KernelCPUs, c.ID, given)
		}
		if ok && forRunningCPUs {
			put(&f.RunningCPUs, c.ID, given)
		}
	})
}

// readMems reads the memory nodes that the kernel gives to a container whose cold start is possibly not over. In a cold
// start, a container has only slow memory nodes.
func (g *Gatherer) readMems(p *lifecycle.Pod, c *lifecycle.Container, f *engine.Facts) {
	dir, err := cgroup.Path(p.CgroupParent, c.CgroupsPath)
	if err != nil {
		return // the agent reports this error when it must write a value to this cgroup
	}
	if given, err := g.o.Tree.Effective(dir, lifecycle.CPUSetMems); err == nil {
		put(&f.KernelMems, c.ID, given)
	}
}

// needsKernelCPUs reports whether the agent must read the CPUs that the kernel gives to a container.
//
// The result forKernelCPUs is true if Facts.KernelCPUs needs these CPUs: the record is missing or possibly older than
// the present CPUs, some record is not trusted, or the runtime could not return the container's status before. The
// result forRunningCPUs is true if Facts.RunningCPUs needs these CPUs: the checkpoint lacks the container's balloon, or
// the runtime cannot return the container's status at its start.
//
// The parameter synchronize is true if the event is a Synchronize.
func (g *Gatherer) needsKernelCPUs(
	can *route.Capabilities, c *lifecycle.Container, f *engine.Facts, synchronize bool,
) (forKernelCPUs, forRunningCPUs bool) {
	r, recorded := f.Records[c.ID]
	switch {
	case synchronize:
		// The record does not show the balloon's present CPUs, because they may have changed since the container's
		// creation.
		forRunningCPUs = recorded && r.Balloon != "" && f.Balloons[r.Balloon] == ""
		forKernelCPUs = c.Undescribed == "" && (recorded && !r.FromCheckpoint && r.CPUs != "" ||
			!recorded && (f.FormerAgent != nil || !can.CarriesRecords()) || len(f.UntrustedRecords) > 0)
	case !recorded || !r.FromCheckpoint:
		forKernelCPUs, forRunningCPUs = c.Undescribed == "" && g.wasUndescribed(c.ID), c.Undescribed != ""
	}
	return forKernelCPUs, forRunningCPUs
}

// wasUndescribed reports whether the agent decided a container while the runtime could not return its status.
func (g *Gatherer) wasUndescribed(id string) bool {
	defer g.o.State.Free()
	known := g.o.State.Hold().Container(id)
	return known != nil && known.Undescribed.Why != ""
}
