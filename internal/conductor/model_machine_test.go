package conductor_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/topology"
)

// eight is a machine with eight CPUs, two per core, on two NUMA nodes.
func eight(t testing.TB) *topology.Machine {
	t.Helper()
	var cpus []topology.CPU
	for i := range 8 {
		cpus = append(cpus, topology.CPU{ID: i, Core: i / 2, Node: i / 4})
	}
	m, err := topology.New(cpus, map[int]uint64{0: 1 << 30, 1: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// anyMachine draws a machine of 1 to 64 NUMA nodes.
func anyMachine(t *rapid.T) *topology.Machine {
	nodes := rapid.SampledFrom([]int{1, 2, 3, 4, 8, 17, 64}).Draw(t, "nodes")
	cores := rapid.IntRange(max(4, nodes), max(12, 2*nodes)).Draw(t, "cores")
	return oddMachine(nodes, cores, rapid.Bool().Draw(t, "scattered"), rapid.Uint64Range(0, 999).Draw(t, "odd"))
}

// oddMachine makes a machine with sparse ids and cores of one to three threads, some of whose
// CPUs are offline. At least four CPUs are online, the first included. The cores of a node have
// consecutive ids, or scattered ones.
func oddMachine(nodes, cores int, scattered bool, seed uint64) *topology.Machine {
	odd := rand.New(rand.NewPCG(seed, 0))
	oneOf := func(n ...int) int { return n[odd.IntN(len(n))] }
	var all []topology.CPU
	var online []int
	id, memory := oneOf(0, 0, 1, 3), map[int]uint64{}
	for core := range cores {
		node := core * nodes / cores
		if scattered {
			node = core % nodes
		}
		memory[node] = 1 << 30
		for range oneOf(2, 2, 1, 3) {
			all = append(all, topology.CPU{ID: id, Core: core, Node: node})
			if len(online) < 4 || odd.IntN(10) > 0 {
				online = append(online, id)
			}
			id += oneOf(1, 1, 1, 2, 5)
		}
	}
	m, err := topology.New(all, memory)
	must(err)
	m, _ = m.WithOnline(online)
	return m
}
