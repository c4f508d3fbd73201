package kernel

import (
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file models cpuset partitions, of version 2. It derives
// what sets amount to from who owns what, where the kernel keeps it step by step,
// and so does not go wrong where the kernel does; test/kernel/script reports those
// places.

// partition is what cpuset.cpus.partition and cpuset.cpus.exclusive say.
type partition struct {
	kind      string // "" for member, "root", "isolated"
	valid     bool
	why       string // not valid, "" where the kernel gives no reason
	exclusive cgroup.IDs
}

// Why a partition is not valid, in the kernel's words.
const (
	whyEmptyOld  = "cpuset.cpus is empty"
	whyEmpty     = "cpuset.cpus and cpuset.cpus.exclusive are empty"
	whyShared    = "Cpu list in cpuset.cpus not exclusive"
	whyParent    = "Parent is not a partition root"
	whyNoneLeft  = "Parent unable to distribute cpu downstream"
	whyExclusive = "Invalid cpu list in cpuset.cpus.exclusive"
)

// owns returns the CPUs a partition has, or would have, for itself.
func (g *group) owns() cgroup.IDs {
	if !g.part.exclusive.Empty() {
		return g.part.exclusive
	}
	return g.cpus
}

// seated reports whether g gives CPUs to partitions directly below it.
func (f *Cgroups) seated(g *group) bool { return g == f.root || g.part.valid }

// remote partitions take from the root, past parents that are none.
func (f *Cgroups) remote(g *group) bool { return g.part.valid && !f.seated(g.parent) }

// effectiveCPUs is what a set amounts to: in version 2 what of it the parent
// has, or else all the parent has, without the CPUs of partitions.
func (f *Cgroups) effectiveCPUs(g *group) cgroup.IDs {
	if f.version == cgroup.V1 {
		return g.cpus
	}
	if f.seated(g) {
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

// remoteCPUs are those of remote partitions below g.
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
		g.part.kind = kind // what is not valid stays so until its CPUs change
	default:
		g.part.kind = kind
		f.judge(g)
	}
	return nil
}

// judge finds out whether a partition is valid.
func (f *Cgroups) judge(g *group) {
	g.part.valid = false // not to be in its own way
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
	case f.seated(g.parent):
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

// needsCPUs reports whether tasks use the CPUs that a partition has left, other
// than those in or below one of its children.
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

// endPartition gives the CPUs of a partition back; those below it lose theirs.
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

// cpusChanged settles the partitions that a new set of CPUs touches: its own, and
// those next to it that had these CPUs for themselves.
func (f *Cgroups) cpusChanged(g *group) {
	if f.version == cgroup.V1 {
		return
	}
	for _, o := range g.parent.children {
		if o != g && o.part.valid && !o.owns().And(g.cpus).Empty() {
			f.endPartition(o)
			if !f.since(7) {
				o.part.why = whyShared // later kernels do not say why
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

// exclusiveCPUs is cpuset.cpus.exclusive.effective: what a partition has, or may
// give to one below it.
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
		if c.part.kind != "" && !f.seated(c.parent) && !f.exclusiveCPUs(g).Contains(c.owns()) {
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

// mayEmpty says why the CPUs of a partition cannot all be taken away: later
// kernels need some for the bandwidth of deadlines, unless it is isolated.
func (f *Cgroups) mayEmpty(g *group, trial cpusetState) error {
	if f.since(12) && g.part.valid && g.part.kind == "root" && g.part.exclusive.Empty() && trial.cpus.Empty() {
		return syscall.EBUSY
	}
	return nil
}

// mayGoOffline says why a CPU cannot go: it is the last of a partition, likewise.
func (f *Cgroups) mayGoOffline(cpu cgroup.IDs) error {
	if f.version == cgroup.V2 && f.since(12) && f.last(f.root, cpu) {
		return syscall.EBUSY
	}
	return nil
}

func (f *Cgroups) last(g *group, cpu cgroup.IDs) bool {
	if f.seated(g) && f.effectiveCPUs(g) == cpu {
		return true
	}
	for _, c := range g.children {
		if f.last(c, cpu) {
			return true
		}
	}
	return false
}
