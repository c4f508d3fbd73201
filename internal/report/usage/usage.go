// Package usage reads from /proc how busy the CPUs of a machine are, and for which resources its tasks wait. It stores
// nothing and draws nothing.
package usage

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Reading has the counters of /proc at one moment.
type Reading struct {
	// BusyTicks has the time for which each CPU was busy since the boot. TotalTicks has the whole time since the boot,
	// busy and idle. Both are in clock ticks, by id of the CPU.
	BusyTicks, TotalTicks map[int]uint64
	// Pressure has the share of the last ten seconds in which tasks waited (PSI's avg10), in percent. It is empty if
	// the kernel has no PSI.
	Pressure []Pressure
}

// Pressure is one line of a file below /proc/pressure: the percentage of time in which tasks waited for a resource.
type Pressure struct {
	Resource string // cpu, memory, io
	Kind     string // some, full
	Percent  float64
}

// String formats the pressure for users.
func (p Pressure) String() string { return fmt.Sprintf("%s %s %.1f %%", p.Resource, p.Kind, p.Percent) }

// Read reads the files stat and pressure/* of a proc file system (proc(5); Documentation/accounting/psi.rst). It
// returns an error if stat is missing or malformed. It leaves out pressure files that it cannot read.
func Read(proc fs.FS) (Reading, error) {
	text, err := fs.ReadFile(proc, "stat")
	if err != nil {
		return Reading{}, err
	}
	r := Reading{BusyTicks: map[int]uint64{}, TotalTicks: map[int]uint64{}}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		if err := r.addCPULine(fields); err != nil {
			return Reading{}, fmt.Errorf("read the line %q of /proc/stat: %w", strings.TrimSpace(line), err)
		}
	}
	for _, resource := range []string{"cpu", "memory", "io"} {
		if text, err := fs.ReadFile(proc, "pressure/"+resource); err == nil {
			r.Pressure = append(r.Pressure, parsePressure(resource, string(text))...)
		}
	}
	return r, nil
}

// addCPULine adds the numbers of a line "cpu3 user nice system idle iowait irq softirq steal guest guest_nice". It
// ignores guest and guest_nice, because user and nice already include these times.
func (r *Reading) addCPULine(fields []string) error {
	id, err := strconv.Atoi(strings.TrimPrefix(fields[0], "cpu"))
	if err != nil {
		return err
	}
	for i, f := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return err
		}
		r.TotalTicks[id] += n
		if i != 3 && i != 4 { // 3 is idle, and 4 is iowait, in which the CPU is idle, too
			r.BusyTicks[id] += n
		}
	}
	return nil
}

// parsePressure reads the lines of a file below /proc/pressure.
func parsePressure(resource, text string) []Pressure {
	var all []Pressure
	for line := range strings.Lines(text) {
		p := Pressure{Resource: resource}
		_, err := fmt.Sscanf(line, "%s avg10=%f", &p.Kind, &p.Percent)
		if err == nil && (resource != "cpu" || p.Kind == "some") { // for a whole node, "full" of cpu is always 0
			all = append(all, p)
		}
	}
	return all
}

// BusySince returns how busy each CPU was between an earlier reading and this one, 0 to 1. It leaves out a CPU that is
// not in the earlier reading. It also leaves out a CPU whose counters decreased because it was offline in between.
func (r Reading) BusySince(earlier Reading) map[int]float64 {
	busy := map[int]float64{}
	for id, all := range r.TotalTicks {
		before, was := earlier.TotalTicks[id]
		if !was || all <= before || r.BusyTicks[id] < earlier.BusyTicks[id] {
			continue
		}
		busy[id] = min(1, float64(r.BusyTicks[id]-earlier.BusyTicks[id])/float64(all-before))
	}
	return busy
}
