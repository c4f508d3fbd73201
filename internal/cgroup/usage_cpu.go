package cgroup

import (
	"strconv"
	"strings"
	"time"
)

// CPUUse says how much CPU time a cgroup has used, and how long its tasks waited for CPUs.
type CPUUse struct {
	CPUTime time.Duration
	// Periods counts the periods of the CPU limit in which the cgroup's tasks ran. ThrottledPeriods counts
	// only those of them in which the limit stopped the tasks. Both are 0 without a limit.
	Periods, ThrottledPeriods int64
	// ThrottledTime is how long the limit has stopped the tasks.
	ThrottledTime time.Duration
	// Pressure is the share of the last ten seconds in which a task waited for a CPU, in percent (PSI's "some" and
	// avg10). It is -1 if the kernel does not report this share: with cgroup v1, or without PSI.
	Pressure float64
}

// CPUUse reads how much CPU time a cgroup has used, and how long its tasks waited for CPUs. Periods is 0 for a cgroup
// without the controller cpu.
func (t *Tree) CPUUse(dir string) (CPUUse, error) {
	used, err := t.cpuTime(dir)
	if err != nil {
		return CPUUse{}, err
	}
	out := CPUUse{CPUTime: used, Pressure: -1}
	controller, stopped, unit := "", "throttled_usec", time.Microsecond
	if t.Version == V1 {
		controller, stopped, unit = "cpu", "throttled_time", time.Nanosecond
	}
	if stat, err := t.read(t.path(controller, dir, "cpu.stat")); err == nil {
		// An error means that the key is missing, because the controller is off or the kernel is older. Then the
		// number stays 0.
		out.Periods, _ = sumValues(stat, "nr_periods")
		out.ThrottledPeriods, _ = sumValues(stat, "nr_throttled")
		n, _ := sumValues(stat, stopped)
		out.ThrottledTime = time.Duration(n) * unit
	}
	if t.Version == V2 {
		if text, err := t.read(t.path("", dir, "cpu.pressure")); err == nil {
			out.Pressure = someAvg10(text)
		}
	}
	return out, nil
}

// someAvg10 returns the value avg10 of the line "some" of a pressure file, or -1 if the file has no such value
// (Documentation/accounting/psi.rst).
func someAvg10(text string) float64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "some" {
			continue
		}
		if avg, ok := strings.CutPrefix(fields[1], "avg10="); ok {
			if percent, err := strconv.ParseFloat(avg, 64); err == nil && percent >= 0 && percent <= 100 {
				return percent
			}
		}
	}
	return -1
}
