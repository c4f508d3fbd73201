package kernel

import (
	"math/bits"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file simulates the cpuset controller without partitions.

// cpusetState has a cgroup's values in the cpuset controller, by file.
type cpusetState struct {
	cpus, mems                            cgroup.IDs // cpuset.cpus, cpuset.mems
	cloneChildren                         bool       // cgroup.clone_children
	cpuExclusive, memExclusive, hardwall  bool       // cpu_exclusive, mem_exclusive, mem_hardwall
	memoryMigrate, spreadPage, spreadSlab bool       // memory_migrate, memory_spread_page, memory_spread_slab
	schedLoadBalance                      bool       // sched_load_balance
	relaxDomainLevel                      int64      // sched_relax_domain_level
}

// maxNodes is MAX_NUMNODES of kernels with CONFIG_NODES_SHIFT=10.
const maxNodes = 1024

// setClone handles a write to cgroup.clone_children.
func setClone(_ *Cgroups, g *group, text string) error {
	n, err := kernelUint(text)
	if err == nil {
		g.cloneChildren = n != 0
	}
	return err
}

// showCPUs shows cpuset.cpus.
func showCPUs(_ *Cgroups, g *group) string { return g.cpus.String() }

// showMems shows cpuset.mems.
func showMems(_ *Cgroups, g *group) string { return g.mems.String() }

// showEffectiveCPUs shows cpuset.effective_cpus (version 1) or cpuset.cpus.effective (version 2).
func showEffectiveCPUs(f *Cgroups, g *group) string { return f.effectiveCPUs(g).String() }

// showEffectiveMems shows cpuset.effective_mems (version 1) or cpuset.mems.effective (version 2).
func showEffectiveMems(f *Cgroups, g *group) string { return f.effectiveMems(g).String() }

// effectiveMems returns the effective memory nodes of a cgroup. In version 2, a cgroup effectively has the nodes in its
// cpuset.mems that the parent also effectively has. If there are no such nodes, the cgroup has all effective nodes of
// the parent.
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

// setCPUs handles a write to cpuset.cpus.
func setCPUs(f *Cgroups, g *group, text string) error {
	if g == f.root {
		return syscall.EACCES
	}
	want, err := kernelList(text, highestID(f.possible)+1)
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
	if err := f.checkChange(g, trial); err != nil {
		return err
	}
	g.cpus = want
	f.cpusChanged(g)
	return nil
}

// setMems handles a write to cpuset.mems.
func setMems(f *Cgroups, g *group, text string) error {
	if g == f.root {
		return syscall.EACCES
	}
	want, err := kernelList(text, maxNodes)
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
	if err := f.checkChange(g, trial); err != nil {
		return err
	}
	g.mems = want
	return nil
}

// isSubsetOf reports whether o has all CPUs, memory nodes and exclusive flags that s has (the kernel's
// is_cpuset_subset).
func (s cpusetState) isSubsetOf(o cpusetState) bool {
	return o.cpus.Contains(s.cpus) && o.mems.Contains(s.mems) && (!s.cpuExclusive || o.cpuExclusive) && (!s.memExclusive || o.memExclusive)
}

// checkChange returns the error with which the kernel refuses a change of g's values to trial; nil if it accepts the
// change. It makes the checks of the kernel's validate_change in the same order.
func (f *Cgroups) checkChange(g *group, trial cpusetState) error {
	if f.version == cgroup.V1 {
		if err := f.checkChangeV1(g, trial); err != nil {
			return err
		}
	}
	// A set must not become empty while the cgroup, or a cgroup below it, has tasks.
	if (!g.cpus.Empty() && trial.cpus.Empty() || !g.mems.Empty() && trial.mems.Empty()) && f.isPopulated(g, "cpuset") {
		return syscall.ENOSPC
	}
	return f.checkMayBecomeEmpty(g, trial)
}

// checkChangeV1 makes the checks that apply only to version 1.
func (f *Cgroups) checkChangeV1(g *group, trial cpusetState) error {
	for _, c := range g.children {
		if !c.isSubsetOf(trial) {
			return syscall.EBUSY
		}
	}
	if g == f.root {
		return nil
	}
	above := g.parent.cpusetState
	if g.parent == f.root {
		above.cpuExclusive, above.memExclusive = true, true // the kernel's root cpuset has both flags
	}
	if !trial.isSubsetOf(above) {
		return syscall.EACCES
	}
	for _, o := range g.parent.children {
		if o != g && (trial.conflictsWith(o.cpusetState) || o.conflictsWith(trial)) {
			return syscall.EINVAL
		}
	}
	return nil
}

// conflictsWith reports whether o has CPUs or memory nodes that s has exclusively.
func (s cpusetState) conflictsWith(o cpusetState) bool {
	return s.cpuExclusive && !s.cpus.And(o.cpus).Empty() || s.memExclusive && !s.mems.And(o.mems).Empty()
}

// flagFile returns the model of a file of version 1 whose value is 0 or 1. at returns the field that has the value. The
// kernel uses only the lower 32 bits of the written number.
func flagFile(at func(*cpusetState) *bool) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string { return formatBool(*at(&g.cpusetState)) },
		set: func(f *Cgroups, g *group, text string) error {
			n, err := kernelUint(text)
			if err != nil {
				return err
			}
			trial := g.cpusetState
			*at(&trial) = uint32(n) != 0
			if err := f.checkChange(g, trial); err != nil {
				return err
			}
			g.cpusetState = trial
			return nil
		},
	}
}

// showRelax shows cpuset.sched_relax_domain_level.
func showRelax(_ *Cgroups, g *group) string { return formatInt(g.relaxDomainLevel) }

// setRelax sets sched_relax_domain_level. It accepts the numbers from -1 to the highest level of scheduling domains.
// This level depends on the machine; the simulation has 2.
func setRelax(_ *Cgroups, g *group, text string) error {
	n, err := kernelInt(text)
	switch {
	case err != nil:
		return err
	case n < -1 || n > 2:
		return syscall.EINVAL
	}
	g.relaxDomainLevel = n
	return nil
}

// SetPossible sets the possible CPUs: those that can come online. The online CPUs are always possible. Before the first
// call, only the online CPUs are possible.
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

// SetOnline takes a CPU offline or online. In version 1, an offline CPU is removed from all cpusets, and does not
// return when it comes online. If a cpuset then has no CPUs, its tasks move to an ancestor. Version 2 changes only the
// effective CPUs.
func (f *Cgroups) SetOnline(cpu int, online bool) error {
	var one cgroup.IDs
	one[cpu>>6] = 1 << (cpu & 63)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.possible.Contains(one) {
		return pathError("write", "cpu/online", syscall.ENOENT)
	}
	if !online {
		if err := f.checkOffline(one); err != nil {
			return pathError("write", "cpu/online", err)
		}
	}
	f.cpus = f.cpus.Minus(one)
	if online {
		f.cpus = f.cpus.Union(one)
	}
	f.root.cpus = f.cpus
	if f.version == cgroup.V1 && !online {
		f.removeOfflineCPUs(f.root)
	}
	return nil
}

// removeOfflineCPUs removes from all cpusets below g the CPUs that g does not have. It is for version 1 only.
func (f *Cgroups) removeOfflineCPUs(g *group) {
	for _, c := range g.children {
		had := !c.cpus.Empty()
		c.cpus = c.cpus.And(g.cpus)
		if had && c.cpus.Empty() {
			f.moveTasksToAncestor(c)
		}
		f.removeOfflineCPUs(c)
	}
}

// moveTasksToAncestor moves the tasks of a cpuset to the nearest ancestor that has CPUs and memory nodes.
func (f *Cgroups) moveTasksToAncestor(g *group) {
	to := g.parent
	for to != f.root && (to.cpus.Empty() || to.mems.Empty()) {
		to = to.parent
	}
	for _, p := range f.tasksByPID {
		if p.cgroupIn["cpuset"] == g {
			p.cgroupIn["cpuset"] = to
		}
	}
}

// highestID returns the highest id in a set; -1 for the empty set.
func highestID(s cgroup.IDs) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return i<<6 + bits.Len64(s[i]) - 1
		}
	}
	return -1
}
