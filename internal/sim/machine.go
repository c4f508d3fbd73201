package sim

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/captured"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// Machine makes the machine that a scenario describes. If from is not nil, it returns the machine that was captured
// from a real node.
func Machine(n scenario.Node, from *captured.Node) (*topology.Machine, error) {
	if from != nil {
		return from.Machine, nil
	}
	return machineOf(n)
}

// machineOf makes the machine of a scenario's node.
func machineOf(n scenario.Node) (*topology.Machine, error) {
	m, err := describe.ParsePresent(n.CPUs, n.Present)
	if err != nil || !n.HasSpecialProperties() {
		return m, err
	}
	l := topology.Layout{CPUs: m.CPUs, Nodes: m.Nodes}
	isolated, err := m.ParseCPUs(n.Isolated)
	if err != nil {
		return nil, fmt.Errorf("node.isolated: %w", err)
	}
	efficient, err := m.ParseCPUs(n.Efficient)
	if err != nil {
		return nil, fmt.Errorf("node.efficient: %w", err)
	}
	for i := range l.CPUs {
		l.CPUs[i].Isolated = isolated.Has(i)
		switch {
		case efficient.Has(i):
			l.CPUs[i].Kind = topology.EfficiencyCore
		case !efficient.Empty():
			l.CPUs[i].Kind = topology.PerformanceCore
		}
	}
	if n.WithoutNUMA { // package topology/sysfs returns the same for a kernel without NUMA nodes
		l.Nodes = nil
		for i := range l.CPUs {
			l.CPUs[i].Node = 0
		}
	}
	if err := describeMemory(&l, n); err != nil {
		return nil, err
	}
	for address, node := range n.Cards {
		if _, is := m.Node(node); !is {
			return nil, fmt.Errorf("node.cards: card %s: the machine has no NUMA node %d", address, node)
		}
		l.Devices = append(l.Devices, topology.Device{Address: address, Node: node})
	}
	return topology.Build(l)
}

// describeMemory adds the NUMA nodes without CPUs and the distances between NUMA nodes.
func describeMemory(l *topology.Layout, n scenario.Node) error {
	for _, size := range n.FarMemory {
		bytes, err := lifecycle.Quantity(size, 1)
		if err != nil {
			return fmt.Errorf("node.farMemory: %q: %w", size, err)
		}
		kind := topology.PMEM
		if uint64(bytes) < l.Nodes[0].Memory { // decides by the size, as package topology/sysfs does if it has no better data
			kind = topology.HBM
		}
		l.Nodes = append(l.Nodes, topology.Node{ID: len(l.Nodes), Memory: uint64(bytes), Kind: kind})
	}
	if len(n.Distances) > 0 && len(n.Distances) != len(l.Nodes) {
		return fmt.Errorf("node.distances has %d rows, but the machine has %d NUMA nodes: write one row for each node", len(n.Distances), len(l.Nodes))
	}
	for i, row := range n.Distances {
		l.Nodes[i].Distance = row
	}
	return nil
}
