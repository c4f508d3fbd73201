package facts

import (
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readCPUs reads the CPUs that the kernel gives to containers whose record lacks their present
// ones.
//
// At a Synchronize these are containers whose record is lost, those of balloons that the
// checkpoint lacks, containers of an attachment whose records only the checkpoint has, and
// owners whose record may be older than a resize. If a
// record is not trusted, or the runtime cannot describe a container, the CPUs of all containers
// show who owned what. At a start it is a container that the runtime could not describe before,
// or cannot describe now.
func (g *Gatherer) readCPUs(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	list := ev.Kind == lifecycle.Synchronize
	if !list && ev.Kind != lifecycle.StartContainer {
		return
	}
	if list {
		f.Expecting = g.o.Ahead
		f.Kernel, f.Grants, f.Balloons = map[string]string{}, g.o.Checkpoint.Grants(), g.o.Checkpoint.Balloons()
	}
	unread := slices.ContainsFunc(ev.Containers, func(ctr *lifecycle.Container) bool { return ctr != nil && ctr.Undescribed != "" })
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		c := *ctr
		kernel, runs := g.needsKernelCPUs(can, c, f, list)
		if runs = runs || list && unread; !kernel && !runs {
			return
		}
		f.Grants = g.o.Checkpoint.Grants()
		dir, err := cgroup.Path(p.CgroupParent, c.CgroupsPath)
		if err != nil {
			return // an error is reported when a value must be written there
		}
		given, ok := g.o.Allowed(dir)
		if ok && kernel {
			put(&f.Kernel, c.ID, given)
		}
		if ok && runs {
			put(&f.Runs, c.ID, given)
		}
	})
}

// needsKernelCPUs reports whether a record lacks a container's present CPUs, so that the kernel
// is read, and whether that is because the runtime cannot describe the container at its start.
func (g *Gatherer) needsKernelCPUs(can *route.Capabilities, c *lifecycle.Container, f *engine.Facts, list bool) (kernel, runs bool) {
	r, recorded := f.Records[c.ID]
	switch {
	case list:
		// Its balloon may have other CPUs than when it was created.
		runs = recorded && r.Balloon != "" && f.Balloons[r.Balloon] == ""
		kernel = c.Undescribed == "" && (recorded && !r.Late && r.CPUs != "" || !recorded && !can.CarriesRecords() || len(f.Distrusted) > 0)
	case !recorded || !r.Late:
		kernel, runs = c.Undescribed == "" && g.wasUndescribed(c.ID), c.Undescribed != ""
	}
	return kernel, runs
}

func (g *Gatherer) wasUndescribed(id string) bool {
	defer g.o.State.Free()
	known := g.o.State.Hold().Container(id)
	return known != nil && known.Undescribed.Why != ""
}
