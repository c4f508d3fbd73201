package kernel

import (
	"math"
	"strconv"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file simulates the cpu controller.

// cpuState has a cgroup's values in the cpu controller.
type cpuState struct {
	shares int64 // cpu.shares in version 1, cpu.weight in version 2
	idle   bool  // cpu.idle
	bvt    int64 // cpu.bvt_warp_ns
	bandwidth
}

// bandwidth has the bandwidth limits in ns, like the kernel.
type bandwidth struct{ quota, period, burst uint64 }

const (
	microsecond = 1000           // in ns
	noQuota     = math.MaxUint64 // the quota of a cgroup without a bandwidth limit
	// The limits of the kernel's tg_set_cfs_bandwidth, in ns. maxMicros is in µs.
	maxQuota          = (1<<44 - 1) * microsecond
	minQuotaAndPeriod = 1000 * microsecond
	maxPeriod         = 1000000 * microsecond
	maxMicros         = math.MaxUint64 / microsecond
)

// showShares shows cpu.shares (version 1) or cpu.weight (version 2). Idle cgroups have fixed values.
func showShares(f *Cgroups, g *group) string {
	switch {
	case !g.idle:
		return formatInt(g.shares)
	case f.version == cgroup.V1:
		return "3"
	case f.kernelSince(12):
		return "1"
	}
	return "0" // the kernel gives idle cgroups the weight 3, where 1024 means cpu.weight 100; rounded, this is 0
}

// setShares sets cpu.shares of version 1.
func setShares(f *Cgroups, g *group, text string) error {
	n, err := kernelUint(text)
	switch {
	case err != nil:
		return err
	case g == f.root || g.idle:
		return syscall.EINVAL
	}
	g.shares = int64(min(max(n, 2), 262144))
	return nil
}

// setWeight sets cpu.weight of version 2.
func setWeight(_ *Cgroups, g *group, text string) error {
	n, err := kernelUint(text)
	switch {
	case err != nil:
		return err
	case n < 1 || n > 10000:
		return syscall.ERANGE
	case g.idle:
		return syscall.EINVAL
	}
	g.shares = int64(n)
	return nil
}

// niceWeights has the kernel's weights of the nice values -20 to 19 (sched_prio_to_weight).
var niceWeights = [...]int64{
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277,
	1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
}

// showNice shows cpu.weight.nice: the nice value whose weight is nearest to the weight of the cgroup.
func showNice(f *Cgroups, g *group) string {
	weight := (g.shares*1024 + 50) / 100
	if g.idle {
		weight = 3
	}
	best, least := 0, int64(math.MaxInt64)
	for i, w := range niceWeights {
		delta := max(w-weight, weight-w)
		if delta >= least {
			break
		}
		best, least = i, delta
	}
	return strconv.Itoa(best - 20)
}

// setNice handles a write to cpu.weight.nice: it sets the weight that the kernel has for the nice value.
func setNice(_ *Cgroups, g *group, text string) error {
	n, err := kernelInt(text)
	switch {
	case err != nil:
		return err
	case n < -20 || n > 19:
		return syscall.ERANGE
	case g.idle:
		return syscall.EINVAL
	}
	g.shares = (niceWeights[n+20]*100 + 512) / 1024
	return nil
}

// showIdle shows cpu.idle.
func showIdle(_ *Cgroups, g *group) string { return formatBool(g.idle) }

// setIdle sets cpu.idle. If the value changes, setIdle resets the weight, as the kernel does.
func setIdle(f *Cgroups, g *group, text string) error {
	n, err := kernelInt(text)
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

// showBVT shows cpu.bvt_warp_ns.
func showBVT(_ *Cgroups, g *group) string { return formatInt(g.bvt) }

// setBVT sets cpu.bvt_warp_ns. It accepts -1 to 2, as the documentation of the kernels that have this file says.
func setBVT(_ *Cgroups, g *group, text string) error {
	n, err := kernelInt(text)
	if err != nil {
		return err
	}
	if n < -1 || n > 2 {
		return syscall.EINVAL
	}
	g.bvt = n
	return nil
}

// formatMicros formats a number of ns as whole µs.
func formatMicros(ns uint64) string { return strconv.FormatUint(ns/microsecond, 10) }

// showQuota shows cpu.cfs_quota_us.
func showQuota(_ *Cgroups, g *group) string {
	if g.quota == noQuota {
		return "-1"
	}
	return formatMicros(g.quota)
}

// showPeriod shows cpu.cfs_period_us.
func showPeriod(_ *Cgroups, g *group) string { return formatMicros(g.period) }

// showBurst shows cpu.cfs_burst_us (version 1) or cpu.max.burst (version 2).
func showBurst(_ *Cgroups, g *group) string { return formatMicros(g.burst) }

// setQuota handles a write to cpu.cfs_quota_us. A negative number means no limit.
func setQuota(f *Cgroups, g *group, text string) error {
	n, err := kernelInt(text)
	b := g.bandwidth
	switch {
	case err != nil:
		return err
	case n < 0:
		b.quota = noQuota
	case uint64(n) > maxMicros:
		return syscall.EINVAL
	default:
		b.quota = uint64(n) * microsecond
	}
	return f.setBandwidth(g, b)
}

// setPeriod handles a write to cpu.cfs_period_us.
func setPeriod(f *Cgroups, g *group, text string) error {
	n, err := kernelUint(text)
	switch {
	case err != nil:
		return err
	case n > maxMicros:
		return syscall.EINVAL
	}
	b := g.bandwidth
	b.period = n * microsecond
	return f.setBandwidth(g, b)
}

// setBurst handles a write to cpu.cfs_burst_us (version 1) or cpu.max.burst (version 2).
func setBurst(f *Cgroups, g *group, text string) error {
	n, err := kernelUint(text)
	switch {
	case err != nil:
		return err
	case n > maxMicros:
		return syscall.EINVAL
	}
	b := g.bandwidth
	b.burst = n * microsecond
	return f.setBandwidth(g, b)
}

// showMax shows cpu.max.
func showMax(_ *Cgroups, g *group) string {
	if g.quota == noQuota {
		return unlimitedText + " " + formatMicros(g.period)
	}
	return formatMicros(g.quota) + " " + formatMicros(g.period)
}

// setMax sets cpu.max. It parses the quota and the period like sscanf("%20s %llu"). It ignores a period that is not a
// number, and any text after the period.
func setMax(f *Cgroups, g *group, text string) error {
	b := g.bandwidth
	word, rest := scanWord(text, 20)
	if word == "" {
		return syscall.EINVAL
	}
	if n, _, ok := scanUint(rest); ok {
		b.period = n * microsecond // modulo 2^64
	}
	if n, _, ok := scanUint(word); ok {
		b.quota = n * microsecond
	} else if word == unlimitedText {
		b.quota = noQuota
	} else {
		return syscall.EINVAL
	}
	return f.setBandwidth(g, b)
}

// setBandwidth sets the bandwidth limits of a cgroup, with the checks of the kernel's tg_set_cfs_bandwidth.
func (f *Cgroups) setBandwidth(g *group, b bandwidth) error {
	limited := b.quota != noQuota
	switch {
	case g == f.root,
		b.quota < minQuotaAndPeriod || b.period < minQuotaAndPeriod,
		b.period > maxPeriod,
		limited && b.quota > maxQuota,
		limited && (b.burst > b.quota || b.burst+b.quota > maxQuota):
		return syscall.EINVAL
	}
	old := g.bandwidth
	g.bandwidth = b
	// Version 2 does not check the ratios of quota to period. There, the lowest ratio of a cgroup and its ancestors
	// counts.
	if f.version == cgroup.V1 && !f.root.ratiosFit(-1) {
		g.bandwidth = old
		return syscall.EINVAL
	}
	return nil
}

// ratiosFit reports whether no cgroup in or below g has a higher ratio of quota to period than its nearest ancestor
// with a quota. above is the ratio of g's nearest ancestor with a quota; -1 if there is none.
func (g *group) ratiosFit(above int64) bool {
	ratio := above
	if g.quota != noQuota {
		ratio = int64((g.quota / microsecond) << 20 / (g.period / microsecond)) // rounded like the kernel's to_ratio
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
