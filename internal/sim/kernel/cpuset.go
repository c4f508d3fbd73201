package kernel

import (
	"math/bits"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file models the cpuset controller but for partitions.

type cpusetState struct {
	cpus, mems                cgroup.IDs
	clone                     bool
	onlyCPUs, onlyMems, hard  bool // cpu_exclusive, mem_exclusive, mem_hardwall
	migrate, pageOut, slabOut bool
	balance                   bool
	relax                     int64
}

// mostNodes is MAX_NUMNODES of kernels with CONFIG_NODES_SHIFT=10.
const mostNodes = 1024

func setClone(_ *Cgroups, g *group, text string) error {
	n, err := kernelUint(text)
	if err == nil {
		g.clone = n != 0
	}
	return err
}

func showCPUs(_ *Cgroups, g *group) string { return g.cpus.String() }
func showMems(_ *Cgroups, g *group) string { return g.mems.String() }

func showEffectiveCPUs(f *Cgroups, g *group) string { return f.effectiveCPUs(g).String() }

func showEffectiveMems(f *Cgroups, g *group) string { return f.effectiveMems(g).String() }

// effectiveMems is what a set amounts to: in version 2 what of it the parent
// has, or else all the parent has.
func (f *Cgroups) effectiveMems(g *group) cgroup.IDs {
	if g == f.root || f.version == cgroup.V1 {
		return g.mems
	}
	above := f.effectiveMems(g.parent)
	if own := g.mems.And(above); !own.Empty() {
		return own
	}
	return above
}

func setCPUs(f *Cgroups, g *group, text string) error {
	if g == f.root {
		return syscall.EACCES
	}
	want, err := kernelList(text, highest(f.possible)+1)
	allowed := f.cpus
	if f.version == cgroup.V2 {
		allowed = f.possible
	}
	switch {
	case err != nil:
		return err
	case !allowed.Contains(want):
		return syscall.EINVAL
	case want == g.cpus:
		return nil
	}
	trial := g.cpusetState
	trial.cpus = want
	if err := f.validate(g, trial); err != nil {
		return err
	}
	g.cpus = want
	f.cpusChanged(g)
	return nil
}

func setMems(f *Cgroups, g *group, text string) error {
	if g == f.root {
		return syscall.EACCES
	}
	want, err := kernelList(text, mostNodes)
	switch {
	case err != nil:
		return err
	case !f.mems.Contains(want):
		return syscall.EINVAL
	case want == g.mems:
		return nil
	}
	trial := g.cpusetState
	trial.mems = want
	if err := f.validate(g, trial); err != nil {
		return err
	}
	g.mems = want
	return nil
}

// within is is_cpuset_subset: a child must not have what its parent has not.
func (s cpusetState) within(o cpusetState) bool {
	return o.cpus.Contains(s.cpus) && o.mems.Contains(s.mems) && (!s.onlyCPUs || o.onlyCPUs) && (!s.onlyMems || o.onlyMems)
}

// validate makes the checks of validate_change in their order.
func (f *Cgroups) validate(g *group, trial cpusetState) error {
	if f.version == cgroup.V1 {
		if err := f.validateV1(g, trial); err != nil {
			return err
		}
	}
	// A set that was never given may stay so; one that was may not be taken away
	// from tasks, in version 2 neither.
	if (!g.cpus.Empty() && trial.cpus.Empty() || !g.mems.Empty() && trial.mems.Empty()) && f.populated(g, "cpuset") {
		return syscall.ENOSPC
	}
	return f.mayEmpty(g, trial)
}

func (f *Cgroups) validateV1(g *group, trial cpusetState) error {
	for _, c := range g.children {
		if !c.within(trial) {
			return syscall.EBUSY
		}
	}
	if g == f.root {
		return nil
	}
	above := g.parent.cpusetState
	if g.parent == f.root {
		above.onlyCPUs, above.onlyMems = true, true // as the kernel's root has it
	}
	if !trial.within(above) {
		return syscall.EACCES
	}
	for _, o := range g.parent.children {
		if o != g && (trial.clash(o.cpusetState) || o.clash(trial)) {
			return syscall.EINVAL
		}
	}
	return nil
}

// clash reports whether what s has alone is in o as well.
func (s cpusetState) clash(o cpusetState) bool {
	return s.onlyCPUs && !s.cpus.And(o.cpus).Empty() || s.onlyMems && !s.mems.And(o.mems).Empty()
}

// flag is a file of version 1 that is 0 or 1. The kernel looks at the lower half
// of the number only.
func flag(at func(*cpusetState) *bool) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string { return bit(*at(&g.cpusetState)) },
		set: func(f *Cgroups, g *group, text string) error {
			n, err := kernelUint(text)
			if err != nil {
				return err
			}
			trial := g.cpusetState
			*at(&trial) = uint32(n) != 0
			if err := f.validate(g, trial); err != nil {
				return err
			}
			g.cpusetState = trial
			return nil
		},
	}
}

func showRelax(_ *Cgroups, g *group) string { return number(g.relax) }

// setRelax takes -1 to the number of scheduling domains above a CPU, here 2: a
// core's cluster and the node, of a machine with nodes.
func setRelax(_ *Cgroups, g *group, text string) error {
	n, err := kernelInt(text)
	switch {
	case err != nil:
		return err
	case n < -1 || n > 2:
		return syscall.EINVAL
	}
	g.relax = n
	return nil
}

// SetPossible sets which CPUs could come online (those online are among them).
// It starts as those online.
func (f *Cgroups) SetPossible(cpus string) error {
	c, err := cgroup.ParseIDs(cpus)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.possible = c.Union(f.cpus)
	return nil
}

// SetOnline takes a CPU off or puts it back. Version 1 takes it out of every
// cpuset permanently, and tasks without a CPU move up; version 2 keeps the sets and
// changes what they amount to.
func (f *Cgroups) SetOnline(cpu int, online bool) error {
	var one cgroup.IDs
	one[cpu>>6] = 1 << (cpu & 63)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.possible.Contains(one) {
		return pathError("write", "cpu/online", syscall.ENOENT)
	}
	if !online {
		if err := f.mayGoOffline(one); err != nil {
			return pathError("write", "cpu/online", err)
		}
	}
	f.cpus = f.cpus.Minus(one)
	if online {
		f.cpus = f.cpus.Union(one)
	}
	f.root.cpus = f.cpus
	if f.version == cgroup.V1 && !online {
		f.shrinkAll(f.root)
	}
	return nil
}

func (f *Cgroups) shrinkAll(g *group) {
	for _, c := range g.children {
		had := !c.cpus.Empty()
		c.cpus = c.cpus.And(g.cpus)
		if had && c.cpus.Empty() {
			f.moveUp(c)
		}
		f.shrinkAll(c)
	}
}

// moveUp moves the tasks of a cpuset without CPUs to the nearest one that has
// some.
func (f *Cgroups) moveUp(g *group) {
	to := g.parent
	for to != f.root && (to.cpus.Empty() || to.mems.Empty()) {
		to = to.parent
	}
	for _, p := range f.procs {
		if p.in["cpuset"] == g {
			p.in["cpuset"] = to
		}
	}
}

// highest returns the largest member, -1 of the empty set.
func highest(s cgroup.IDs) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return i<<6 + bits.Len64(s[i]) - 1
		}
	}
	return -1
}
