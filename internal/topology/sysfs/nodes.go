package sysfs

import (
	"path"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodePath returns the path of a NUMA node's directory below /sys.
func nodePath(id int) string { return path.Join(nodeDir, "node"+strconv.Itoa(id)) }

// nodes reads the NUMA nodes. The result nodeOf has the node of each CPU. The result local has the ids of the nodes
// that have CPUs, online or not.
func (r *reader) nodes() (nodes []topology.Node, nodeOf map[int]int, local map[int]bool) {
	nodeOf, local = map[int]int{}, map[int]bool{}
	for _, name := range r.names(nodeDir) {
		id, is := numberAfter(name, "node")
		if !is {
			continue // other entries, such as has_cpu, online, power
		}
		dir := nodePath(id)
		n := topology.Node{ID: id, HugePages: r.hugePagesAt(dir), Distance: r.distance(dir)}
		for _, c := range r.list(dir, "cpulist") {
			nodeOf[c], local[id] = id, true
		}
		for _, entry := range r.names(dir) { // the links cpuN also exist for offline CPUs
			if c, isCPU := numberAfter(entry, "cpu"); isCPU {
				nodeOf[c], local[id] = id, true
			}
		}
		var found bool
		if n.Memory, found = r.memory(dir); found && n.Memory == 0 {
			n.Kind = topology.NoMemory
		}
		nodes = append(nodes, n)
	}
	return nodes, nodeOf, local
}

// memory reads a node's amount of memory from the line "Node 0 MemTotal:  12345 kB".
func (r *reader) memory(dir string) (bytes uint64, found bool) {
	for line := range strings.Lines(r.text(dir, "meminfo")) {
		f := strings.Fields(line)
		if len(f) != 5 || f[2] != "MemTotal:" || f[4] != "kB" {
			continue
		}
		kib, err := strconv.ParseUint(f[3], 10, 53)
		r.keepError(path.Join(dir, "meminfo"), err)
		return kib << 10, true
	}
	return 0, false
}

// distance reads the distances from a node to all nodes, in the order of the nodes.
func (r *reader) distance(dir string) []int {
	var out []int
	for field := range strings.FieldsSeq(r.text(dir, "distance")) {
		d, err := strconv.Atoi(field)
		r.keepError(path.Join(dir, "distance"), err)
		out = append(out, d)
	}
	return out
}

// checkDistances removes all distances if a node does not have a distance to each node. This happens if a node
// appeared or disappeared while the files were read, or if the firmware did not report some distances.
func checkDistances(nodes []topology.Node) {
	complete := true
	for _, n := range nodes {
		complete = complete && len(n.Distance) == len(nodes)
	}
	for i := range nodes {
		if !complete {
			nodes[i].Distance = nil
		}
	}
}

// hugePagesAt reads the number of huge pages of a node, by page size in bytes.
func (r *reader) hugePagesAt(node string) map[uint64]uint64 {
	var out map[uint64]uint64
	dir := path.Join(node, "hugepages")
	for _, name := range r.names(dir) {
		text, is := strings.CutPrefix(strings.TrimSuffix(name, "kB"), "hugepages-")
		kB, err := strconv.ParseUint(text, 10, 40)
		n := r.number(0, dir, name, "nr_hugepages")
		if !is || err != nil || n == 0 {
			continue
		}
		if out == nil {
			out = map[uint64]uint64{}
		}
		out[kB<<10] = uint64(n)
	}
	return out
}
