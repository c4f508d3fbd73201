package facts

import (
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readCPUs reads the CPUs that the kernel gives to containers whose record may lack their present CPUs. At a
// StartContainer, it reads them for a container that the runtime could not describe before, or cannot describe now.
// At a Synchronize, it reads them for:
//   - containers without a record, if the attachment cannot carry records, so that only the checkpoint has records
//   - containers without a record, if the agent takes over from another agent
//   - containers of balloons that the checkpoint lacks
//   - owners whose record may be older than a resize
//   - all containers, if a record is not trusted or the runtime cannot describe a container: their CPUs show who
//     owned them
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
	unread := slices.ContainsFunc(ev.Containers, func(ctr *lifecycle.Container) bool { return ctr != nil && ctr.Undescribed != "" })
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		c := *ctr
		if list && f.Records[c.ID].ColdStart.Seconds > 0 {
			g.readMems(p, c, f)
		}
		kernel, runs := g.needsKernelCPUs(can, c, f, list)
		if runs = runs || list && unread; !kernel && !runs {
			return
		}
		f.OwnedCPUs = g.o.Checkpoint.Grants()
		dir, err := cgroup.Path(p.CgroupParent, c.CgroupsPath)
		if err != nil {
			return // the agent reports this error when it must write a value to this cgroup
		}
		given, ok := g.o.AllowedCPUs(dir)
		if ok && kernel {
			put(&f.KernelCPUs, c.ID, given)
		}
		if ok && runs {
			put(&f.RunningCPUs, c.ID, given)
		}
	})
}

// readMems reads the memory nodes that the kernel gives to a container that may be in its cold start.
func (g *Gatherer) readMems(p *lifecycle.Pod, c *lifecycle.Container, f *engine.Facts) {
	dir, err := cgroup.Path(p.CgroupParent, c.CgroupsPath)
	if err != nil {
		return // the agent reports this error when it must write a value to this cgroup
	}
	if given, err := g.o.Tree.Effective(dir, lifecycle.CPUSetMems); err == nil {
		put(&f.KernelMems, c.ID, given)
	}
}

// needsKernelCPUs reports for which facts the kernel's CPUs of a container are read. kernel is for Facts.KernelCPUs:
// the record is missing or may be older than the present CPUs, some record is not trusted, or the runtime could not
// describe the container before. runs is for Facts.RunningCPUs: the checkpoint lacks the container's balloon, or
// the runtime cannot describe the container at its start.
func (g *Gatherer) needsKernelCPUs(can *route.Capabilities, c *lifecycle.Container, f *engine.Facts, list bool) (kernel, runs bool) {
	r, recorded := f.Records[c.ID]
	switch {
	case list:
		// The container's balloon may have other CPUs than when the container was created.
		runs = recorded && r.Balloon != "" && f.Balloons[r.Balloon] == ""
		kernel = c.Undescribed == "" && (recorded && !r.FromCheckpoint && r.CPUs != "" || !recorded && (f.FormerAgent != nil || !can.CarriesRecords()) || len(f.UntrustedRecords) > 0)
	case !recorded || !r.FromCheckpoint:
		kernel, runs = c.Undescribed == "" && g.wasUndescribed(c.ID), c.Undescribed != ""
	}
	return kernel, runs
}

// wasUndescribed reports whether the runtime could not describe a container when it was decided.
func (g *Gatherer) wasUndescribed(id string) bool {
	defer g.o.State.Free()
	known := g.o.State.Hold().Container(id)
	return known != nil && known.Undescribed.Why != ""
}
