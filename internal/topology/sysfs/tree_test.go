package sysfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/trimtab/trimtab/internal/topology"
)

// written returns a machine as the files of /sys from which it would be read. The texts are those that the
// kernel (6.12) writes, as far as Read uses them.
type written struct {
	m     *topology.Machine
	files fstest.MapFS
}

func write(m *topology.Machine) fstest.MapFS {
	w := written{m, fstest.MapFS{}}
	w.lists()
	for i := range m.Online().All() { // the kernel removes the directories of offline CPUs
		w.cpu(i)
	}
	for _, n := range m.Nodes {
		w.node(n)
	}
	for _, d := range m.Devices {
		dir := path.Join("bus/pci/devices", d.Address)
		w.put(fmt.Sprintf("0x%06x", d.Class), dir, "class")
		w.put(strconv.Itoa(d.Node), dir, "numa_node")
		w.put(m.Format(d.CPUs), dir, "local_cpulist")
		for i, number := range d.Numbers {
			w.put(number, dir, "drm", "card"+strconv.Itoa(i), "dev")
		}
		w.put("259:0", dir, "block", "disk", "dev") // numbered separately from the others
	}
	// A bridge and a directory of another driver, which do not count as devices.
	w.put("0x060000", "bus/pci/devices/0000:00:00.0/class")
	w.put("x", "devices/system/node/nodeinfo/cpulist")
	return w.files
}

func (w written) put(text string, parts ...string) {
	w.files[path.Join(parts...)] = &fstest.MapFile{Data: []byte(text + "\n")}
}

func (w written) lists() {
	var all, isolated, noHz, atoms []int
	for _, c := range w.m.CPUs {
		if !c.TopologyUnknown {
			all = append(all, c.ID)
		}
		if c.Isolated {
			isolated = append(isolated, c.ID)
		}
		if c.NoHz {
			noHz = append(noHz, c.ID)
		}
		if c.Kind == topology.EfficiencyCore {
			atoms = append(atoms, c.ID)
		}
	}
	w.put(topology.FormatList(all), cpuDir, "online")
	present := slices.Sorted(slices.Values(append(all, w.m.Offline...)))
	w.put(topology.FormatList(present), cpuDir, "present")
	w.put(topology.FormatList(isolated), cpuDir, "isolated")
	if noHz == nil {
		w.put("  (null)", cpuDir, "nohz_full")
	} else {
		w.put(topology.FormatList(noHz), cpuDir, "nohz_full")
	}
	if atoms != nil {
		w.put(topology.FormatList(atoms), "devices/cpu_atom/cpus")
	}
}

func (w written) cpu(i int) {
	c, dir := w.m.CPUs[i], cpuPath(w.m.CPUs[i].ID)
	list := func(l topology.Level) string { return w.m.Format(w.m.Groups(l)[w.m.GroupOf(l, i)].And(w.m.Online())) }
	w.put(strconv.Itoa(c.Core), dir, "topology/core_id")
	w.put(strconv.Itoa(c.Die), dir, "topology/die_id")
	w.put(strconv.Itoa(c.Package), dir, "topology/physical_package_id")
	w.put(strconv.Itoa(c.Cluster), dir, "topology/cluster_id")
	w.put(list(topology.CoreLevel), dir, "topology/core_cpus_list")
	for index, cache := range []struct{ level, kind, list string }{
		{"1", "Data", list(topology.CoreLevel)},
		{"1", "Instruction", list(topology.CoreLevel)},
		{"2", "Unified", list(topology.L2Level)},
		{"3", "Unified", list(topology.L3Level)},
	} {
		at := path.Join(dir, "cache", "index"+strconv.Itoa(index))
		w.put(cache.level, at, "level")
		w.put(cache.kind, at, "type")
		w.put(cache.list, at, "shared_cpu_list")
	}
	if c.BaseMHz > 0 {
		w.put(strconv.Itoa(c.BaseMHz*1000), dir, "cpufreq/base_frequency")
	}
	if c.MaxMHz > 0 {
		w.put(strconv.Itoa(c.MaxMHz*1000), dir, "cpufreq/cpuinfo_max_freq")
	}
}

func (w written) node(n topology.Node) {
	dir := nodePath(n.ID)
	w.put(w.m.Format(n.CPUs), dir, "cpulist")
	w.put(fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        1 kB", n.ID, n.Memory>>10, n.ID), dir, "meminfo")
	if n.Distance != nil {
		w.put(strings.Trim(fmt.Sprint(n.Distance), "[]"), dir, "distance")
	}
	for _, c := range w.m.CPUs {
		if c.Node == n.ID { // the links stay while a CPU is offline
			w.put("", dir, "cpu"+strconv.Itoa(c.ID), "uevent")
		}
	}
	for bytes, pages := range n.HugePages {
		w.put(strconv.FormatUint(pages, 10), dir, fmt.Sprintf("hugepages/hugepages-%dkB/nr_hugepages", bytes>>10))
	}
	w.put("0", dir, "hugepages/hugepages-4kB/nr_hugepages")
	if n.Memory > 0 {
		tier := dramTier + map[topology.MemoryKind]int{topology.HBM: -1, topology.PMEM: 1}[n.Kind]
		at := path.Join("devices/virtual/memory_tiering", "memory_tier"+strconv.Itoa(tier), "nodelist")
		have := ""
		if f := w.files[at]; f != nil {
			have = strings.TrimSpace(string(f.Data)) + ","
		}
		w.put(have+strconv.Itoa(n.ID), at)
	}
}

// without is a tree in which some files are missing.
type without struct {
	fs.FS
	missing func(name string) bool
}

func (w without) Open(name string) (fs.File, error) {
	if w.missing(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return w.FS.Open(name)
}
