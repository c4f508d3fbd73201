package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/stat, 1/USER_HZ seconds. USER_HZ is 100 on all architectures that Trimtab
// supports.
const clockTick = 10 * time.Millisecond

// ReadNode reads how much CPU time a machine has used since its boot, and how many bytes of memory are in use and not
// reclaimable.
func ReadNode(proc fs.FS) (cpu time.Duration, bytes int64, err error) {
	r, err := Read(proc)
	if err != nil {
		return 0, 0, err
	}
	for _, busy := range r.BusyTicks {
		cpu += time.Duration(busy) * clockTick
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
			return 0, 0, fmt.Errorf("read the line %q of /proc/meminfo: %w", strings.TrimSpace(line), err)
		}
		amounts[key] = n
	}
	if len(amounts) < 2 {
		return 0, 0, errors.New("/proc/meminfo does not have both MemTotal and MemAvailable")
	}
	return cpu, max(0, amounts["MemTotal"]-amounts["MemAvailable"]) << 10, nil
}
