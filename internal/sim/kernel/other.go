package kernel

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file simulates the controllers io, blkio, hugetlb and pids.

// otherState has a cgroup's values in the controllers io, blkio, hugetlb and pids.
type otherState struct {
	pidsLimit      int64                 // pids.max; -1 for no limit
	hugepageLimits map[string]int64      // limits in bytes; the key is a part of the file's name, such as "2MB" or "2MB.rsvd"
	ioWeight       uint64                // io.weight
	bfqWeight      uint64                // io.bfq.weight or blkio.bfq.weight
	throttleLimits map[string]*[4]uint64 // limits by device, in the order of ioLimits
}

// resetOther sets the values in a controller to the values of a new cgroup.
func (o *otherState) resetOther(controller string) {
	switch controller {
	case "pids":
		o.pidsLimit = -1
	case "hugetlb":
		o.hugepageLimits = map[string]int64{}
	case "io", "blkio":
		o.ioWeight, o.bfqWeight, o.throttleLimits = 100, 100, map[string]*[4]uint64{}
	}
}

// maxPIDs is PID_MAX_LIMIT of 64-bit kernels.
const maxPIDs = 4194304

// showPids shows pids.max.
func showPids(_ *Cgroups, g *group) string {
	if g.pidsLimit < 0 {
		return unlimitedText
	}
	return formatInt(g.pidsLimit)
}

// setPids handles a write to pids.max.
func setPids(_ *Cgroups, g *group, text string) error {
	text = trimBlanks(text)
	if text == unlimitedText {
		g.pidsLimit = -1
		return nil
	}
	n, err := kernelInt(text)
	switch {
	case err != nil:
		return err
	case n < 0 || n > maxPIDs:
		return syscall.EINVAL
	}
	g.pidsLimit = n
	return nil
}

// showPidsCurrent shows pids.current.
func showPidsCurrent(f *Cgroups, g *group) string {
	n := g.tasks
	for _, p := range f.tasksByPID {
		if p.cgroupIn["pids"].isInOrBelow(g) || p.cgroupIn[""].isInOrBelow(g) {
			n++
		}
	}
	return strconv.Itoa(n)
}

// hugepageFile returns the model of a limit of huge pages. name is the key in hugepageLimits. size is the size of a
// huge page in bytes. none is the text for no limit.
func hugepageFile(name string, size int64, none string) fileModel {
	most := cgroup.UnlimitedBytes() / size * size
	return fileModel{
		show: func(f *Cgroups, g *group) string {
			n, given := g.hugepageLimits[name]
			switch {
			case g == f.root:
				return formatInt(cgroup.UnlimitedBytes()) // not in whole huge pages
			case given && n != most, none == "-1" && given:
				return formatInt(n)
			case none == "-1":
				return formatInt(most)
			}
			return none
		},
		set: func(f *Cgroups, g *group, text string) error {
			if g == f.root {
				return syscall.EINVAL
			}
			n, err := kernelBytes(text, none)
			if err == nil {
				g.hugepageLimits[name] = n / size * size
			}
			return err
		},
	}
}

// parseDevice parses a device number "major:minor" at the beginning of a text, like the kernel's blkg_conf_prep. It
// returns an error for a device that AddDevice has not added. rest is the text after the number.
func (f *Cgroups) parseDevice(text string) (dev, rest string, err error) {
	major, rest, ok := scanUint(text)
	if !ok || !strings.HasPrefix(rest, ":") {
		return "", "", syscall.EINVAL
	}
	minor, rest, ok := scanUint(rest[1:])
	if !ok || rest == "" || !isBlank(rest[0]) {
		return "", "", syscall.EINVAL
	}
	dev = fmt.Sprintf("%d:%d", major, minor)
	if !f.devices[dev] {
		return "", "", syscall.ENODEV
	}
	return dev, rest, nil
}

// showIOWeight shows io.weight.
func showIOWeight(_ *Cgroups, g *group) string {
	return "default " + strconv.FormatUint(g.ioWeight, 10)
}

// setIOWeight sets io.weight (blk-iocost). It refuses a weight for one device, because no simulated device has a cost
// model.
func setIOWeight(f *Cgroups, g *group, text string) error {
	if strings.Contains(text, ":") {
		if _, _, err := f.parseDevice(text); err != nil {
			return err
		}
		return syscall.EOPNOTSUPP
	}
	rest, _ := strings.CutPrefix(text, "default")
	n, _, ok := scanUint(rest)
	if n = uint64(uint32(n)); !ok || n < 1 || n > 10000 {
		return syscall.EINVAL
	}
	g.ioWeight = n
	return nil
}

// showBFQ shows io.bfq.weight of version 2, and blkio.bfq.weight_device of version 1.
func showBFQ(_ *Cgroups, g *group) string { return "default " + strconv.FormatUint(g.bfqWeight, 10) }

// showBFQv1 shows blkio.bfq.weight of version 1.
func showBFQv1(_ *Cgroups, g *group) string { return strconv.FormatUint(g.bfqWeight, 10) }

// setBFQ sets io.bfq.weight. It refuses a weight for one device, because no simulated device uses the scheduler BFQ.
func setBFQ(f *Cgroups, g *group, text string) error {
	text = trimBlanks(text)
	n, _, rest := parseDigits(text, 0)
	ok := rest == ""
	if after, given := strings.CutPrefix(text, "default"); !ok && given {
		n, _, ok = scanUint(after)
	}
	if ok {
		return g.setBFQ(n)
	}
	return setBFQDevice(f, g, text)
}

// setBFQDevice refuses a BFQ weight for one device.
func setBFQDevice(f *Cgroups, _ *group, text string) error {
	if _, _, err := f.parseDevice(text); err != nil {
		return err
	}
	return syscall.EOPNOTSUPP
}

// setBFQv1 handles a write to blkio.bfq.weight of version 1.
func setBFQv1(_ *Cgroups, g *group, text string) error {
	n, err := kernelUint(text)
	if err != nil {
		return err
	}
	return g.setBFQ(n)
}

// setBFQ sets the BFQ weight, which must be from 1 to 1000.
func (o *otherState) setBFQ(n uint64) error {
	if n < 1 || n > 1000 {
		return syscall.ERANGE
	}
	o.bfqWeight = n
	return nil
}

// ioLimits has the keys of io.max in the order of the file, each with the value for no limit.
var ioLimits = [4]struct {
	name string
	none uint64
}{{"rbps", math.MaxUint64}, {"wbps", math.MaxUint64}, {"riops", math.MaxUint32}, {"wiops", math.MaxUint32}}

// noThrottleLimits returns the limits of a device without limits, in the order of ioLimits.
func noThrottleLimits() *[4]uint64 {
	return &[4]uint64{math.MaxUint64, math.MaxUint64, math.MaxUint32, math.MaxUint32}
}

// limitsOf returns the limits of a device. The caller may change these limits.
func (o *otherState) limitsOf(dev string) *[4]uint64 {
	if o.throttleLimits[dev] == nil {
		o.throttleLimits[dev] = noThrottleLimits()
	}
	return o.throttleLimits[dev]
}

// throttledDevices returns the devices that have a limit, sorted.
func (o *otherState) throttledDevices() []string {
	var out []string
	for dev, l := range o.throttleLimits {
		if *l != *noThrottleLimits() {
			out = append(out, dev)
		}
	}
	slices.Sort(out)
	return out
}

// showIOMax shows io.max: a line for each device that has a limit.
func showIOMax(_ *Cgroups, g *group) string {
	var lines []string
	for _, dev := range g.throttledDevices() {
		line := dev
		for i, l := range ioLimits {
			text := unlimitedText
			if n := g.throttleLimits[dev][i]; n != l.none {
				text = strconv.FormatUint(n, 10)
			}
			line += " " + l.name + "=" + text
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// setIOMax sets limits of io.max, with the checks of the kernel's tg_set_limit. If a part of the text is invalid, no
// limit changes.
func setIOMax(f *Cgroups, g *group, text string) error {
	dev, rest, err := f.parseDevice(text)
	if err != nil {
		return err
	}
	limits := *g.limitsOf(dev)
	for {
		var word string
		if word, rest = scanWord(rest, 26); word == "" {
			break
		}
		name, value, ok := strings.Cut(word, "=")
		n, _, isNumber := scanUint(value)
		if !isNumber {
			n = math.MaxUint64
		}
		i := slices.IndexFunc(ioLimits[:], func(l struct {
			name string
			none uint64
		}) bool {
			return l.name == name
		})
		switch {
		case !ok || !isNumber && value != unlimitedText:
			return syscall.EINVAL
		case n == 0:
			return syscall.ERANGE
		case i < 0 || n == 1:
			return syscall.EINVAL
		}
		limits[i] = min(n, ioLimits[i].none)
	}
	*g.limitsOf(dev) = limits
	return nil
}

// throttleFile returns the model of a throttle file of version 1. i is the index of the file's limit in ioLimits. In a
// write, 0 means no limit. For a limit of I/O operations, the kernel uses only the lower 32 bits of the number.
func throttleFile(i int) fileModel {
	return fileModel{
		lines: true,
		show: func(_ *Cgroups, g *group) string {
			var lines []string
			for _, dev := range g.throttledDevices() {
				if n := g.throttleLimits[dev][i]; n != ioLimits[i].none {
					lines = append(lines, dev+" "+strconv.FormatUint(n, 10))
				}
			}
			return strings.Join(lines, "\n")
		},
		set: func(f *Cgroups, g *group, text string) error {
			dev, rest, err := f.parseDevice(text)
			if err != nil {
				return err
			}
			n, _, ok := scanUint(rest)
			if !ok {
				return syscall.EINVAL
			}
			if n == 0 {
				n = math.MaxUint64
			}
			g.limitsOf(dev)[i] = n & ioLimits[i].none
			return nil
		},
	}
}
