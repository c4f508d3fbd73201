package kernel

import (
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file simulates the memory controller.

// memoryState has a cgroup's values in the memory controller. All limits are in bytes, rounded down to whole pages.
type memoryState struct {
	usage int64 // the bytes from SetUsage
	limit int64 // memory.max or memory.limit_in_bytes
	swap  int64 // memory.swap.max; in version 1 memory.memsw.limit_in_bytes, the limit of memory and swap together
	// These fields are memory.min, memory.low, memory.high, memory.swap.high and memory.soft_limit_in_bytes.
	protectMin, low, high, swapHigh, softLimit int64
	oomGroup, swappiness, oomKillDisable       int64              // memory.oom.group, memory.swappiness, memory.oom_control
	moveCharge                                 int64              // memory.move_charge_at_immigrate
	memoryOnNodes                              map[int]NodeMemory // the memory of the cgroup's tasks by memory node, from SetNodeMemory
}

// cgroupOverhead is the memory of the kernel's data structures for a cgroup, in bytes. The kernel charges it to the
// parent. It was measured with Linux 6.1 and 6.12 on four CPUs.
const cgroupOverhead = 16384

// usedMemory returns the memory that a cgroup and its descendants use.
func (f *Cgroups) usedMemory(g *group) int64 {
	n := g.usage
	for _, p := range f.tasksByPID {
		n += p.usage[g]
	}
	for _, c := range g.children {
		n += f.usedMemory(c)
		if f.version == cgroup.V1 || g.childControllers["memory"] {
			n += cgroupOverhead
		}
	}
	return n
}

// showUsage shows memory.usage_in_bytes (version 1) or memory.current (version 2).
func showUsage(f *Cgroups, g *group) string { return formatInt(f.usedMemory(g)) }

// byteFileV2 returns the model of a limit of version 2. at returns the field that has the limit.
func byteFileV2(at func(*group) *int64) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string {
			if n := *at(g); n != cgroup.UnlimitedBytes() {
				return formatInt(n)
			}
			return unlimitedText
		},
		set: func(f *Cgroups, g *group, text string) error {
			n, err := kernelBytes(text, unlimitedText)
			if err != nil {
				return err
			}
			*at(g) = n
			// If the limit is below the memory in use, the kernel kills tasks.
			f.killUntilBelowLimit(g)
			return nil
		},
	}
}

// killUntilBelowLimit kills tasks of a cgroup of version 2 until its memory in use is at most the limit. If no task is
// left, it reduces the memory that SetUsage charged.
func (f *Cgroups) killUntilBelowLimit(g *group) {
	for f.usedMemory(g) > g.limit {
		victim := f.largestTask(g)
		if victim == nil {
			break
		}
		f.killForMemory(victim, g)
	}
	if over := f.usedMemory(g) - g.limit; over > 0 {
		g.usage = max(g.usage-over, 0)
	}
}

// killForMemory ends a task because of g's memory limit. If memory.oom.group is 1 in a cgroup from the task's cgroup up
// to g, killForMemory ends all tasks in and below this cgroup. If there are several such cgroups, the highest one
// counts.
func (f *Cgroups) killForMemory(p *task, g *group) {
	var whole *group
	for at := p.cgroupIn[""]; at != nil; at = at.parent {
		if at.oomGroup == 1 {
			whole = at
		}
		if at == g {
			break
		}
	}
	delete(f.tasksByPID, p.pid)
	for pid, o := range f.tasksByPID {
		if whole != nil && o.cgroupIn[""].isInOrBelow(whole) {
			delete(f.tasksByPID, pid)
		}
	}
}

// isInOrBelow reports whether g is the cgroup top, or is below top. For a nil g, it returns false.
func (g *group) isInOrBelow(top *group) bool {
	for ; g != nil; g = g.parent {
		if g == top {
			return true
		}
	}
	return false
}

// largestTask returns the task in g or below it that uses the most memory.
func (f *Cgroups) largestTask(g *group) *task {
	var found *task
	var most int64
	for _, p := range f.tasksByPID {
		if !p.cgroupIn[""].isInOrBelow(g) {
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

// byteFileV1 returns the model of a limit of version 1. at returns the field that has the limit. check returns the
// error with which the kernel refuses a value.
func byteFileV1(at func(*group) *int64, check func(*Cgroups, *group, int64) error) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string { return formatInt(*at(g)) },
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

// checkLimit checks a value of memory.limit_in_bytes.
func checkLimit(f *Cgroups, g *group, n int64) error {
	switch {
	case n > g.swap:
		return syscall.EINVAL
	case n < f.usedMemory(g):
		return syscall.EBUSY
	}
	return nil
}

// checkSwap checks a value of memory.memsw.limit_in_bytes.
func checkSwap(f *Cgroups, g *group, n int64) error {
	switch {
	case n < g.limit:
		return syscall.EINVAL
	case n < f.usedMemory(g):
		return syscall.EBUSY
	}
	return nil
}

// acceptAnyLimit is a check for byteFileV1 that refuses no value.
func acceptAnyLimit(*Cgroups, *group, int64) error { return nil }

// setOOMGroup handles a write to memory.oom.group.
func setOOMGroup(_ *Cgroups, g *group, text string) error {
	n, err := kernelInt32(trimBlanks(text))
	if err != nil {
		return err
	}
	if n != 0 && n != 1 {
		return syscall.EINVAL
	}
	g.oomGroup = n
	return nil
}

// numberFile returns the model of a file of version 1 that accepts the numbers from least to most. at returns the field
// that has the number.
func numberFile(at func(*group) *int64, least, most uint64) fileModel {
	return fileModel{
		show: func(_ *Cgroups, g *group) string { return formatInt(*at(g)) },
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

// showOOM shows memory.oom_control of version 1.
func showOOM(_ *Cgroups, g *group) string {
	return "oom_kill_disable " + formatInt(g.oomKillDisable) + "\nunder_oom 0\noom_kill 0"
}
