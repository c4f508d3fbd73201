package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat, USER_HZ, which is 100 a second on all machines.
const tick = 10 * time.Millisecond

// Node reads the CPU time that a machine has used, and how much memory is in use and cannot be reclaimed.
func Node(proc fs.FS) (cpu time.Duration, bytes int64, err error) {
	r, err := Read(proc)
	if err != nil {
		return 0, 0, err
	}
	for _, busy := range r.Busy {
		cpu += time.Duration(busy) * tick
	}
	text, err := fs.ReadFile(proc, "meminfo")
	if err != nil {
		return 0, 0, err
	}
	amounts := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key != "MemTotal" && key != "MemAvailable" {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("meminfo: %q: %w", strings.TrimSpace(line), err)
		}
		amounts[key] = n
	}
	if len(amounts) < 2 {
		return 0, 0, errors.New("meminfo: without MemTotal or MemAvailable")
	}
	return cpu, max(0, amounts["MemTotal"]-amounts["MemAvailable"]) << 10, nil
}
