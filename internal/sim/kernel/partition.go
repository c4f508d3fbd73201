package kernel

import (
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file models cpuset partitions of version 2. It computes effective sets from the owners of CPUs. The kernel
// updates them step by step instead, and has errors that this model does not have. test/kernel/script reports those
// differences.

// partition has the values of cpuset.cpus.partition and cpuset.cpus.exclusive.
type partition struct {
	kind      string // "" for member, "root", "isolated"
	valid     bool
	why       string // why it is not valid, "" if the kernel gives no reason
	exclusive cgroup.IDs
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

// owns returns the exclusive CPUs of a partition, or the ones that it would have if it were valid.
func (g *group) owns() cgroup.IDs {
	if !g.part.exclusive.Empty() {
		return g.part.exclusive
	}
	return g.cpus
}

// givesCPUs reports whether g gives CPUs to partitions directly below it.
func (f *Cgroups) givesCPUs(g *group) bool { return g == f.root || g.part.valid }

// remote reports whether g is a remote partition, which takes CPUs from the root although its parent is no partition.
func (f *Cgroups) remote(g *group) bool { return g.part.valid && !f.givesCPUs(g.parent) }

// effectiveCPUs returns the effective CPUs of a cgroup: in version 2 those of its set that the parent has, or else all
// of the parent's, without the CPUs of partitions.
func (f *Cgroups) effectiveCPUs(g *group) cgroup.IDs {
	if f.version == cgroup.V1 {
		return g.cpus
	}
	if f.givesCPUs(g) {
		have := f.cpus
		if g != f.root {
			have = have.And(g.owns())
		}
		for _, c := range g.children {
			if c.part.valid {
				have = have.Minus(c.owns())
			}
		}
		if g == f.root && f.parted {
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
		if f.remote(c) {
			out = out.Union(c.owns())
		}
		out = out.Union(f.remoteCPUs(c))
	}
	return out
}

func showPartition(_ *Cgroups, g *group) string {
	p := g.part
	switch {
	case p.kind == "":
		return "member"
	case p.valid:
		return p.kind
	case p.why == "":
		return p.kind + " invalid"
	}
	return p.kind + " invalid (" + p.why + ")"
}

func setPartition(f *Cgroups, g *group, text string) error {
	kind := strip(text)
	f.parted = f.parted || kind != "member"
	switch {
	case kind == "member":
		f.endPartition(g)
		g.part.kind = ""
	case kind != "root" && kind != "isolated":
		return syscall.EINVAL
	case g.part.valid:
		g.part.kind = kind
	case g.part.kind != "" && !f.since(7):
		g.part.kind = kind // an invalid partition stays invalid until its CPUs change
	default:
		g.part.kind = kind
		f.judge(g)
	}
	return nil
}

// judge sets whether a partition is valid.
func (f *Cgroups) judge(g *group) {
	g.part.valid = false // its own CPUs do not conflict with itself
	g.part.why = f.objection(g)
	g.part.valid = g.part.why == ""
}

func (f *Cgroups) objection(g *group) string {
	want := g.owns()
	switch {
	case want.Empty() && f.since(7):
		return whyEmpty
	case want.Empty():
		return whyEmptyOld
	}
	for _, o := range g.parent.children {
		if o != g && !o.owns().And(want).Empty() {
			return whyShared
		}
	}
	switch {
	case f.givesCPUs(g.parent):
		if want.Contains(f.effectiveCPUs(g.parent)) && f.needsCPUs(g.parent, g) {
			return whyNoneLeft
		}
	case !f.since(7):
		return whyParent
	case g.part.exclusive.Empty(), !f.exclusiveCPUs(g.parent).Contains(want), want.Contains(f.effectiveCPUs(f.root)):
		return whyExclusive
	}
	return ""
}

// needsCPUs reports whether tasks use the remaining CPUs of a partition. It ignores tasks in or below but.
func (f *Cgroups) needsCPUs(g, but *group) bool {
	if g == f.root || f.inhabited(g, "") {
		return true
	}
	for _, c := range g.children {
		if c != but && !c.part.valid && f.populated(c, "") {
			return true
		}
	}
	return false
}

// endPartition returns the CPUs of a partition; partitions below it lose theirs.
func (f *Cgroups) endPartition(g *group) {
	if !g.part.valid {
		g.part.why = ""
		return
	}
	g.part.valid, g.part.why = false, ""
	for _, c := range g.children {
		if c.part.valid && c.part.exclusive.Empty() {
			c.part.valid, c.part.why = false, whyParent
		}
	}
}

// cpusChanged checks the partitions again that a new set of CPUs affects: the group's own partition, and those of
// siblings that had these CPUs exclusively.
func (f *Cgroups) cpusChanged(g *group) {
	if f.version == cgroup.V1 {
		return
	}
	for _, o := range g.parent.children {
		if o != g && o.part.valid && !o.owns().And(g.cpus).Empty() {
			f.endPartition(o)
			if !f.since(7) {
				o.part.why = whyShared // later kernels give no reason
			}
		}
	}
	switch {
	case g.part.valid && g.owns().Empty():
		f.endPartition(g)
		g.part.why = whyExclusive
	case g.part.kind != "" && !g.part.valid && !f.since(7):
		f.judge(g)
	}
}

// exclusiveCPUs returns cpuset.cpus.exclusive.effective: the CPUs that a partition has, or may give to partitions
// below.
func (f *Cgroups) exclusiveCPUs(g *group) cgroup.IDs {
	switch {
	case g == f.root:
		return f.possible
	case g.part.valid:
		return g.owns()
	}
	return g.part.exclusive.And(f.exclusiveCPUs(g.parent))
}

func showExclusive(_ *Cgroups, g *group) string          { return g.part.exclusive.String() }
func showEffectiveExclusive(f *Cgroups, g *group) string { return f.exclusiveCPUs(g).String() }

func setExclusive(f *Cgroups, g *group, text string) error {
	want, err := kernelList(text, highest(f.possible)+1)
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
		if !want.And(o.part.exclusive).Empty() || !o.cpus.Empty() && want.Contains(o.cpus) || o.part.valid && !want.And(o.owns()).Empty() {
			return syscall.EINVAL
		}
	}
	g.part.exclusive = want
	f.rejudgeBelow(g)
	return nil
}

// rejudgeBelow ends the partitions below g that got their CPUs through it.
func (f *Cgroups) rejudgeBelow(g *group) {
	for _, c := range g.children {
		if c.part.kind != "" && !f.givesCPUs(c.parent) && !f.exclusiveCPUs(g).Contains(c.owns()) {
			f.endPartition(c)
			c.part.why = whyParent
		}
		f.rejudgeBelow(c)
	}
}

func showIsolated(f *Cgroups, _ *group) string { return f.isolated(f.root).String() }

func (f *Cgroups) isolated(g *group) cgroup.IDs {
	var out cgroup.IDs
	for _, c := range g.children {
		if c.part.valid && c.part.kind == "isolated" {
			out = out.Union(c.owns())
		}
		out = out.Union(f.isolated(c))
	}
	return out
}

// mayEmpty returns why a partition cannot lose all its CPUs: later kernels need some for the deadline scheduler,
// unless the partition is isolated.
func (f *Cgroups) mayEmpty(g *group, trial cpusetState) error {
	if f.since(12) && g.part.valid && g.part.kind == "root" && g.part.exclusive.Empty() && trial.cpus.Empty() {
		return syscall.EBUSY
	}
	return nil
}

// mayGoOffline returns why a CPU cannot go offline: it is the last one of such a partition.
func (f *Cgroups) mayGoOffline(cpu cgroup.IDs) error {
	if f.version == cgroup.V2 && f.since(12) && f.last(f.root, cpu) {
		return syscall.EBUSY
	}
	return nil
}

func (f *Cgroups) last(g *group, cpu cgroup.IDs) bool {
	if f.givesCPUs(g) && f.effectiveCPUs(g) == cpu {
		return true
	}
	for _, c := range g.children {
		if f.last(c, cpu) {
			return true
		}
	}
	return false
}
