package effective

import (
	"strconv"
	"strings"
)

// OldName is the name in cgroup version 1 of a file that version 2 names so.
func OldName(name string) string {
	if size, ok := strings.CutSuffix(name, ".max"); ok && strings.HasPrefix(name, "hugetlb.") {
		return size + ".limit_in_bytes"
	}
	switch name {
	case "io.weight": // BFQ's, as far as it goes
		return "blkio.bfq.weight"
	case "cpu.max.burst":
		return "cpu.cfs_burst_us"
	}
	return name
}

// FileText is what a cgroup file of either version says, in version 2's words.
func FileText(data []byte) string {
	text := strings.TrimPrefix(strings.TrimSpace(string(data)), "default ")
	// Version 1 has no word for no limit: it is the largest multiple of a page.
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 1<<62 {
		return "max"
	}
	return text
}
