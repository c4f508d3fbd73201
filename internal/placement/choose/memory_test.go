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
	for _, tt := range []struct {
		name string
		q    Memory
		cpus string
		want string
	}{
		{"the node of the CPUs", Memory{Bytes: 50}, "0-1", "[0]"},
		{"both nodes of the CPUs, though one would do", Memory{Bytes: 50}, "3-4", "[0 1]"},
		{"overflow to the nearest DRAM", Memory{Bytes: 150}, "0-1", "[0 1]"},
		{"HBM of its own node", Memory{Bytes: 10, Kinds: []topology.MemoryKind{topology.HBM}}, "4", "[3]"},
		{"overflow to HBM before the far DRAM", Memory{Bytes: 110, Kinds: both}, "4", "[1 3]"},
		{"PMEM only", Memory{Bytes: 10, Kinds: []topology.MemoryKind{topology.PMEM}}, "0", "[4]"},
		{"what is left counts", Memory{Bytes: 50, Free: []uint64{40, 90, 0, 0, 0}}, "0", "[0 1]"},
		{"within a bound", Memory{Bytes: 50, Within: []int{1}}, "0", "[1]"},
		{"nothing asked", Memory{}, "5", "[1]"},
		{"too much", Memory{Bytes: 201}, "0", "201 bytes of memory are wanted, and 200 are left on 2 NUMA nodes"},
		{"no such kind", Memory{Kinds: []topology.MemoryKind{topology.NoMemory}}, "0", "0 bytes of memory are wanted, and 0 are left on 0 NUMA nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := tt.q
			q.CPUs = cpus(t, m, tt.cpus)
			nodes, err := Nodes(m, q)
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

// Whatever is asked: what is answered holds it, or all together do not.
func TestNodesHoldWhatIsAsked(t *testing.T) {
	t.Parallel()
	m := memoryMachine(t)
	rapid.Check(t, func(t *rapid.T) {
		q := Memory{Bytes: rapid.Uint64Range(0, 900).Draw(t, "bytes"), CPUs: someOf(t, m, "cpus")}
		for k := range topology.NoMemory {
			if rapid.Bool().Draw(t, "kind") {
				q.Kinds = append(q.Kinds, k)
			}
		}
		for range m.Nodes {
			q.Free = append(q.Free, rapid.Uint64Range(0, 200).Draw(t, "free"))
		}
		var all, got uint64
		for _, i := range usableNodes(m, q) {
			all += q.Free[i]
		}
		nodes, err := Nodes(m, q)
		for _, id := range nodes {
			got += q.Free[id]
		}
		if err == nil && got < q.Bytes || err != nil && all >= q.Bytes {
			t.Fatalf("%d wanted, %d on %v, %d in all: %v", q.Bytes, got, nodes, all, err)
		}
	})
}
