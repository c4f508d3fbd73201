package sysfs

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// tiers reads the kernel's memory tier of each node, by node id. The kernel has tiers since 6.1. A lower tier is
// faster memory; DRAM is tier 4 (MEMTIER_ADISTANCE_DRAM in include/linux/memory-tiers.h).
func (r *reader) tiers() map[int]int {
	const dir = "devices/virtual/memory_tiering"
	out := map[int]int{}
	for _, name := range r.names(dir) {
		tier, is := numberAfter(name, "memory_tier")
		if !is {
			continue
		}
		for _, id := range r.list(dir, name, "nodelist") {
			out[id] = tier
		}
	}
	return out
}

// bandwidths reads the bandwidth with which the nearest CPUs read a node's memory, in MB/s by node id. Nodes whose
// bandwidth the firmware does not report (HMAT) are left out.
func (r *reader) bandwidths(nodes []topology.Node) map[int]int {
	out := map[int]int{}
	for _, n := range nodes {
		if mb := r.number(0, nodePath(n.ID), "access0/initiators/read_bandwidth"); mb > 0 {
			out[n.ID] = mb
		}
	}
	return out
}

// classifyMemory sets the kind of memory of nodes without CPUs. It uses the kernel's memory tier, or else the
// bandwidth, or else the size. It compares bandwidth and size with the average of the nodes with CPUs: HBM is
// smaller than the DRAM next to it, and PMEM and CXL memory are larger. The map local has the ids of the nodes with
// CPUs, online or not.
func classifyMemory(nodes []topology.Node, local map[int]bool, tiers, bandwidths map[int]int) {
	var bytes, n, speed, timed int
	for _, node := range nodes {
		if !local[node.ID] || node.Memory == 0 {
			continue
		}
		bytes, n = bytes+int(node.Memory>>10), n+1
		if mb := bandwidths[node.ID]; mb > 0 {
			speed, timed = speed+mb, timed+1
		}
	}
	for i := range nodes {
		node := &nodes[i]
		if local[node.ID] || node.Memory == 0 || n == 0 {
			continue
		}
		tier, mb := tiers[node.ID], bandwidths[node.ID]
		switch {
		case hasSeveralTiers(tiers) && tier > 0: // with only one tier, the kernel does not distinguish kinds of memory
			node.Kind = kindBySpeed(dramTier - tier)
		case mb > 0 && timed > 0:
			node.Kind = kindBySpeed(mb - speed/timed)
		default:
			node.Kind = kindBySpeed(bytes/n - int(node.Memory>>10))
		}
	}
}

// dramTier is the kernel's memory tier of DRAM.
const dramTier = 4

// kindBySpeed returns HBM for memory that is faster than DRAM (faster is above 0), PMEM for slower memory, and
// otherwise DRAM.
func kindBySpeed(faster int) topology.MemoryKind {
	switch {
	case faster > 0:
		return topology.HBM
	case faster < 0:
		return topology.PMEM
	}
	return topology.DRAM
}

// hasSeveralTiers reports whether the nodes have more than one tier.
func hasSeveralTiers(tiers map[int]int) bool {
	seen := map[int]bool{}
	for _, t := range tiers {
		seen[t] = true
	}
	return len(seen) > 1
}
