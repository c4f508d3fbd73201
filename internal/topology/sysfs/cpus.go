package sysfs

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// cpuPath returns the path of a CPU's directory below /sys.
func cpuPath(id int) string { return path.Join(cpuDir, "cpu"+strconv.Itoa(id)) }

// cpus reads the directory of each online CPU, and the lists of isolated and
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

// withOffline adds the offline CPUs to cpus, up to topology.MaxCPUs CPUs in all. The kernel's lists of isolated and
// tickless CPUs include offline CPUs. An offline CPU gets the package and die of an online CPU of the same NUMA node.
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

// numberCores makes core numbers unique. On ARM with a device tree, core_id starts at 0 in every cluster. If cores have
// the same number, each core gets the id of its lowest thread as its number.
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

// cacheLists has, for one CPU, the lists of CPUs that share its level 2 cache and its level 3 cache.
type cacheLists struct{ l2, l3 string }

// caches reads the cache lists of a CPU from the CPU's directory.
func (r *reader) caches(cpuDirectory string) cacheLists {
	var c cacheLists
	dir := path.Join(cpuDirectory, "cache")
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

// numberCaches numbers the caches of each level in the order of their lowest CPUs. All CPUs without a cache of a level,
// such as the low-power cores of some processors, get the same number.
func numberCaches(cpus []topology.CPU, caches []cacheLists) {
	l2, l3 := map[string]int{}, map[string]int{}
	for i, c := range caches {
		cpus[i].L2 = cacheNumber(l2, c.l2)
		cpus[i].L3 = cacheNumber(l3, c.l3)
	}
}

// cacheNumber returns the number of the cache that the CPUs of a list share. It gives each new list the next number.
func cacheNumber(known map[string]int, list string) int {
	n, is := known[list]
	if !is {
		n = len(known)
		known[list] = n
	}
	return n
}

// classifyCores finds the efficient cores of hybrid processors. For Intel's processors, the kernel has a PMU for
// each kind of core. For ARM's processors, it reports a capacity relative to the largest core (cpu_capacity, 1024). On
// other processors, cores with a low maximum clock rate count as efficient (slowCPUs).
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

// slowCPUs returns the CPUs whose maximum clock rate is less than four fifths of the highest clock rate on the machine.
// Differences between cores of the same kind are smaller. If the rate of one CPU is unknown, slowCPUs returns nil.
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

// devices reads the PCI functions, with the NUMA node and the CPUs near each function. It leaves out bridges and the
// platform's own peripherals (classes 05, 06, 08), because no pod needs to be near them.
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

// charDeviceNumbers reads the device numbers, major:minor, of the character devices of a PCI function. The directory of
// the PCI function has a directory for each device, such as infiniband_verbs/uverbs0.
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
