package cgroup

import (
	"math"
	"os"
	"strconv"
)

// memswLimitFile is the file that limits memory and swap together. Cgroup version 1 refuses a memory limit above the
// limit in this file (EINVAL). containerd writes the memory limit to this file, so that the kernel swaps nothing.
const memswLimitFile = "memory.memsw.limit_in_bytes"

// writeLimitV1 writes a memory limit to the file of version 1 that limits memory. In two cases it also writes the new
// limit to memswLimitFile, which limits memory and swap together:
//   - If the limit of memory and swap is below the new memory limit, writeLimitV1 raises it before the memory limit.
//   - If the limit of memory and swap is equal to the old memory limit, and not unlimited, writeLimitV1 lowers it after
//     the memory limit.
//
// A kernel without swap accounting has no memswLimitFile.
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

// limitV1 parses a memory limit of version 1, in bytes. It returns UnlimitedBytes for -1 and for
// every other text that means no limit. It returns false if the text is not a number.
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
