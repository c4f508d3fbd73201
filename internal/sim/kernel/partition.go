package kernel

import (
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file simulates cpuset partitions of version 2. It computes the effective CPUs at each read from the current
// partitions. The kernel instead updates the effective CPUs at each change, and has bugs that the simulation does not
// have. The test in test/kernel/script lists the differences.

// partition has the values of cpuset.cpus.partition and cpuset.cpus.exclusive.
type partition struct {
	kind          string     // "" (member), "root" or "isolated"
	valid         bool       // the kernel gives the partition its CPUs
	invalidReason string     // the reason why the partition is not valid; "" if the kernel gives none
	exclusive     cgroup.IDs // cpuset.cpus.exclusive
}

// The kernel's reasons why a partition is not valid.
const (
	whyEmptyOld  = "cpuset.cpus is empty"
	whyEmpty     = "cpuset.cpus and cpuset.cpus.exclusive are empty"
	whyShared    = "Cpu list in cpuset.cpus not exclusive"
	whyParent    = "Parent is not a partition root"
	whyNoneLeft  = "Parent unable to distribute cpu downstream"
	whyExclusive = "Invalid cpu list in cpuset.cpus.exclusive"
)

// partitionCPUs returns the CPUs that the partition g has while it is valid.
func (g *group) partitionCPUs() cgroup.IDs {
	if !g.partition.exclusive.Empty() {
		return g.partition.exclusive
	}
	return g.cpus
}

// isPartitionRoot reports whether g is the root cgroup or a valid partition, so that its children can be partitions.
func (f *Cgroups) isPartitionRoot(g *group) bool { return g == f.root || g.partition.valid }

// isRemote reports whether g is a remote partition: a valid partition whose parent is neither the root cgroup nor a
// valid partition.
func (f *Cgroups) isRemote(g *group) bool { return g.partition.valid && !f.isPartitionRoot(g.parent) }

// effectiveCPUs returns the effective CPUs of a cgroup. In version 2, a cgroup effectively has the CPUs in its
// cpuset.cpus that the parent also effectively has. If there are no such CPUs, the cgroup has all effective CPUs of the
// parent. A partition root has the CPUs of its partition, without the CPUs of the partitions below it.
func (f *Cgroups) effectiveCPUs(g *group) cgroup.IDs {
	if f.version == cgroup.V1 {
		return g.cpus
	}
	if f.isPartitionRoot(g) {
		have := f.cpus
		if g != f.root {
			have = have.And(g.partitionCPUs())
		}
		for _, c := range g.children {
			if c.partition.valid {
				have = have.Minus(c.partitionCPUs())
			}
		}
		if g == f.root && f.hasPartitions {
			have = have.Minus(f.remoteCPUs(g))
		}
		return have
	}
	above := f.effectiveCPUs(g.parent)
	if own := g.cpus.And(above); !own.Empty() {
		return own
	}
	return above
}

// remoteCPUs returns the CPUs of remote partitions below g.
func (f *Cgroups) remoteCPUs(g *group) cgroup.IDs {
	var out cgroup.IDs
	for _, c := range g.children {
		if f.isRemote(c) {
			out = out.Union(c.partitionCPUs())
		}
		out = out.Union(f.remoteCPUs(c))
	}
	return out
}

// showPartition shows cpuset.cpus.partition.
func showPartition(_ *Cgroups, g *group) string {
	p := g.partition
	switch {
	case p.kind == "":
		return "member"
	case p.valid:
		return p.kind
	case p.invalidReason == "":
		return p.kind + " invalid"
	}
	return p.kind + " invalid (" + p.invalidReason + ")"
}

// setPartition handles a write to cpuset.cpus.partition.
func setPartition(f *Cgroups, g *group, text string) error {
	kind := trimBlanks(text)
	f.hasPartitions = f.hasPartitions || kind != "member"
	switch {
	case kind == "member":
		f.endPartition(g)
		g.partition.kind = ""
	case kind != "root" && kind != "isolated":
		return syscall.EINVAL
	case g.partition.valid:
		g.partition.kind = kind
	case g.partition.kind != "" && !f.kernelSince(7):
		g.partition.kind = kind // an invalid partition stays invalid until its CPUs change
	default:
		g.partition.kind = kind
		f.updateValidity(g)
	}
	return nil
}

// updateValidity checks whether a partition can be valid, and stores the result.
func (f *Cgroups) updateValidity(g *group) {
	g.partition.valid = false // so that the cgroup's own CPUs count as free
	g.partition.invalidReason = f.whyInvalid(g)
	g.partition.valid = g.partition.invalidReason == ""
}

// whyInvalid returns the reason why g cannot be a valid partition, or "" if it can.
func (f *Cgroups) whyInvalid(g *group) string {
	want := g.partitionCPUs()
	switch {
	case want.Empty() && f.kernelSince(7):
		return whyEmpty
	case want.Empty():
		return whyEmptyOld
	}
	for _, o := range g.parent.children {
		if o != g && !o.partitionCPUs().And(want).Empty() {
			return whyShared
		}
	}
	switch {
	case f.isPartitionRoot(g.parent):
		if want.Contains(f.effectiveCPUs(g.parent)) && f.needsRemainingCPUs(g.parent, g) {
			return whyNoneLeft
		}
	case !f.kernelSince(7):
		return whyParent
	case g.partition.exclusive.Empty(), !f.effectiveExclusiveCPUs(g.parent).Contains(want), want.Contains(f.effectiveCPUs(f.root)):
		return whyExclusive
	}
	return ""
}

// needsRemainingCPUs reports whether the partition root g must keep CPUs for tasks in g itself, or for tasks below g in
// cgroups that are not partitions. Tasks in and below the child exceptChild do not count.
func (f *Cgroups) needsRemainingCPUs(g, exceptChild *group) bool {
	if g == f.root || f.hasTasks(g, "") {
		return true
	}
	for _, c := range g.children {
		if c != exceptChild && !c.partition.valid && f.isPopulated(c, "") {
			return true
		}
	}
	return false
}

// endPartition makes the partition g invalid. Child partitions that got their CPUs from g become invalid, too.
func (f *Cgroups) endPartition(g *group) {
	if !g.partition.valid {
		g.partition.invalidReason = ""
		return
	}
	g.partition.valid, g.partition.invalidReason = false, ""
	for _, c := range g.children {
		if c.partition.valid && c.partition.exclusive.Empty() {
			c.partition.valid, c.partition.invalidReason = false, whyParent
		}
	}
}

// cpusChanged updates the partitions that a new cpuset.cpus of g affects: g itself, and the siblings of g that are
// valid partitions with one of the new CPUs.
func (f *Cgroups) cpusChanged(g *group) {
	if f.version == cgroup.V1 {
		return
	}
	for _, o := range g.parent.children {
		if o != g && o.partition.valid && !o.partitionCPUs().And(g.cpus).Empty() {
			f.endPartition(o)
			if !f.kernelSince(7) {
				o.partition.invalidReason = whyShared // later kernels give no reason
			}
		}
	}
	switch {
	case g.partition.valid && g.partitionCPUs().Empty():
		f.endPartition(g)
		g.partition.invalidReason = whyExclusive
	case g.partition.kind != "" && !g.partition.valid && !f.kernelSince(7):
		f.updateValidity(g)
	}
}

// effectiveExclusiveCPUs returns the value of cpuset.cpus.exclusive.effective: the CPUs that the cgroup g and the
// partitions below g can use exclusively.
func (f *Cgroups) effectiveExclusiveCPUs(g *group) cgroup.IDs {
	switch {
	case g == f.root:
		return f.possible
	case g.partition.valid:
		return g.partitionCPUs()
	}
	return g.partition.exclusive.And(f.effectiveExclusiveCPUs(g.parent))
}

// showExclusive shows cpuset.cpus.exclusive.
func showExclusive(_ *Cgroups, g *group) string { return g.partition.exclusive.String() }

// showEffectiveExclusive shows cpuset.cpus.exclusive.effective.
func showEffectiveExclusive(f *Cgroups, g *group) string { return f.effectiveExclusiveCPUs(g).String() }

// setExclusive handles a write to cpuset.cpus.exclusive.
func setExclusive(f *Cgroups, g *group, text string) error {
	want, err := kernelList(text, highestID(f.possible)+1)
	switch {
	case err != nil:
		return err
	case !f.possible.Contains(want):
		return syscall.EINVAL
	}
	for _, o := range g.parent.children {
		if o == g || want.Empty() {
			continue
		}
		if !want.And(o.partition.exclusive).Empty() || !o.cpus.Empty() && want.Contains(o.cpus) || o.partition.valid && !want.And(o.partitionCPUs()).Empty() {
			return syscall.EINVAL
		}
	}
	g.partition.exclusive = want
	f.endPartitionsBelow(g)
	return nil
}

// endPartitionsBelow checks the remote partitions below g. If the parent of a partition can no longer use the
// partition's CPUs exclusively, endPartitionsBelow makes the partition invalid.
func (f *Cgroups) endPartitionsBelow(g *group) {
	for _, c := range g.children {
		if c.partition.kind != "" && !f.isPartitionRoot(c.parent) && !f.effectiveExclusiveCPUs(g).Contains(c.partitionCPUs()) {
			f.endPartition(c)
			c.partition.invalidReason = whyParent
		}
		f.endPartitionsBelow(c)
	}
}

// showIsolated shows cpuset.cpus.isolated.
func showIsolated(f *Cgroups, _ *group) string { return f.isolatedCPUs(f.root).String() }

// isolatedCPUs returns the CPUs of all valid isolated partitions below g.
func (f *Cgroups) isolatedCPUs(g *group) cgroup.IDs {
	var out cgroup.IDs
	for _, c := range g.children {
		if c.partition.valid && c.partition.kind == "isolated" {
			out = out.Union(c.partitionCPUs())
		}
		out = out.Union(f.isolatedCPUs(c))
	}
	return out
}

// checkMayBecomeEmpty returns an error if a change to trial removes all CPUs of a partition of the kind root. Since
// Linux 6.12, the deadline scheduler needs a CPU in each such partition.
func (f *Cgroups) checkMayBecomeEmpty(g *group, trial cpusetState) error {
	if f.kernelSince(12) && g.partition.valid && g.partition.kind == "root" && g.partition.exclusive.Empty() && trial.cpus.Empty() {
		return syscall.EBUSY
	}
	return nil
}

// checkOffline returns an error if a CPU cannot go offline. Since Linux 6.12, the last CPU of a partition cannot go
// offline.
func (f *Cgroups) checkOffline(cpu cgroup.IDs) error {
	if f.version == cgroup.V2 && f.kernelSince(12) && f.isLastCPU(f.root, cpu) {
		return syscall.EBUSY
	}
	return nil
}

// isLastCPU reports whether cpu is the only effective CPU of a partition root that is g or is below g.
func (f *Cgroups) isLastCPU(g *group, cpu cgroup.IDs) bool {
	if f.isPartitionRoot(g) && f.effectiveCPUs(g) == cpu {
		return true
	}
	for _, c := range g.children {
		if f.isLastCPU(c, cpu) {
			return true
		}
	}
	return false
}
