package cgroup

import (
	"strconv"
	"strings"
	"syscall"
)

// This file is the fake's model of the cpu and cpuset controllers.

// showShares shows shares or weight; of an idle group, what idle groups have.
func (g *fakeGroup) showShares(idle int64) string {
	if g.idle {
		return number(idle)
	}
	return number(g.shares)
}

func setShares(f *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, false)
	switch {
	case err != nil:
		return err
	case g == f.root || g.idle:
		return syscall.EINVAL
	}
	g.shares = min(max(n, 2), 262144)
	return nil
}

func setWeight(_ *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, false)
	switch {
	case err != nil:
		return err
	case n < 1 || n > 10000:
		return syscall.ERANGE
	case g.idle:
		return syscall.EINVAL
	}
	g.shares = n
	return nil
}

func showIdle(_ *Fake, g *fakeGroup) string { return bit(g.idle) }

// setIdle forgets the weight when a group ceases to be idle, as the kernel does.
func setIdle(f *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, true)
	switch {
	case err != nil:
		return err
	case g == f.root || (n != 0 && n != 1):
		return syscall.EINVAL
	}
	if idle := n == 1; idle != g.idle {
		g.idle, g.shares = idle, f.defaultShares()
	}
	return nil
}

func showBVT(_ *Fake, g *fakeGroup) string { return number(g.bvt) }

// setBVT follows the documents of the kernels that have it.
func setBVT(_ *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, true)
	if err != nil {
		return err
	}
	if n < -1 || n > 2 {
		return syscall.EINVAL
	}
	g.bvt = n
	return nil
}

func setQuota(f *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, true)
	if err != nil {
		return err
	}
	return f.setBandwidth(g, max(n, -1), g.period, g.burst)
}

func setPeriod(f *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, false)
	if err != nil {
		return err
	}
	return f.setBandwidth(g, g.quota, n, g.burst)
}

func setBurst(f *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, false)
	if err != nil {
		return err
	}
	return f.setBandwidth(g, g.quota, g.period, n)
}

func showMax(_ *Fake, g *fakeGroup) string {
	if g.quota < 0 {
		return unlimited + " " + number(g.period)
	}
	return number(g.quota) + " " + number(g.period)
}

func setMax(f *Fake, g *fakeGroup, text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return syscall.EINVAL
	}
	quota, period := int64(-1), g.period
	if fields[0] != unlimited {
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || n < 0 {
			return syscall.EINVAL
		}
		quota = n
	}
	if len(fields) > 1 {
		// What sscanf cannot read leaves the period alone.
		if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil && n >= 0 {
			period = n
		}
	}
	return f.setBandwidth(g, quota, period, g.burst)
}

// setBandwidth makes the checks of tg_set_cfs_bandwidth.
func (f *Fake) setBandwidth(g *fakeGroup, quota, period, burst int64) error {
	limited := quota >= 0
	switch {
	case g == f.root,
		limited && (quota < 1000 || quota > maxBandwidth),
		period < 1000 || period > 1000000,
		burst < 0 || burst > maxBandwidth,
		limited && (burst > quota || burst+quota > maxBandwidth):
		return syscall.EINVAL
	}
	oldQuota, oldPeriod, oldBurst := g.quota, g.period, g.burst
	g.quota, g.period, g.burst = quota, period, burst
	// Version 2 gives a child the least of its own and its parents' ratios.
	if f.version == V1 && !f.root.ratiosFit(-1) {
		g.quota, g.period, g.burst = oldQuota, oldPeriod, oldBurst
		return syscall.EINVAL
	}
	return nil
}

// ratiosFit reports whether no limited child has a larger ratio than the nearest
// limit above it, -1 for none.
func (g *fakeGroup) ratiosFit(above int64) bool {
	ratio := above
	if g.quota >= 0 {
		ratio = g.quota << 20 / g.period // to_ratio, as coarse as the kernel's
		if above >= 0 && ratio > above {
			return false
		}
	}
	for _, c := range g.children {
		if !c.ratiosFit(ratio) {
			return false
		}
	}
	return true
}

func setClone(_ *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(text, false)
	if err == nil {
		g.clone = n != 0
	}
	return err
}

func cpusOf(g *fakeGroup) *IDs { return &g.cpus }
func memsOf(g *fakeGroup) *IDs { return &g.mems }

func showEffectiveCPUs(f *Fake, g *fakeGroup) string { return f.effective(g, cpusOf).String() }
func showEffectiveMems(f *Fake, g *fakeGroup) string { return f.effective(g, memsOf).String() }

// effective is what a set amounts to: in version 2 what of it the parent has, or
// else all the parent has.
func (f *Fake) effective(g *fakeGroup, of func(*fakeGroup) *IDs) IDs {
	if g == f.root || f.version == V1 {
		return *of(g)
	}
	above := f.effective(g.parent, of)
	if own := of(g).And(above); !own.Empty() {
		return own
	}
	return above
}

func setCPUs(f *Fake, g *fakeGroup, text string) error {
	allowed := f.cpus
	if f.version == V2 {
		allowed = f.possible
	}
	return f.setList(g, cpusOf, text, allowed, f.possible.max())
}

func setMems(f *Fake, g *fakeGroup, text string) error {
	const mostNodes = 1023 // CONFIG_NODES_SHIFT=10
	return f.setList(g, memsOf, text, f.mems, mostNodes)
}

// setList makes the checks of update_cpumask and update_nodemask in their order.
func (f *Fake) setList(g *fakeGroup, of func(*fakeGroup) *IDs, text string, allowed IDs, most int) error {
	if g == f.root {
		return syscall.EACCES
	}
	want, err := kernelList(text)
	switch {
	case err != nil:
		return err
	case want.max() > most:
		return syscall.ERANGE
	case !allowed.Contains(want):
		return syscall.EINVAL
	case want == *of(g):
		return nil
	}
	if f.version == V1 {
		for _, c := range g.children {
			if !want.Contains(*of(c)) {
				return syscall.EBUSY
			}
		}
		if !of(g.parent).Contains(want) {
			return syscall.EACCES
		}
		if want.Empty() && g.populated() {
			return syscall.ENOSPC
		}
	}
	*of(g) = want
	return nil
}

// populated reports whether tasks are in g or below.
func (g *fakeGroup) populated() bool {
	if g.tasks > 0 {
		return true
	}
	for _, c := range g.children {
		if c.populated() {
			return true
		}
	}
	return false
}

// kernelList reads a list as bitmap_parselist does: up to the first newline,
// blanks and empty parts skipped. An id beyond all sets is ERANGE.
func kernelList(text string) (IDs, error) {
	line, _, _ := strings.Cut(text, "\n")
	var s IDs
	for part := range strings.SplitSeq(line, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		ids, err := ParseIDs(part)
		if err != nil && strings.Trim(part, "0123456789") == "" {
			return IDs{}, syscall.ERANGE
		}
		if err != nil {
			return IDs{}, syscall.EINVAL
		}
		s = s.Union(ids)
	}
	return s, nil
}
