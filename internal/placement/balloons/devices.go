package balloons

import (
	"path"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/topology"
)

// closeTo returns the CPUs that are close to a device, which a path below /sys/devices names: a
// NUMA node, a cache of a CPU, a CPU, or a PCI device. ok is false if the path names something
// else, or something that the machine does not have.
func closeTo(m *topology.Machine, device string) (cpus topology.Set, ok bool) {
	rest, is := strings.CutPrefix(path.Clean(device), "/sys/devices/")
	if !is {
		return cpus, false
	}
	if n, is := number(rest, "system/node/node"); is {
		node, known := m.Node(n)
		return node.CPUs, known && !node.CPUs.Empty()
	}
	if text, is := strings.CutPrefix(rest, "system/cpu/cpu"); is {
		id, cache, _ := strings.Cut(text, "/")
		cpu := m.OnlineOf(id)
		if cache == "" || cpu.Empty() {
			return cpu, !cpu.Empty()
		}
		level, known := map[string]topology.Level{
			"cache/index0": topology.CoreLevel, "cache/index1": topology.CoreLevel, "cache/index2": topology.L2Level, "cache/index3": topology.L3Level,
		}[cache]
		return m.Spread(level, cpu), known
	}
	d, ok := m.DeviceAt(path.Base(rest))
	if cpus = m.Near(d); !ok || cpus.Empty() {
		return topology.Set{}, false
	}
	return cpus, true
}

// number returns the number after a prefix that a text consists of.
func number(text, prefix string) (n int, ok bool) {
	digits, is := strings.CutPrefix(text, prefix)
	n, err := strconv.Atoi(digits)
	return n, is && err == nil && n >= 0
}

// hints are sets of CPUs that balloons of a type should get, or avoid, in this order. A hint that
// would leave too few CPUs does not count.
type hints struct{ near, far []topology.Set }

// hintsOf makes the hints of each type: its devices, its kind of cores, and far from the devices
// that only other types prefer.
func hintsOf(m *topology.Machine, types []TypeOptions) map[string]hints {
	all := map[string]hints{}
	for i := range types {
		t := &types[i]
		var h hints
		for _, device := range t.PreferCloseToDevices {
			if cpus, ok := closeTo(m, device); ok {
				h.near = append(h.near, cpus)
			}
		}
		if t.PreferIsolCPUs {
			h.near = append(h.near, m.Isolated())
		}
		if t.PreferCoreType != "" {
			h.near = append(h.near, m.Of(intent.CoreTypes()[t.PreferCoreType]))
		}
		for o := range types {
			for _, device := range types[o].PreferCloseToDevices {
				if cpus, ok := closeTo(m, device); ok && !t.prefers(device) {
					h.far = append(h.far, cpus)
				}
			}
		}
		all[t.Name] = h
	}
	return all
}

func (t *TypeOptions) prefers(device string) bool {
	for _, d := range t.PreferCloseToDevices {
		if path.Clean(d) == path.Clean(device) {
			return true
		}
	}
	return false
}

// narrow applies hints to the CPUs of which n are to be chosen (nri-plugins, cputree.go).
func (h *hints) narrow(from topology.Set, n int) topology.Set {
	for _, near := range h.near {
		if some := from.And(near); some.Len() >= n {
			from = some
		}
	}
	for _, far := range h.far {
		if some := from.Minus(far); some.Len() >= n {
			from = some
		}
	}
	return from
}
