// Package usage reads from /proc how busy the CPUs of a machine are, and for what its tasks wait. It keeps nothing
// and draws nothing.
package usage

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Reading has the counters of /proc at one moment.
type Reading struct {
	// Busy and All have for each CPU, by kernel id, how long it has worked and how long it has existed, in clock
	// ticks.
	Busy, All map[int]uint64
	// Pressure has the share of the last ten seconds in which tasks waited (PSI's avg10), in percent. A kernel
	// without PSI has none.
	Pressure []Pressure
}

// Pressure is one line of a file below /proc/pressure.
type Pressure struct {
	Resource string // cpu, memory, io
	Kind     string // some, full
	Percent  float64
}

// String formats the reading for users.
func (p Pressure) String() string { return fmt.Sprintf("%s %s %.1f %%", p.Resource, p.Kind, p.Percent) }

// Read reads stat and pressure of a proc file system (proc(5); Documentation/accounting/psi.rst). It returns an
// error if stat is missing or malformed. It leaves out pressure that it cannot read.
func Read(proc fs.FS) (Reading, error) {
	text, err := fs.ReadFile(proc, "stat")
	if err != nil {
		return Reading{}, err
	}
	r := Reading{Busy: map[int]uint64{}, All: map[int]uint64{}}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		if err := r.cpu(fields); err != nil {
			return Reading{}, fmt.Errorf("stat: %q: %w", strings.TrimSpace(line), err)
		}
	}
	for _, resource := range []string{"cpu", "memory", "io"} {
		if text, err := fs.ReadFile(proc, "pressure/"+resource); err == nil {
			r.Pressure = append(r.Pressure, pressure(resource, string(text))...)
		}
	}
	return r, nil
}

// cpu reads a line "cpu3 user nice system idle iowait irq softirq steal guest guest_nice". user and nice already
// include the time of guests.
func (r *Reading) cpu(fields []string) error {
	id, err := strconv.Atoi(strings.TrimPrefix(fields[0], "cpu"))
	if err != nil {
		return err
	}
	for i, f := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return err
		}
		r.All[id] += n
		if i != 3 && i != 4 { // idle, and waiting for the disk
			r.Busy[id] += n
		}
	}
	return nil
}

func pressure(resource, text string) []Pressure {
	var all []Pressure
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		avg, ok := strings.CutPrefix(fields[1], "avg10=")
		percent, err := strconv.ParseFloat(avg, 64)
		if ok && err == nil && (resource != "cpu" || fields[0] == "some") { // for a whole node, "full" of cpu is always 0
			all = append(all, Pressure{resource, fields[0], percent})
		}
	}
	return all
}

// Since returns how busy each CPU was between an earlier reading and this one, 0 to 1. It leaves out a CPU that did
// not exist before, or whose counters went back because it was offline in between.
func (r Reading) Since(earlier Reading) map[int]float64 {
	busy := map[int]float64{}
	for id, all := range r.All {
		before, was := earlier.All[id]
		if !was || all <= before || r.Busy[id] < earlier.Busy[id] {
			continue
		}
		busy[id] = min(1, float64(r.Busy[id]-earlier.Busy[id])/float64(all-before))
	}
	return busy
}
