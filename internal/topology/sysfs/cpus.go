package sysfs

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

func cpuPath(id int) string { return path.Join(cpuDir, "cpu"+strconv.Itoa(id)) }

// cpus reads each online CPU's own directory, and the lists of isolated and
// tickless CPUs.
func (r *reader) cpus(online []int) []topology.CPU {
	isolated, noHz := r.list(cpuDir, "isolated"), r.list(cpuDir, "nohz_full")
	cpus := make([]topology.CPU, len(online))
	threads := make([][]int, len(online))
	caches := make([]cacheLists, len(online))
	for i, id := range online {
		dir := cpuPath(id)
		cpus[i] = topology.CPU{
			ID:      id,
			Core:    r.number(id, dir, "topology/core_id"),
			Die:     r.number(0, dir, "topology/die_id"),
			Package: r.number(0, dir, "topology/physical_package_id"),
			Cluster: r.number(0, dir, "topology/cluster_id"),
			BaseMHz: r.number(0, dir, "cpufreq/base_frequency") / 1000,
			MaxMHz:  r.number(0, dir, "cpufreq/cpuinfo_max_freq") / 1000,
		}
		_, cpus[i].Isolated = slices.BinarySearch(isolated, id)
		_, cpus[i].NoHz = slices.BinarySearch(noHz, id)
		if threads[i] = r.list(dir, "topology/core_cpus_list"); threads[i] == nil { // the kernel is older than 5.4
			threads[i] = r.list(dir, "topology/thread_siblings_list")
		}
		caches[i] = r.caches(dir)
	}
	numberCores(cpus, threads)
	numberCaches(cpus, caches)
	return cpus
}

// withOffline adds offline CPUs, up to topology.MaxCPUs in all. The kernel's lists of isolated and tickless CPUs
// include offline CPUs. An offline CPU gets the package and die of an online CPU of its NUMA node.
func (r *reader) withOffline(cpus []topology.CPU, offline []int, nodeOf func(id int) int) []topology.CPU {
	if len(cpus) == 0 {
		return nil
	}
	isolated, noHz := r.list(cpuDir, "isolated"), r.list(cpuDir, "nohz_full")
	online := cpus
	for _, id := range offline {
		if len(cpus) >= topology.MaxCPUs {
			break
		}
		c := topology.NewOfflineCPU(id, nodeOf(id))
		if i := slices.IndexFunc(online, func(o topology.CPU) bool { return o.Node == c.Node }); i >= 0 {
			c.Package, c.Die = online[i].Package, online[i].Die
		}
		_, c.Isolated = slices.BinarySearch(isolated, id)
		_, c.NoHz = slices.BinarySearch(noHz, id)
		cpus = append(cpus, c)
	}
	slices.SortFunc(cpus, func(a, b topology.CPU) int { return a.ID - b.ID })
	return cpus
}

// offline returns the CPUs that exist and are not online.
func (r *reader) offline(online []int) []int {
	var out []int
	for _, id := range r.list(cpuDir, "present") {
		if _, is := slices.BinarySearch(online, id); !is {
			out = append(out, id)
		}
	}
	return out
}

// numberCores makes core numbers unique. On ARM with a device tree, core_id restarts in every cluster. Then each core
// gets the id of its lowest thread as its number.
func numberCores(cpus []topology.CPU, threads [][]int) {
	type coreKey struct{ pack, die, core int }
	lists := map[coreKey]string{}
	for i, c := range cpus {
		if threads[i] == nil {
			return
		}
		at, list := coreKey{c.Package, c.Die, c.Core}, topology.FormatList(threads[i])
		if have, known := lists[at]; known && have != list {
			for j := range cpus {
				if len(threads[j]) > 0 {
					cpus[j].Core = threads[j][0]
				}
			}
			return
		}
		lists[at] = list
	}
}

// cacheLists has the lists of CPUs that share a CPU's level 2 and 3 caches.
type cacheLists struct{ l2, l3 string }

func (r *reader) caches(cpu string) cacheLists {
	var c cacheLists
	dir := path.Join(cpu, "cache")
	for _, name := range r.names(dir) {
		if _, is := numberAfter(name, "index"); !is || r.text(dir, name, "type") == "Instruction" {
			continue
		}
		switch r.text(dir, name, "level") {
		case "2":
			c.l2 = topology.FormatList(r.list(dir, name, "shared_cpu_list"))
		case "3":
			c.l3 = topology.FormatList(r.list(dir, name, "shared_cpu_list"))
		}
	}
	return c
}

// numberCaches numbers caches in the order of their lowest CPUs. CPUs without a cache, such as
// the low-power cores of some processors, count as one group.
func numberCaches(cpus []topology.CPU, caches []cacheLists) {
	l2, l3 := map[string]int{}, map[string]int{}
	for i, c := range caches {
		cpus[i].L2 = groupNumber(l2, c.l2)
		cpus[i].L3 = groupNumber(l3, c.l3)
	}
}

// groupNumber returns the number of the cache that a list of CPUs shares. It gives each new list the next number.
func groupNumber(known map[string]int, list string) int {
	n, is := known[list]
	if !is {
		n = len(known)
		known[list] = n
	}
	return n
}

// classifyCores finds the efficient cores of hybrid processors. Intel's processors have a PMU for
// each kind of core; ARM's report a capacity relative to the largest core (cpu_capacity, 1024). On
// other processors the highest clock rates decide (slowCPUs).
func (r *reader) classifyCores(cpus []topology.CPU) {
	efficient := map[int]bool{}
	for _, name := range []string{"devices/cpu_atom/cpus", "devices/cpu_lowpower/cpus"} {
		for _, id := range r.list(name) {
			efficient[id] = true
		}
	}
	most := 0
	capacity := make([]int, len(cpus))
	for i, c := range cpus {
		capacity[i] = r.number(0, cpuPath(c.ID), "cpu_capacity")
		most = max(most, capacity[i])
	}
	for i, c := range cpus {
		if capacity[i] > 0 && capacity[i] < most {
			efficient[c.ID] = true
		}
	}
	if len(efficient) == 0 && most == 0 {
		efficient = slowCPUs(cpus)
	}
	hybrid := slices.ContainsFunc(cpus, func(c topology.CPU) bool { return efficient[c.ID] }) &&
		slices.ContainsFunc(cpus, func(c topology.CPU) bool { return !efficient[c.ID] })
	for i := range cpus {
		switch {
		case !hybrid:
		case efficient[cpus[i].ID]:
			cpus[i].Kind = topology.EfficiencyCore
		default:
			cpus[i].Kind = topology.PerformanceCore
		}
	}
}

// slowCPUs returns the CPUs whose highest clock rate is less than four fifths of the highest of
// all; none if a CPU does not report its rate. Differences between cores of one kind are
// smaller.
func slowCPUs(cpus []topology.CPU) map[int]bool {
	most, out := 0, map[int]bool{}
	for _, c := range cpus {
		if most = max(most, c.MaxMHz); c.MaxMHz == 0 {
			return nil
		}
	}
	for _, c := range cpus {
		if c.MaxMHz*5 < most*4 {
			out[c.ID] = true
		}
	}
	return out
}

// devices reads the NUMA nodes and CPUs near PCI functions. It leaves out bridges and the platform's own
// peripherals (classes 05, 06, 08), since no pod needs to be near them.
func (r *reader) devices(cpus []topology.CPU) []topology.Device {
	const dir = "bus/pci/devices"
	index := make(map[int]int, len(cpus))
	for i, c := range cpus {
		index[c.ID] = i
	}
	var out []topology.Device
	for _, address := range r.names(dir) {
		class, err := strconv.ParseUint(strings.TrimPrefix(r.text(dir, address, "class"), "0x"), 16, 24)
		if base := class >> 16; err != nil || base == 0x05 || base == 0x06 || base == 0x08 {
			continue
		}
		d := topology.Device{Address: address, Class: uint32(class), Node: r.number(-1, dir, address, "numa_node")}
		for _, id := range r.list(dir, address, "local_cpulist") {
			if i, known := index[id]; known {
				d.CPUs.Add(i)
			}
		}
		d.Numbers = r.charDeviceNumbers(dir, address)
		out = append(out, d)
	}
	return out
}

// charDeviceNumbers reads the numbers, major:minor, of a PCI function's character devices. The function's directory has
// a directory for each device, such as infiniband_verbs/uverbs0.
func (r *reader) charDeviceNumbers(dir, address string) []string {
	found, err := fs.Glob(r.sys, path.Join(dir, address, "*", "*", "dev"))
	r.keepError(path.Join(dir, address), err)
	var out []string
	for _, name := range found {
		if number := r.text(name); number != "" && path.Base(path.Dir(path.Dir(name))) != "block" {
			out = append(out, number)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
