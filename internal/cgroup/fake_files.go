package cgroup

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// fakeFile is how a file of the fake shows and takes text. Without set it is
// read-only, which the kernel answers EINVAL. Both run under the fake's lock.
type fakeFile struct {
	show   func(*Fake, *fakeGroup) string
	set    func(*Fake, *fakeGroup, string) error
	atRoot bool // of version 2
	// offered files exist only where Offer added them.
	offered bool
}

var fakeControllers = []string{"cpu", "cpuset", "memory", "hugetlb"}

// The files by version; those of version 1 by controller too.
var (
	fakeV1 = map[string]map[string]fakeFile{
		"cpu": {
			"cpu.shares":        {show: func(_ *Fake, g *fakeGroup) string { return g.showShares(3) }, set: setShares},
			"cpu.idle":          {show: showIdle, set: setIdle},
			"cpu.bvt_warp_ns":   {show: showBVT, set: setBVT, offered: true},
			"cpu.cfs_quota_us":  {show: func(_ *Fake, g *fakeGroup) string { return number(g.quota) }, set: setQuota},
			"cpu.cfs_period_us": {show: func(_ *Fake, g *fakeGroup) string { return number(g.period) }, set: setPeriod},
			"cpu.cfs_burst_us":  {show: func(_ *Fake, g *fakeGroup) string { return number(g.burst) }, set: setBurst},
		},
		"cpuset": {
			"cpuset.cpus":           {show: func(_ *Fake, g *fakeGroup) string { return g.cpus.String() }, set: setCPUs},
			"cpuset.mems":           {show: func(_ *Fake, g *fakeGroup) string { return g.mems.String() }, set: setMems},
			"cpuset.effective_cpus": {show: showEffectiveCPUs},
			"cpuset.effective_mems": {show: showEffectiveMems},
			"cgroup.clone_children": {show: func(_ *Fake, g *fakeGroup) string { return bit(g.clone) }, set: setClone},
		},
		"memory": {
			"memory.limit_in_bytes":       {show: func(_ *Fake, g *fakeGroup) string { return number(g.limit) }, set: setLimitV1},
			"memory.memsw.limit_in_bytes": {show: func(_ *Fake, g *fakeGroup) string { return number(g.swap) }, set: setSwapV1},
			"memory.usage_in_bytes":       {show: func(_ *Fake, g *fakeGroup) string { return number(g.usage) }},
		},
		"hugetlb": {
			"hugetlb.2MB.limit_in_bytes": hugeV1(0),
			"hugetlb.1GB.limit_in_bytes": hugeV1(1),
		},
	}
	fakeV2 = map[string]fakeFile{
		"cgroup.controllers":    {show: func(*Fake, *fakeGroup) string { return "cpuset cpu memory hugetlb" }, atRoot: true},
		"cpu.weight":            {show: func(_ *Fake, g *fakeGroup) string { return g.showShares(0) }, set: setWeight},
		"cpu.idle":              {show: showIdle, set: setIdle},
		"cpu.bvt_warp_ns":       {show: showBVT, set: setBVT, offered: true},
		"cpu.max":               {show: showMax, set: setMax},
		"cpu.max.burst":         {show: func(_ *Fake, g *fakeGroup) string { return number(g.burst) }, set: setBurst},
		"cpuset.cpus":           {show: func(_ *Fake, g *fakeGroup) string { return g.cpus.String() }, set: setCPUs},
		"cpuset.mems":           {show: func(_ *Fake, g *fakeGroup) string { return g.mems.String() }, set: setMems},
		"cpuset.cpus.effective": {show: showEffectiveCPUs, atRoot: true},
		"cpuset.mems.effective": {show: showEffectiveMems, atRoot: true},
		"memory.current":        {show: func(_ *Fake, g *fakeGroup) string { return number(g.usage) }},
		"memory.max":            bytesV2(func(g *fakeGroup) *int64 { return &g.limit }),
		"memory.high":           bytesV2(func(g *fakeGroup) *int64 { return &g.high }),
		"memory.low":            bytesV2(func(g *fakeGroup) *int64 { return &g.low }),
		"memory.min":            bytesV2(func(g *fakeGroup) *int64 { return &g.protectMin }),
		"memory.swap.max":       bytesV2(func(g *fakeGroup) *int64 { return &g.swap }),
		"memory.oom.group":      {show: func(_ *Fake, g *fakeGroup) string { return number(g.oomGroup) }, set: setOOMGroup},
		"hugetlb.2MB.max":       hugeV2(0),
		"hugetlb.1GB.max":       hugeV2(1),
	}
)

func number(n int64) string { return strconv.FormatInt(n, 10) }

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// kernelInt reads a number as kstrtoll and kstrtoull with base 0 do: hexadecimal
// and octal too, one newline at the end, no blank in front.
func kernelInt(text string, signed bool) (int64, error) {
	text = strings.TrimSuffix(text, "\n")
	negative := signed && strings.HasPrefix(text, "-")
	digits := strings.TrimPrefix(text, "+")
	if negative {
		digits = text[1:]
	}
	base := 10
	switch lower := strings.ToLower(digits); {
	case strings.HasPrefix(lower, "0x"):
		digits, base = digits[2:], 16
	case len(digits) > 1 && digits[0] == '0':
		digits, base = digits[1:], 8
	}
	if digits == "" || strings.ContainsAny(digits, "+-_") {
		return 0, syscall.EINVAL
	}
	n, err := strconv.ParseUint(digits, base, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, syscall.ERANGE
	case err != nil:
		return 0, syscall.EINVAL
	case n > 1<<63-1:
		if signed {
			return 0, syscall.ERANGE
		}
		n = 1<<63 - 1 // larger than anything the fake stores
	}
	if negative {
		return -int64(n), nil
	}
	return int64(n), nil
}

// kernelBytes reads bytes as page_counter_memparse does: a suffix K to E, whole
// pages, what is too large is no limit. None is the text of no limit.
func kernelBytes(text, none string) (int64, error) {
	text = strings.TrimSpace(text)
	if text == none {
		return unlimitedBytes(), nil
	}
	shift := 0
	if text != "" {
		if i := strings.IndexByte("kmgtpe", text[len(text)-1]|0x20); i >= 0 {
			shift, text = 10*(i+1), text[:len(text)-1]
		}
	}
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, syscall.EINVAL
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if most := uint64(unlimitedBytes()); err != nil || n > most>>shift {
		return unlimitedBytes(), nil //nolint:nilerr // what does not fit is no limit, to the kernel too
	}
	size := uint64(os.Getpagesize())
	return int64((n << shift) / size * size), nil
}

func bytesV2(at func(*fakeGroup) *int64) fakeFile {
	return fakeFile{
		show: func(_ *Fake, g *fakeGroup) string {
			if n := *at(g); n != unlimitedBytes() {
				return number(n)
			}
			return unlimited
		},
		set: func(_ *Fake, g *fakeGroup, text string) error {
			n, err := kernelBytes(text, unlimited)
			if err != nil {
				return err
			}
			*at(g) = n
			// Too little for what is in use is made to fit, by killing if need be.
			g.usage = min(g.usage, g.limit)
			return nil
		},
	}
}

func setLimitV1(_ *Fake, g *fakeGroup, text string) error {
	n, err := kernelBytes(text, "-1")
	switch {
	case err != nil:
		return err
	case n > g.swap:
		return syscall.EINVAL
	case n < g.usage:
		return syscall.EBUSY
	}
	g.limit = n
	return nil
}

func setSwapV1(_ *Fake, g *fakeGroup, text string) error {
	n, err := kernelBytes(text, "-1")
	switch {
	case err != nil:
		return err
	case n < g.limit:
		return syscall.EINVAL
	case n < g.usage:
		return syscall.EBUSY
	}
	g.swap = n
	return nil
}

func setOOMGroup(_ *Fake, g *fakeGroup, text string) error {
	n, err := kernelInt(strings.TrimSpace(text), true)
	if err != nil {
		return err
	}
	if n != 0 && n != 1 {
		return syscall.EINVAL
	}
	g.oomGroup = n
	return nil
}
