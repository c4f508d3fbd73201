package cgroup

import (
	"math"
	"os"
	"strconv"
)

// memswLimitFile is the file that limits memory and swap together. Cgroup version 1 refuses a memory limit above the
// limit in this file (EINVAL). containerd writes the memory limit to this file, so that the kernel swaps nothing.
const memswLimitFile = "memory.memsw.limit_in_bytes"

// writeLimitV1 sets the memory limit of version 1. If the limit of memory and swap (memswLimitFile) equals the old
// memory limit, writeLimitV1 also writes the new limit to it. If it is below the new limit, writeLimitV1 raises it
// first. Otherwise writeLimitV1 leaves it unchanged. The kernel has no such file if it does not account for swap.
func (t *Tree) writeLimitV1(dir, file, text string) error {
	both := t.path("memory", dir, memswLimitFile)
	wanted, known := limitV1(text)
	swapText, err := t.read(both)
	if err != nil || !known {
		return t.write(file, text)
	}
	limitText, err := t.read(file)
	if err != nil {
		return err
	}
	limit, knowsLimit := limitV1(limitText)
	swap, knowsSwap := limitV1(swapText)
	follows := knowsLimit && knowsSwap && limit == swap && limit != UnlimitedBytes()
	order := []string{file}
	switch {
	case knowsSwap && swap < wanted:
		order = []string{both, file}
	case follows:
		order = []string{file, both}
	}
	for _, f := range order {
		if err := t.write(f, text); err != nil {
			return err
		}
	}
	return nil
}

// UnlimitedBytes is the kernel's value for no limit: the largest number of whole pages.
func UnlimitedBytes() int64 {
	size := int64(os.Getpagesize())
	return math.MaxInt64 / size * size
}

// limitV1 parses a limit of version 1 in bytes. -1 and all values that mean no limit give the
// same number.
func limitV1(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, false
	}
	if n < 0 || n > UnlimitedBytes() {
		n = UnlimitedBytes()
	}
	return n, true
}
