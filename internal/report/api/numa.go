package api

import "github.com/trimtab/trimtab/internal/topology"

// NUMAOf describes a NUMA node of a machine. The package of a node without CPUs is -1.
func NUMAOf(m *topology.Machine, n topology.Node) NUMA {
	out := NUMA{ID: n.ID, CPUs: m.Format(n.CPUs), Memory: n.Memory, Package: -1}
	left := n.CPUs
	if !left.Empty() {
		out.Package = m.CPUs[left.First()].Package
	}
	for !left.Empty() {
		core := m.Groups(topology.CoreLevel)[m.GroupOf(topology.CoreLevel, left.First())]
		out.Cores = append(out.Cores, m.Format(core.And(n.CPUs)))
		left = left.Minus(core)
	}
	for _, cache := range m.Groups(topology.L3Level) {
		if cache = cache.And(n.CPUs); !cache.Empty() && cache != n.CPUs {
			out.Caches = append(out.Caches, m.Format(cache))
		}
	}
	return out
}
