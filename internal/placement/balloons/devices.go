package balloons

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/topology"
)

// cpusNearDevice returns the CPUs near a device. The parameter device is the path below /sys/devices of a NUMA node, a
// CPU, a cache of a CPU, or a PCI device. The result ok is false for any other path, and if the machine does not have
// the device.
func cpusNearDevice(m *topology.Machine, device string) (cpus topology.Set, ok bool) {
	rest, is := strings.CutPrefix(path.Clean(device), "/sys/devices/")
	if !is {
		return cpus, false
	}
	if n, is := numberAfter(rest, "system/node/node"); is {
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
		return m.ExpandToGroups(level, cpu), known
	}
	d, ok := m.DeviceAt(path.Base(rest))
	if cpus = m.CPUsNear(d); !ok || cpus.Empty() {
		return topology.Set{}, false
	}
	return cpus, true
}

// numberAfter returns the number in a text that consists of a prefix and a number.
func numberAfter(text, prefix string) (n int, ok bool) {
	digits, is := strings.CutPrefix(text, prefix)
	n, err := strconv.Atoi(digits)
	return n, is && err == nil && n >= 0
}

// hints are sets of CPUs that the balloons of a type should have or should avoid, the most important first. If a hint
// leaves too few CPUs for a balloon, it has no effect.
type hints struct {
	preferredCPUs []cpuPreference // the balloons should have these CPUs
	avoidedCPUs   []topology.Set  // the balloons should not have these CPUs
}

// cpuPreference has CPUs that the balloons of a type should have. If these CPUs depend on the devices that the kubelet
// grants to containers, pattern is the entry of preferCloseToDevices; otherwise pattern is "".
type cpuPreference struct {
	cpus    topology.Set
	pattern string
}

// hintsOf returns the hints of each type, by the type's name. A type prefers CPUs near its devices, isolated
// CPUs or a kind of cores, and avoids CPUs near devices that only other types prefer.
func hintsOf(m *topology.Machine, types []TypeOptions) map[string]hints {
	all := map[string]hints{}
	for i := range types {
		t := &types[i]
		var h hints
		for _, device := range t.PreferCloseToDevices {
			h.preferredCPUs = append(h.preferredCPUs, preferredFor(m, device))
		}
		if t.PreferIsolCPUs {
			h.preferredCPUs = append(h.preferredCPUs, cpuPreference{cpus: m.IsolatedCPUs()})
		}
		if t.PreferCoreType != "" {
			h.preferredCPUs = append(h.preferredCPUs, cpuPreference{cpus: m.CPUsOfKind(intent.CoreTypes()[t.PreferCoreType])})
		}
		for o := range types {
			for _, device := range types[o].PreferCloseToDevices {
				if cpus, ok := cpusNearDevice(m, device); ok && !t.prefers(device) {
					h.avoidedCPUs = append(h.avoidedCPUs, cpus)
				}
			}
		}
		all[t.Name] = h
	}
	return all
}

// preferredFor returns the hint for an entry of preferCloseToDevices. The hint has no CPUs if the machine does not
// have the device, or if the entry is a pattern of devices that the kubelet grants.
func preferredFor(m *topology.Machine, device string) cpuPreference {
	if _, granted := resourcePattern(device); granted {
		return cpuPreference{pattern: device}
	}
	cpus, _ := cpusNearDevice(m, device)
	return cpuPreference{cpus: cpus}
}

// prefers reports whether preferCloseToDevices of the type has the device.
func (t *TypeOptions) prefers(device string) bool {
	for _, d := range t.PreferCloseToDevices {
		if path.Clean(d) == path.Clean(device) {
			return true
		}
	}
	return false
}

// withAvoided returns the hints with more sets of CPUs to avoid. The added sets are the least important ones.
func (h hints) withAvoided(avoided []topology.Set) hints {
	h.avoidedCPUs = slices.Concat(h.avoidedCPUs, avoided)
	return h
}

// apply applies the hints to a choice of n CPUs: from candidates it removes the CPUs that are not preferred or that
// should be avoided. It skips a hint that would leave fewer than n CPUs. The rules are those of nri-plugins,
// cputree.go.
func (h *hints) apply(candidates topology.Set, n int) topology.Set {
	for _, preferred := range h.preferredCPUs {
		if some := candidates.And(preferred.cpus); some.Len() >= n {
			candidates = some
		}
	}
	for _, avoided := range h.avoidedCPUs {
		if some := candidates.Minus(avoided); some.Len() >= n {
			candidates = some
		}
	}
	return candidates
}
