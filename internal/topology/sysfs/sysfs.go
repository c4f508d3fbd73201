// Package sysfs reads the topology of a machine from a /sys tree: CPUs with their cores, clusters,
// dies, packages, caches, kinds of cores and clock rates; isolated and tickless CPUs; NUMA nodes
// with size and kind of memory, distances and huge pages; and the NUMA nodes of PCI devices. For
// offline CPUs it reads only the NUMA node, and whether the CPUs are isolated or tickless, because
// the kernel hides the rest. Every file except the list of online CPUs may be missing.
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
	// cpuDir and nodeDir are the directories of CPUs and of NUMA nodes below /sys.
	cpuDir  = "devices/system/cpu"
	nodeDir = "devices/system/node"
)

// Read reads a machine from the files of /sys. Only the list of online CPUs must exist.
// Without topology files, every CPU counts as a core of its own, and all CPUs are in one package.
// Without NUMA directories, there is one node 0 with all CPUs and unknown memory. A malformed file
// is an error.
func Read(fsys fs.FS) (*topology.Machine, error) {
	text, err := fs.ReadFile(fsys, path.Join(cpuDir, "online"))
	if err != nil {
		return nil, fmt.Errorf("read online CPUs: %w", err)
	}
	online, err := topology.ParseList(string(text))
	if err != nil {
		return nil, fmt.Errorf("read online CPUs: %w", err)
	}
	r := &reader{sys: fsys}
	l := topology.Layout{CPUs: r.cpus(online), Offline: r.offline(online)}
	nodes, nodeOf := r.readNodes()
	l.Nodes = nodes
	for i := range l.CPUs {
		l.CPUs[i].Node = nodeOfCPU(l.CPUs[i].ID, nodeOf, l.Nodes)
	}
	r.classifyCores(l.CPUs)
	l.CPUs = r.withOffline(l.CPUs, l.Offline, func(id int) int { return nodeOfCPU(id, nodeOf, l.Nodes) })
	l.Devices = r.devices(l.CPUs)
	if r.err != nil {
		return nil, r.err
	}
	return topology.Build(l)
}

// ReadMemory reads only the NUMA nodes with their current memory, without their CPUs.
func ReadMemory(fsys fs.FS) ([]topology.Node, error) {
	r := &reader{sys: fsys}
	nodes, _ := r.readNodes()
	return nodes, r.err
}

// readNodes reads the NUMA nodes with all properties of their memory, and the node of each CPU.
func (r *reader) readNodes() (nodes []topology.Node, nodeOf map[int]int) {
	nodes, nodeOf, local := r.nodes()
	checkDistances(nodes)
	classifyMemory(nodes, local, r.tiers(), r.bandwidths(nodes))
	return nodes, nodeOf
}

// nodeOfCPU returns the node of a CPU. A CPU that no node lists is on the first node, as in the
// kernel.
func nodeOfCPU(cpu int, nodeOf map[int]int, nodes []topology.Node) int {
	if id, known := nodeOf[cpu]; known || len(nodes) == 0 {
		return id
	}
	first := nodes[0].ID
	for _, n := range nodes {
		first = min(first, n.ID)
	}
	return first
}

// reader reads small files. It keeps the first error; a missing file is no error.
type reader struct {
	sys fs.FS
	err error
}

// keepError keeps the first error, with the name of the file.
func (r *reader) keepError(name string, err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("read %s: %w", name, err)
	}
}

// text returns the content of a file without surrounding space; "" if the file is missing. Some files cannot be read
// while a CPU goes offline, or if a driver does not know the value. Such files count as missing.
func (r *reader) text(parts ...string) string {
	name := path.Join(parts...)
	b, err := fs.ReadFile(r.sys, name)
	if !isAbsent(err) {
		r.keepError(name, err)
	}
	return strings.TrimSpace(string(b))
}

// number reads one number from a file. It returns def if the file is missing, or if the number means "not known":
// -1 on some machines, and sometimes 0xffff on x86.
func (r *reader) number(def int, parts ...string) int {
	text := r.text(parts...)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		r.keepError(path.Join(parts...), err)
	}
	if n < 0 || n == 0xffff {
		return def
	}
	return n
}

// list reads a kernel list of ids. Some kernels write an empty list as "(null)".
func (r *reader) list(parts ...string) []int {
	text := r.text(parts...)
	if text == "(null)" {
		return nil
	}
	ids, err := topology.ParseList(text)
	r.keepError(path.Join(parts...), err)
	return ids
}

// names returns the names of the entries of a directory; none if the directory is missing.
func (r *reader) names(parts ...string) []string {
	name := path.Join(parts...)
	entries, err := fs.ReadDir(r.sys, name)
	if !isAbsent(err) {
		r.keepError(name, err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// isAbsent reports whether err is nil, or means that a file is missing or has no known value. Drivers return ENODEV,
// ENXIO, EINVAL and similar errors for unknown values. A file without read permission is not absent.
func isAbsent(err error) bool {
	return err == nil || errors.Is(err, fs.ErrNotExist) || isUnknown(err)
}

// numberAfter returns the number after a prefix: 3 for "node3".
func numberAfter(name, prefix string) (int, bool) {
	text, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && n <= topology.MaxID && text == strconv.Itoa(n)
}
