package kernel

import (
	"math/bits"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file models the cpuset controller without partitions.

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

// effectiveMems returns the effective memory nodes of a cgroup: in version 2 those of its set that the parent has, or
// else all of the parent's.
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

// within is the kernel's is_cpuset_subset: a child must not have CPUs, memory nodes or flags that its parent lacks.
func (s cpusetState) within(o cpusetState) bool {
	return o.cpus.Contains(s.cpus) && o.mems.Contains(s.mems) && (!s.onlyCPUs || o.onlyCPUs) && (!s.onlyMems || o.onlyMems)
}

// validate makes the checks of the kernel's validate_change in their order.
func (f *Cgroups) validate(g *group, trial cpusetState) error {
	if f.version == cgroup.V1 {
		if err := f.validateV1(g, trial); err != nil {
			return err
		}
	}
	// A set that was never written may stay empty. A written set may not become empty while tasks use it, also in version
	// 2.
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
		above.onlyCPUs, above.onlyMems = true, true // as in the kernel's root
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

// clash reports whether o has CPUs or memory nodes that are exclusive to s.
func (s cpusetState) clash(o cpusetState) bool {
	return s.onlyCPUs && !s.cpus.And(o.cpus).Empty() || s.onlyMems && !s.mems.And(o.mems).Empty()
}

// flag is a file of version 1 that is 0 or 1. The kernel uses only the lower 32 bits of the number.
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

// setRelax accepts -1 up to the number of scheduling domain levels, here 2: cluster and NUMA node.
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

// SetPossible sets the possible CPUs, which include those online. Initially they are those online.
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

// SetOnline takes a CPU offline or online. Version 1 removes an offline CPU from every cpuset permanently and moves
// tasks without a CPU to an ancestor. Version 2 keeps the sets and changes the effective ones.
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

// moveUp moves the tasks of a cpuset without CPUs to the nearest ancestor with CPUs.
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

// highest returns the largest member, -1 for the empty set.
func highest(s cgroup.IDs) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return i<<6 + bits.Len64(s[i]) - 1
		}
	}
	return -1
}
