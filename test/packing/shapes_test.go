package packing

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// shape is a machine on which histories are played.
type shape struct {
	name, about string
	build       func() (topology.Layout, error)
}

const gib = 1 << 30

// shapes are typical machines: servers and a desktop.
var shapes = []shape{
	{"rome", "2 × 64 cores, 2 threads, 8 NUMA nodes, L3 caches of 8 CPUs", func() (topology.Layout, error) {
		return described("2s x 4n x 4l x 4c x 2t, 64GiB/node", 12, 32)
	}},
	{"hybrid", "8 cores of 2 threads and 16 efficient ones, 1 NUMA node", hybrid},
	{"cxl", "2 × 32 cores, 2 threads, L3 caches of 16 CPUs, 2 NUMA nodes and 2 of memory alone", func() (topology.Layout, error) {
		l, err := described("2s x 1n x 4l x 8c x 2t, 256GiB/node", 21, 21)
		for id := range 2 {
			l.Nodes = append(l.Nodes, topology.Node{ID: 2 + id, Memory: 256 * gib, Kind: topology.PMEM})
		}
		for i, far := range [][]int{{10, 21, 24, 34}, {21, 10, 34, 24}, {24, 34, 10, 44}, {34, 24, 44, 10}} {
			l.Nodes[i].Distance = far
		}
		return l, err
	}},
	{"oneL3", "2 × 28 cores, 2 threads, one L3 cache and one NUMA node each", func() (topology.Layout, error) {
		return described("2s x 1n x 1l x 28c x 2t, 192GiB/node", 21, 21)
	}},
}

// described parses a layout, and adds the distances within and between packages, and a device at every second node.
func described(text string, near, far int) (topology.Layout, error) {
	m, err := describe.Parse(text)
	if err != nil {
		return topology.Layout{}, err
	}
	l := topology.Layout{CPUs: m.CPUs, Nodes: m.Nodes}
	packageOf := func(node int) int { return m.CPUs[m.Nodes[node].CPUs.First()].Package }
	for i := range l.Nodes {
		l.Nodes[i].Distance = nil
		for j := range l.Nodes {
			distance := far
			switch {
			case i == j:
				distance = 10
			case packageOf(i) == packageOf(j):
				distance = near
			}
			l.Nodes[i].Distance = append(l.Nodes[i].Distance, distance)
		}
		if i%2 == 1 {
			l.Devices = append(l.Devices, topology.Device{Address: address(i), Node: i})
		}
	}
	return l, nil
}

// address returns the PCI address of the device at a NUMA node.
func address(node int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10+node) }

// hybrid returns a processor with two kinds of cores. CPUs are numbered as Linux does there: both threads of a core in
// a row.
func hybrid() (topology.Layout, error) {
	l := topology.Layout{Nodes: []topology.Node{{ID: 0, Memory: 64 * gib}}}
	for id := range 32 {
		c := topology.CPU{ID: id, Core: id / 2, L2: id / 2, Kind: topology.PerformanceCore}
		if id >= 16 {
			c.Core, c.L2, c.Kind = id-8, 8+(id-16)/4, topology.EfficiencyCore
		}
		l.CPUs = append(l.CPUs, c)
	}
	return l, nil
}

// machine builds a shape.
func (s shape) machine(tb testing.TB) *topology.Machine {
	tb.Helper()
	l, err := s.build()
	if err != nil {
		tb.Fatal(err)
	}
	m, err := topology.Build(l)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// shapeNamed finds a shape.
func shapeNamed(tb testing.TB, name string) shape {
	tb.Helper()
	for _, s := range shapes {
		if s.name == name {
			return s
		}
	}
	tb.Fatalf("there is no shape %q", name)
	return shape{}
}
