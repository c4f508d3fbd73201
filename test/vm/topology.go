package vm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Topology is the shape of a machine.
type Topology struct {
	// Name is a word for logs and cached files.
	Name string
	// Sockets, dies of a socket, cores of a die, threads of a core.
	Sockets, Dies, Cores, Threads int
	Nodes                         []Node
	// Distances between different nodes; other pairs have the kernel's default of 20.
	Distances []Distance
}

// Node is a NUMA node. Without CPUs it has only memory.
type Node struct {
	CPUs string // in QEMU's numbering: threads of a core, cores of a die, in order; a range such as 0-3
	MiB  int
}

// Distance is the distance of two nodes, in both directions; 10 is a node's distance to itself.
type Distance struct{ From, To, Is int }

// The shapes that the suites use. Memory is 2 GiB in total.
var (
	// Flat has 4 CPUs and one node.
	Flat = Topology{Name: "n1", Sockets: 1, Dies: 1, Cores: 4, Threads: 1, Nodes: []Node{{"0-3", 2048}}}
	// FourNodes has 2 sockets with 2 dies of 2 cores; each die is a NUMA node, near the other die of its
	// socket.
	FourNodes = Topology{
		Name: "n4", Sockets: 2, Dies: 2, Cores: 2, Threads: 1,
		Nodes:     []Node{{"0-1", 512}, {"2-3", 512}, {"4-5", 512}, {"6-7", 512}},
		Distances: []Distance{{0, 1, 12}, {2, 3, 12}, {0, 2, 21}, {0, 3, 21}, {1, 2, 21}, {1, 3, 21}},
	}
	// Threads has 2 sockets, each a node, of 2 cores with 2 threads.
	Threads = Topology{
		Name: "ht", Sockets: 2, Dies: 1, Cores: 2, Threads: 2, Nodes: []Node{{"0-3", 1024}, {"4-7", 1024}},
	}
	// TwoCores has 2 cores with 2 threads and one node.
	TwoCores = Topology{Name: "c2", Sockets: 1, Dies: 1, Cores: 2, Threads: 2, Nodes: []Node{{"0-3", 2048}}}
	// FarMemory has 4 CPUs on one node, and a second node with only memory.
	FarMemory = Topology{
		Name: "mem", Sockets: 1, Dies: 1, Cores: 4, Threads: 1, Nodes: []Node{{"0-3", 1024}, {"", 1024}},
		Distances: []Distance{{0, 1, 17}},
	}
)

// CPUs returns the number of CPUs.
func (t Topology) CPUs() int { return t.Sockets * t.Dies * t.Cores * t.Threads }

// args returns QEMU's arguments for the shape.
func (t Topology) args() []string {
	total := 0
	var nodes []string
	for i, n := range t.Nodes {
		total += n.MiB
		numa := fmt.Sprintf("node,nodeid=%d,memdev=m%d", i, i)
		if n.CPUs != "" {
			numa += ",cpus=" + n.CPUs
		}
		nodes = append(nodes, "-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", i, n.MiB), "-numa", numa)
	}
	for _, d := range t.Distances {
		nodes = append(nodes, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", d.From, d.To, d.Is))
	}
	smp := fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", t.CPUs(), t.Sockets, t.Dies, t.Cores, t.Threads)
	return append([]string{"-smp", smp, "-m", fmt.Sprintf("%dM", total)}, nodes...)
}

func (t Topology) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s (%d CPUs, %d nodes)", t.Name, t.CPUs(), len(t.Nodes)))
}

// ParseTopology makes the shape that a scenario's node describes, such as "1s x 2n x 4c": each NUMA node of a
// socket is a die. It refuses threads, because QEMU numbers the threads of a core one after another and the
// notation numbers them last. It also refuses a number of cores of a die that is not a power of two, with which
// kernel 6.1 does not boot.
func ParseTopology(text string) (Topology, error) {
	cpus, _, _ := strings.Cut(text, ",")
	count := map[byte]int{'s': 1, 'n': 1, 'c': 1, 't': 1}
	for part := range strings.SplitSeq(cpus, "x") {
		part = strings.TrimSpace(part)
		n, err := strconv.Atoi(strings.TrimRight(part, "snct"))
		if err != nil || n < 1 || count[part[len(part)-1]] == 0 {
			return Topology{}, fmt.Errorf("node %q: %q is not a number of s, n, c or t", text, part)
		}
		count[part[len(part)-1]] = n
	}
	if count['t'] > 1 {
		return Topology{}, fmt.Errorf("node %q: %w: a virtual machine numbers the threads of a core one after another", text, errors.ErrUnsupported)
	}
	if n := count['c']; n&(n-1) != 0 { // the local APICs have gaps in their ids, and the first CPU of the next die stalls
		return Topology{}, fmt.Errorf("node %q: %w: a virtual machine with dies of %d cores does not boot", text, errors.ErrUnsupported, n)
	}
	t := Topology{
		Name: fmt.Sprintf("%ds%dn%dc", count['s'], count['n'], count['c']), Sockets: count['s'], Dies: count['n'], Cores: count['c'], Threads: 1,
	}
	nodes := count['s'] * count['n']
	for i := range nodes {
		first := i * count['c']
		t.Nodes = append(t.Nodes, Node{CPUs: fmt.Sprintf("%d-%d", first, first+count['c']-1), MiB: 2048 / nodes})
	}
	return t, nil
}

// WithMemory returns the shape with memory of the given sizes, those of nodes without CPUs last, and the distances of
// all nodes to all, if they are given. It refuses more memory than a guest may have.
func (t Topology) WithMemory(mib []int, distances [][]int) (Topology, error) {
	const most = 4096
	total := 0
	for _, n := range mib {
		total += n
	}
	if total > most {
		return t, fmt.Errorf("%s: %w: %d MiB of memory, and a virtual machine has at most %d", t.Name, errors.ErrUnsupported, total, most)
	}
	if only := len(mib) - len(t.Nodes); only > 0 {
		t.Name += fmt.Sprintf("%dm", only)
	}
	nodes := t.Nodes
	t.Nodes, t.Distances = nil, nil
	for i, n := range mib {
		node := Node{MiB: n}
		if i < len(nodes) {
			node.CPUs = nodes[i].CPUs
		}
		t.Nodes = append(t.Nodes, node)
	}
	for i, row := range distances {
		for j := i + 1; j < len(row); j++ {
			t.Distances = append(t.Distances, Distance{i, j, row[j]})
		}
	}
	return t, nil
}
