package kernel

import (
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file models the memory controller.

type memoryState struct {
	usage                     int64
	limit, swap               int64 // bytes in whole pages; memory and swap in version 1
	protectMin, low, high     int64
	swapHigh, soft            int64
	oomGroup, swappiness, oom int64
	moveCharge                int64
}

// ownBytes is the memory of the kernel's own objects for a cgroup, which it charges to the parent (16 KiB with 6.1 and
// 6.12 on four CPUs).
const ownBytes = 16384

// inUse returns the memory of a cgroup and its descendants.
func (f *Cgroups) inUse(g *group) int64 {
	n := g.usage
	for _, p := range f.procs {
		n += p.usage[g]
	}
	for _, c := range g.children {
		n += f.inUse(c)
		if f.version == cgroup.V1 || g.subtree["memory"] {
			n += ownBytes
		}
	}
	return n
}

func showUsage(f *Cgroups, g *group) string { return number(f.inUse(g)) }

func bytesV2(at func(*group) *int64) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string {
			if n := *at(g); n != cgroup.UnlimitedBytes() {
				return number(n)
			}
			return unlimited
		},
		set: func(f *Cgroups, g *group, text string) error {
			n, err := kernelBytes(text, unlimited)
			if err != nil {
				return err
			}
			*at(g) = n
			// For a limit below the memory in use, the kernel kills tasks until it fits.
			f.shrink(g)
			return nil
		},
	}
}

// shrink kills tasks of a cgroup of version 2 until its memory is within the limit.
func (f *Cgroups) shrink(g *group) {
	for f.inUse(g) > g.limit {
		victim := f.largest(g)
		if victim == nil {
			break
		}
		f.kill(victim, g)
	}
	if over := f.inUse(g) - g.limit; over > 0 {
		g.usage = max(g.usage-over, 0)
	}
}

// kill OOM-kills a task because of g's limit. If g or a cgroup below it, around the task, sets memory.oom.group, all
// tasks of the highest such cgroup end.
func (f *Cgroups) kill(p *task, g *group) {
	var whole *group
	for at := p.in[""]; at != nil; at = at.parent {
		if at.oomGroup == 1 {
			whole = at
		}
		if at == g {
			break
		}
	}
	delete(f.procs, p.pid)
	for pid, o := range f.procs {
		if whole != nil && o.in[""].below(whole) {
			delete(f.procs, pid)
		}
	}
}

func (g *group) below(above *group) bool {
	for ; g != nil; g = g.parent {
		if g == above {
			return true
		}
	}
	return false
}

// largest returns the task in g or below that uses the most memory.
func (f *Cgroups) largest(g *group) *task {
	var found *task
	var most int64
	for _, p := range f.procs {
		if !p.in[""].below(g) {
			continue
		}
		var n int64
		for _, b := range p.usage {
			n += b
		}
		if found == nil || n > most || n == most && p.pid > found.pid {
			found, most = p, n
		}
	}
	return found
}

// bytesV1 is a limit of version 1; check returns why the kernel refuses a value.
func bytesV1(at func(*group) *int64, check func(*Cgroups, *group, int64) error) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string { return number(*at(g)) },
		set: func(f *Cgroups, g *group, text string) error {
			n, err := kernelBytes(text, "-1")
			if err == nil && g == f.root {
				err = syscall.EINVAL
			}
			if err == nil {
				err = check(f, g, n)
			}
			if err == nil {
				*at(g) = n
			}
			return err
		},
	}
}

func checkLimit(f *Cgroups, g *group, n int64) error {
	switch {
	case n > g.swap:
		return syscall.EINVAL
	case n < f.inUse(g):
		return syscall.EBUSY
	}
	return nil
}

func checkSwap(f *Cgroups, g *group, n int64) error {
	switch {
	case n < g.limit:
		return syscall.EINVAL
	case n < f.inUse(g):
		return syscall.EBUSY
	}
	return nil
}

func checkNothing(*Cgroups, *group, int64) error { return nil }

func setOOMGroup(_ *Cgroups, g *group, text string) error {
	n, err := kernelInt32(strip(text))
	if err != nil {
		return err
	}
	if n != 0 && n != 1 {
		return syscall.EINVAL
	}
	g.oomGroup = n
	return nil
}

// small is a file of version 1 that accepts numbers from least to most.
func small(at func(*group) *int64, least, most uint64) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string { return number(*at(g)) },
		set: func(_ *Cgroups, g *group, text string) error {
			n, err := kernelUint(text)
			switch {
			case err != nil:
				return err
			case n < least || n > most:
				return syscall.EINVAL
			}
			*at(g) = int64(n)
			return nil
		},
	}
}

func showOOM(_ *Cgroups, g *group) string {
	return "oom_kill_disable " + number(g.oom) + "\nunder_oom 0\noom_kill 0"
}
