package choose

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
	"pgregory.net/rapid"
)

// Nodes 0 and 1 have CPUs and DRAM, 2 and 3 are HBM next to them, 4 is PMEM
// behind node 1.
func memoryMachine(t testing.TB) *topology.Machine {
	t.Helper()
	l := topology.Layout{}
	for i := range 8 {
		l.CPUs = append(l.CPUs, topology.CPU{ID: i, Core: i, Node: i / 4, Package: i / 4})
	}
	for id, n := range []topology.Node{
		{Memory: 100, Distance: []int{10, 21, 13, 23, 28}},
		{Memory: 100, Distance: []int{21, 10, 23, 13, 17}},
		{Memory: 20, Kind: topology.HBM, Distance: []int{13, 23, 10, 23, 28}},
		{Memory: 20, Kind: topology.HBM, Distance: []int{23, 13, 23, 10, 28}},
		{Memory: 500, Kind: topology.PMEM, Distance: []int{28, 17, 28, 28, 10}},
	} {
		n.ID = id
		l.Nodes = append(l.Nodes, n)
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNodes(t *testing.T) {
	t.Parallel()
	m := memoryMachine(t)
	both := []topology.MemoryKind{topology.DRAM, topology.HBM}
	slow := []topology.MemoryKind{topology.PMEM}
	further := append(slow, topology.HBM)
	for _, tt := range []struct {
		name string
		q    MemoryRequest
		cpus string
		want string
	}{
		{"the node of the CPUs", MemoryRequest{Bytes: 50}, "0-1", "[0]"},
		{"both nodes of the CPUs, though one would do", MemoryRequest{Bytes: 50}, "3-4", "[0 1]"},
		{"overflow to the nearest DRAM", MemoryRequest{Bytes: 150}, "0-1", "[0 1]"},
		{"HBM of its own node", MemoryRequest{Bytes: 10, Kinds: []topology.MemoryKind{topology.HBM}}, "4", "[3]"},
		{"overflow to HBM before the far DRAM", MemoryRequest{Bytes: 110, Kinds: both}, "4", "[1 3]"},
		{"PMEM only", MemoryRequest{Bytes: 10, Kinds: []topology.MemoryKind{topology.PMEM}}, "0", "[4]"},
		{"what is left counts", MemoryRequest{Bytes: 50, Free: []uint64{40, 90, 0, 0, 0}}, "0", "[0 1]"},
		{"within a bound", MemoryRequest{Bytes: 50, AllowedNodes: []int{1}}, "0", "[1]"},
		{"nothing asked", MemoryRequest{}, "5", "[1]"},
		{"nothing is left there", MemoryRequest{Free: []uint64{0, 90, 0, 0, 0}}, "0", "[0 1]"},
		{"nor at the next", MemoryRequest{Bytes: 1, Free: []uint64{0, 0, 9, 0, 9}, Kinds: both}, "0", "[0 2]"},
		{"nothing is left anywhere", MemoryRequest{Free: make([]uint64, 5)}, "0", "0 bytes of memory are requested, and 0 are free on 2 NUMA nodes"},
		{"further kinds where it does not fit", MemoryRequest{Bytes: 150, FallbackKinds: slow, Free: []uint64{40, 90, 20, 20, 500}}, "0", "[0 1 4]"},
		{"no further kinds where it does", MemoryRequest{Bytes: 130, FallbackKinds: slow, Free: []uint64{40, 90, 20, 20, 500}}, "0", "[0 1]"},
		{"further kinds by distance", MemoryRequest{Bytes: 45, FallbackKinds: further, Free: []uint64{40, 0, 20, 20, 500}}, "0", "[0 2]"},
		{"too much", MemoryRequest{Bytes: 201}, "0", "201 bytes of memory are requested, and 200 are free on 2 NUMA nodes"},
		{"no such kind", MemoryRequest{Kinds: []topology.MemoryKind{topology.NoMemory}}, "0", "0 bytes of memory are requested, and 0 are free on 0 NUMA nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := tt.q
			q.CPUs = cpus(t, m, tt.cpus)
			nodes, err := MemoryNodes(m, q)
			got := text(err)
			if err == nil {
				got = fmt.Sprint(nodes)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// For every request, the answer has enough memory, or all nodes together do not.
func TestNodesHoldWhatIsAsked(t *testing.T) {
	t.Parallel()
	m := memoryMachine(t)
	rapid.Check(t, func(t *rapid.T) {
		q := MemoryRequest{Bytes: rapid.Uint64Range(0, 900).Draw(t, "bytes"), CPUs: someOf(t, m, "cpus")}
		for k := range topology.NoMemory {
			if rapid.Bool().Draw(t, "kind") {
				q.Kinds = append(q.Kinds, k)
			} else if rapid.Bool().Draw(t, "further") && (k != topology.DRAM || len(q.Kinds) > 0) {
				q.FallbackKinds = append(q.FallbackKinds, k)
			}
		}
		for range m.Nodes {
			q.Free = append(q.Free, rapid.Uint64Range(0, 200).Draw(t, "free"))
		}
		var all, got uint64
		kinds := q.Kinds
		if len(kinds) == 0 {
			kinds = []topology.MemoryKind{topology.DRAM}
		}
		for _, i := range usableNodes(m, q.AllowedNodes, append(kinds, q.FallbackKinds...)) {
			all += q.Free[i]
		}
		nodes, err := MemoryNodes(m, q)
		for _, id := range nodes {
			got += q.Free[id]
		}
		if err == nil && got < q.Bytes || err != nil && all >= max(q.Bytes, 1) {
			t.Fatalf("%d wanted, %d on %v, %d in all: %v", q.Bytes, got, nodes, all, err)
		}
	})
}

// twoPackages has two packages of two nodes each: distance 10 to itself, 12 within the package, and 21 or
// 31 across.
func twoPackages(t testing.TB) *topology.Machine {
	t.Helper()
	l := topology.Layout{}
	for i := range 4 {
		l.CPUs = append(l.CPUs, topology.CPU{ID: i, Core: i % 2, Node: i, Package: i / 2})
	}
	for id, far := range [][]int{{10, 12, 31, 21}, {12, 10, 21, 31}, {31, 21, 10, 12}, {21, 31, 12, 10}} {
		l.Nodes = append(l.Nodes, topology.Node{ID: id, Memory: 100, Distance: far})
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSpillsToTheNearest: memory is taken first within the package, then from the nearest node of the other
// one, wherever more is free.
func TestSpillsToTheNearest(t *testing.T) {
	t.Parallel()
	m := twoPackages(t)
	for _, tt := range []struct {
		cpu   string
		bytes uint64
		free  []uint64
		want  string
	}{
		{"0", 110, []uint64{100, 20, 100, 100}, "[0 1]"},
		{"0", 110, []uint64{100, 0, 100, 50}, "[0 3]"},
		{"1", 110, []uint64{0, 100, 20, 100}, "[1 2]"},
		{"1", 150, []uint64{0, 100, 20, 100}, "[1 2 3]"},
		{"3", 10, []uint64{90, 50, 0, 0}, "[0 3]"},
		{"2", 0, []uint64{90, 50, 0, 0}, "[1 2]"},
		{"0-1", 250, []uint64{100, 100, 60, 60}, "[0 1 2]"},
	} {
		got, err := MemoryNodes(m, MemoryRequest{Bytes: tt.bytes, CPUs: cpus(t, m, tt.cpu), Free: tt.free})
		if fmt.Sprint(got) != tt.want || err != nil {
			t.Errorf("%d bytes for CPUs %s of %v: %v, %v, want %s", tt.bytes, tt.cpu, tt.free, got, err, tt.want)
		}
	}
}

// TestCharge: memory is used on the nearest nodes with free memory.
func TestCharge(t *testing.T) {
	t.Parallel()
	m := twoPackages(t)
	for _, tt := range []struct {
		cpus  string
		ids   []int
		bytes uint64
		want  string
	}{
		{"0", []int{0}, 30, "[70 40 100 100]"},
		{"0", []int{0, 1}, 120, "[0 20 100 100]"},
		{"0", []int{0, 1, 3}, 160, "[0 0 100 80]"},
		{"0-1", []int{0, 1}, 60, "[70 10 100 100]"},
		{"0-1", []int{0, 1}, 120, "[20 0 100 100]"},
		{"", []int{1, 2, 3}, 150, "[100 0 45 45]"},
		{"0", []int{0, 7}, 500, "[0 40 100 100]"},
	} {
		free := []uint64{100, 40, 100, 100}
		SubtractMemory(m, free, cpus(t, m, tt.cpus), tt.ids, tt.bytes)
		if fmt.Sprint(free) != tt.want {
			t.Errorf("%d bytes at %v for CPUs %q: %v are left, want %s", tt.bytes, tt.ids, tt.cpus, free, tt.want)
		}
	}
}
