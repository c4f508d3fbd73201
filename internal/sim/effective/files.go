package effective

import (
	"strconv"
	"strings"
)

// V1Name returns the name that a file of cgroup version 2 has in version 1.
func V1Name(name string) string {
	if size, ok := strings.CutSuffix(name, ".max"); ok && strings.HasPrefix(name, "hugetlb.") {
		return size + ".limit_in_bytes"
	}
	switch name {
	case "io.weight": // BFQ's file in version 1
		return "blkio.bfq.weight"
	case "cpu.max.burst":
		return "cpu.cfs_burst_us"
	}
	return name
}

// FileText converts the text of a cgroup file of either version to the notation of version 2.
func FileText(data []byte) string {
	text := strings.TrimPrefix(strings.TrimSpace(string(data)), "default ")
	// Version 1 reports the largest multiple of the page size if there is no limit.
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 1<<62 {
		return "max"
	}
	return text
}
