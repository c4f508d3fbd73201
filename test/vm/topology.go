package vm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Topology describes the CPUs and NUMA nodes of a virtual machine.
type Topology struct {
	// Name is a word for logs and for the names of cached files.
	Name string
	// Sockets is the number of sockets. Dies is the number of dies in each socket, Cores the number of cores in each
	// die, and Threads the number of threads in each core.
	Sockets, Dies, Cores, Threads int
	Nodes                         []Node
	// Distances has distances between two different nodes. All other pairs of nodes have the kernel's default of 20.
	Distances []Distance
}

// Node is a NUMA node. If CPUs is "", the node has only memory.
type Node struct {
	CPUs string // a range such as 0-3; QEMU numbers CPUs core by core and die by die, so the threads of a core have neighbouring numbers
	MiB  int    // the size of the memory
}

// Distance is the distance between the nodes From and To, in both directions. Value is a distance as in the kernel's
// files: the distance of a node to itself is 10.
type Distance struct{ From, To, Value int }

// The topologies that the tests use. Each has 2 GiB of memory in total.
var (
	// Flat has 4 CPUs and one NUMA node.
	Flat = Topology{Name: "n1", Sockets: 1, Dies: 1, Cores: 4, Threads: 1, Nodes: []Node{{"0-3", 2048}}}
	// FourNodes has 2 sockets with 2 dies of 2 cores. Each die is a NUMA node. The two dies of a socket are near each
	// other.
	FourNodes = Topology{
		Name: "n4", Sockets: 2, Dies: 2, Cores: 2, Threads: 1,
		Nodes:     []Node{{"0-1", 512}, {"2-3", 512}, {"4-5", 512}, {"6-7", 512}},
		Distances: []Distance{{0, 1, 12}, {2, 3, 12}, {0, 2, 21}, {0, 3, 21}, {1, 2, 21}, {1, 3, 21}},
	}
	// Threads has 2 sockets with 2 cores of 2 threads. Each socket is a NUMA node.
	Threads = Topology{
		Name: "ht", Sockets: 2, Dies: 1, Cores: 2, Threads: 2, Nodes: []Node{{"0-3", 1024}, {"4-7", 1024}},
	}
	// TwoCores has 2 cores of 2 threads, and one NUMA node.
	TwoCores = Topology{Name: "c2", Sockets: 1, Dies: 1, Cores: 2, Threads: 2, Nodes: []Node{{"0-3", 2048}}}
	// FarMemory has 4 CPUs on one NUMA node, and a second NUMA node with only memory.
	FarMemory = Topology{
		Name: "mem", Sockets: 1, Dies: 1, Cores: 4, Threads: 1, Nodes: []Node{{"0-3", 1024}, {"", 1024}},
		Distances: []Distance{{0, 1, 17}},
	}
)

// CPUs returns the number of CPUs.
func (t Topology) CPUs() int { return t.Sockets * t.Dies * t.Cores * t.Threads }

// args returns QEMU's arguments for the topology.
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
		nodes = append(nodes, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", d.From, d.To, d.Value))
	}
	smp := fmt.Sprintf("%d,sockets=%d,dies=%d,cores=%d,threads=%d", t.CPUs(), t.Sockets, t.Dies, t.Cores, t.Threads)
	return append([]string{"-smp", smp, "-m", fmt.Sprintf("%dM", total)}, nodes...)
}

func (t Topology) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s (%d CPUs, %d nodes)", t.Name, t.CPUs(), len(t.Nodes)))
}

// ParseTopology parses the CPUs of a scenario's node, such as "1s x 2n x 4c" (sockets, NUMA nodes of a socket, cores of
// a node). In the result, each NUMA node of a socket is a die. ParseTopology returns an error for more than one thread
// for each core. The reason is that QEMU numbers the threads of a core one after another, but a scenario numbers the
// second threads after all first threads. It also returns an error if the number of cores of a die is not a power of
// two, because kernel 6.1 then does not boot.
func ParseTopology(text string) (Topology, error) {
	cpus, _, _ := strings.Cut(text, ",")
	count := map[byte]int{'s': 1, 'n': 1, 'c': 1, 't': 1}
	for part := range strings.SplitSeq(cpus, "x") {
		part = strings.TrimSpace(part)
		n, err := strconv.Atoi(strings.TrimRight(part, "snct"))
		if err != nil || n < 1 || count[part[len(part)-1]] == 0 {
			return Topology{}, fmt.Errorf("node %q: %q is not a number with the letter s, n, c or t", text, part)
		}
		count[part[len(part)-1]] = n
	}
	if count['t'] > 1 {
		return Topology{}, fmt.Errorf("node %q: %w: a virtual machine numbers the threads of a core one after another", text, errors.ErrUnsupported)
	}
	if n := count['c']; n&(n-1) != 0 { // otherwise the ids of the local APICs have gaps, and the first CPU of the next die stalls
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

// WithMemory returns the topology with other memory. The list mib has the memory size of each NUMA node: first the
// nodes with CPUs, and then nodes with only memory, which WithMemory adds. The table distances has the distance of each
// node to each node, or is empty. WithMemory returns an error for more memory than a guest may have.
func (t Topology) WithMemory(mib []int, distances [][]int) (Topology, error) {
	const most = 4096
	total := 0
	for _, n := range mib {
		total += n
	}
	if total > most {
		return t, fmt.Errorf("topology %s: %w: it has %d MiB of memory, but a virtual machine may have at most %d MiB", t.Name, errors.ErrUnsupported, total, most)
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
