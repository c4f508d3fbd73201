package choose

import (
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// TestUsedMachine: if others own a part of everything, the place of the free CPUs decides, not their
// number.
func TestUsedMachine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, machine, from, shared, beside, near string

		leave []NodeReserve
		want  Request
		cpus  string
	}{
		{name: "whole cores rather than halves beside others", machine: "2n x 4c x 2t", from: "0-3,4-7,12-15", want: Request{N: 4}, cpus: "4-5,12-13"},
		{name: "one half is all that is wanted", machine: "2n x 4c x 2t", from: "0-3,4-7,12-15", want: Request{N: 1}, cpus: "0"},
		{name: "two whole cores and a half", machine: "2n x 4c x 2t", from: "0-3,4-7,12-14", want: Request{N: 5}, cpus: "4-5,7,12-13"},
		{name: "halves of one node rather than cores of two", machine: "2n x 4c x 2t", from: "0-3,8,4,12", want: Request{N: 4}, cpus: "0-2,8"},
		{name: "FullPCPUs: cores of two nodes rather than halves of one", machine: "2n x 4c x 2t", from: "0-3,8,4,12", want: Request{N: 4, Cores: PreferWhole}, cpus: "0,4,8,12"},
		{name: "FullPCPUs: cores of two caches rather than halves of one", machine: "2l x 4c x 2t", from: "0-3,8,4,12", want: Request{N: 4, Cores: PreferWhole}, cpus: "0,4,8,12"},
		{name: "FullPCPUs: too few whole cores", machine: "2n x 4c x 2t", from: "0-3,8,4-5,12", want: Request{N: 5, Cores: PreferWhole}, cpus: "0-3,8"},
		{name: "FullPCPUs: less than a core", machine: "2n x 4c x 2t", from: "0-3,4-7,12-15", want: Request{N: 1, Cores: PreferWhole}, cpus: "0"},
		{name: "FullPCPUs: an odd number", machine: "2n x 4c x 2t", from: "0-3,4-7,12-15", want: Request{N: 3, Cores: PreferWhole}, cpus: "4-5,12"},
		{name: "CPUs others portion are no reason for two nodes", machine: "2s x 4c x 2t", from: "0-9", shared: "0", want: Request{N: 6}, cpus: "0-3,8-9"},
		{name: "the socket with the fewest of them, of two", machine: "2s x 4c x 2t", from: "0-15", shared: "0-1,8,4", want: Request{N: 6}, cpus: "5-7,13-15"},
		{name: "cores without them", machine: "4c x 2t", from: "0-7", shared: "0,5", want: Request{N: 4}, cpus: "2-3,6-7"},
		{name: "threads without them", machine: "4c x 2t", from: "0-7", shared: "0-2,4-6", want: Request{N: 3}, cpus: "0,3,7"},
		{name: "caches without them", machine: "4l x 2c x 2t", from: "0-15", shared: "0,8", want: Request{N: 8}, cpus: "2-5,10-13"},
		{name: "others need a part of a node", machine: "2s x 4c x 2t", from: "0-3,8-11,4-6,12-14", leave: []NodeReserve{{Node: 1, N: 4}}, want: Request{N: 4}, cpus: "0-1,8-9"},
		{name: "and have it elsewhere", machine: "2s x 4c x 2t", from: "0-3,8-11,4-6,12-13", leave: []NodeReserve{{Node: 1, CPUs: topology.SetOf(7, 14, 15), N: 4}}, want: Request{N: 4}, cpus: "4-5,12-13"},
		{name: "and there is not enough beside", machine: "2s x 4c x 2t", from: "0-7", leave: []NodeReserve{{Node: 1, N: 4}, {Node: 0, N: 1}}, want: Request{N: 4}, cpus: "0-3"},
		{name: "beside what it has, and one node more", machine: "2s x 2n x 4c x 2t", from: "2-3,4-7,8-15", beside: "0-1,16-19", want: Request{N: 4}, cpus: "2-5"},
		{name: "beside on the other socket only what its own has not", machine: "2s x 4c x 2t", from: "3,11,4-7,12-15", beside: "0-2,8-10", want: Request{N: 4}, cpus: "3-4,11-12"},
		{name: "the most near devices that fit", machine: "2s x 2n x 4c x 2t", from: "0-31", near: "8-11,24-26", want: Request{N: 12}, cpus: "8-13,24-29"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, tt.machine)
			tt.want.From, tt.want.Shared, tt.want.UsedWith, tt.want.Reserve = cpus(t, m, tt.from), cpus(t, m, tt.shared), cpus(t, m, tt.beside), tt.leave
			if near := cpus(t, m, tt.near); !near.Empty() {
				tt.want.Preferences = []Preference{{Name: "its devices", CPUs: near, Partly: true}}
			}
			for i, l := range tt.leave {
				if l.CPUs.Empty() {
					tt.leave[i].CPUs = m.Nodes[l.Node].CPUs.And(tt.want.From)
				}
			}
			got, err := NewTree(m).Choose(tt.want)
			if err != nil || m.Format(got.CPUs) != tt.cpus {
				t.Errorf("%s, %v, by %v; want %s", m.Format(got.CPUs), err, got.Why, tt.cpus)
			}
		})
	}
}

// hybrid is a machine with eight performance cores of two threads and two clusters of four efficient cores,
// which share an L3 cache, on each of some NUMA nodes.
func hybrid(t *testing.T, nodes int) *topology.Machine {
	t.Helper()
	var all []topology.CPU
	for i := range 24 * nodes {
		c := topology.CPU{ID: i, Node: i / 24, Package: i / 24, L3: i / 24, Core: i, L2: i, Kind: topology.EfficiencyCore}
		if n := i % 24; n < 16 {
			c.Core, c.L2, c.Kind = i/2, i/2, topology.PerformanceCore
		} else {
			c.L2 = 1000 + i/4
		}
		all = append(all, c)
	}
	m, err := topology.New(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestOneKindOfCores: an owner's threads are equally fast if one kind of cores is enough, without using
// more NUMA nodes for it.
func TestOneKindOfCores(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, from string
		nodes      int
		want       Request
		cpus, why  string
	}{
		{name: "ten of fifteen threads", nodes: 1, from: "1-23", want: Request{N: 10}, cpus: "2-11", why: "core kind: the only one that has enough CPUs"},
		{name: "eight", nodes: 1, from: "1-23", want: Request{N: 8}, cpus: "2-9", why: "core kind: of 2 with enough CPUs, the one with the fewest efficient cores"},
		{name: "eight, with seven threads left", nodes: 1, from: "1,3-8,16-23", want: Request{N: 8}, cpus: "16-23"},
		{name: "more than one kind has", nodes: 1, from: "1-23", want: Request{N: 17}, cpus: "2-15,16-18", why: "no single core kind has enough CPUs: as few as possible of 2 core kinds"},
		{name: "the node where one kind holds it", nodes: 2, from: "0-7,16-23,24-39", want: Request{N: 10}, cpus: "24-33"},
		{name: "both kinds rather than two nodes", nodes: 2, from: "0-7,16-23,24-31", want: Request{N: 10}, cpus: "0-7,16-17"},
		{name: "whole cores of one kind", nodes: 1, from: "0-23", want: Request{N: 10, Cores: WholeCores}, cpus: "0-9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := hybrid(t, tt.nodes)
			tt.want.From = cpus(t, m, tt.from)
			got, err := NewTree(m).Choose(tt.want)
			if err != nil || got.CPUs != cpus(t, m, tt.cpus) {
				t.Fatalf("%s, %v, by %v; want %s", m.Format(got.CPUs), err, got.Why, tt.cpus)
			}
			if said := got.Why[len(got.Why)-1].String(); tt.why != "" && got.Why[0].String() != tt.why && said != tt.why {
				t.Errorf("it says %q and %q, not %q", got.Why[0], said, tt.why)
			}
		})
	}
}
