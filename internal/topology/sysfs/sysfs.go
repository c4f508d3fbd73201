// Package sysfs reads a machine from a /sys tree. It reads only what decides
// about placement: online CPUs, their cores and packages, NUMA nodes and their
// memory.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

const (
	cpuDir  = "devices/system/cpu"
	nodeDir = "devices/system/node"
)

// Read makes the machine a tree rooted at /sys describes. Only the list of
// online CPUs must be there. Without topology files every CPU is a core of its
// own in one package; without NUMA directories there is one node 0 with all
// CPUs and unknown memory. A file that is there and makes no sense is an error.
func Read(fsys fs.FS) (*topology.Machine, error) {
	text, err := fs.ReadFile(fsys, path.Join(cpuDir, "online"))
	if err != nil {
		return nil, fmt.Errorf("read online CPUs: %w", err)
	}
	online, err := topology.ParseList(string(text))
	if err != nil {
		return nil, fmt.Errorf("read online CPUs: %w", err)
	}
	nodeOf, memory, err := readNodes(fsys)
	if err != nil {
		return nil, err
	}
	cpus := make([]topology.CPU, 0, len(online))
	for _, id := range online {
		c := topology.CPU{ID: id, Node: nodeOf[id]}
		dir := path.Join(cpuDir, "cpu"+strconv.Itoa(id), "topology")
		if c.Core, err = readID(fsys, path.Join(dir, "core_id"), id); err != nil {
			return nil, err
		}
		if c.Package, err = readID(fsys, path.Join(dir, "physical_package_id"), 0); err != nil {
			return nil, err
		}
		cpus = append(cpus, c)
	}
	return topology.New(cpus, memory)
}

// readNodes returns the node of each CPU and the memory of each node. A CPU in
// no node's list is left at node 0, as the kernel does itself.
func readNodes(fsys fs.FS) (nodeOf map[int]int, memory map[int]uint64, err error) {
	nodeOf, memory = map[int]int{}, map[int]uint64{}
	entries, err := fs.ReadDir(fsys, nodeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nodeOf, memory, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read NUMA nodes: %w", err)
	}
	for _, e := range entries {
		number, isNode := strings.CutPrefix(e.Name(), "node")
		id, err := strconv.Atoi(number)
		if !isNode || err != nil || id < 0 || id > topology.MaxID {
			continue // has_cpu, online, power and the like
		}
		list, err := readOptional(fsys, path.Join(nodeDir, e.Name(), "cpulist"))
		if err != nil {
			return nil, nil, err
		}
		cpus, err := topology.ParseList(list)
		if err != nil {
			return nil, nil, fmt.Errorf("read CPUs of NUMA node %d: %w", id, err)
		}
		for _, c := range cpus {
			nodeOf[c] = id
		}
		if memory[id], err = readMemory(fsys, path.Join(nodeDir, e.Name(), "meminfo")); err != nil {
			return nil, nil, err
		}
	}
	return nodeOf, memory, nil
}

// readMemory finds "Node 0 MemTotal:  12345 kB".
func readMemory(fsys fs.FS, name string) (uint64, error) {
	text, err := readOptional(fsys, name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 5 || f[2] != "MemTotal:" || f[4] != "kB" {
			continue
		}
		kib, err := strconv.ParseUint(f[3], 10, 53)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		return kib << 10, nil
	}
	return 0, nil
}

// readID reads one number. Some virtual machines say -1 for "not known", which
// is def like a missing file.
func readID(fsys fs.FS, name string, def int) (int, error) {
	text, err := readOptional(fsys, name)
	if err != nil || text == "" {
		return def, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	if n < 0 {
		return def, nil
	}
	return n, nil
}

func readOptional(fsys fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}
