package topology

import (
	"fmt"
	"slices"
)

// Machine is what the node is: its online CPUs and their places, and its NUMA
// nodes. It is a value made once (by sysfs or describe) and then only read.
type Machine struct {
	// CPUs are the online CPUs in ascending order of kernel id. Their index
	// here is the dense index sets use.
	CPUs  []CPU
	Nodes []Node

	index map[int]int
	all   Set
}

// CPU is one online hardware thread. Core and Package are numbered as the
// kernel does (core ids are unique within a package only).
type CPU struct {
	ID      int // kernel id
	Core    int
	Package int
	Node    int // NUMA node id
}

// Node is a NUMA node. CPUs is by dense index; it is empty for a memory-only
// node. Memory is in bytes, 0 where unknown or absent.
type Node struct {
	ID     int
	CPUs   Set
	Memory uint64
}

// New makes a machine of the given online CPUs and of its nodes' memory in
// bytes by node id. Errors: no CPU, more than MaxCPUs, a repeated id.
func New(cpus []CPU, memory map[int]uint64) (*Machine, error) {
	if len(cpus) == 0 || len(cpus) > MaxCPUs {
		return nil, fmt.Errorf("a machine has 1 to %d online CPUs, not %d", MaxCPUs, len(cpus))
	}
	m := &Machine{CPUs: slices.Clone(cpus), index: make(map[int]int, len(cpus))}
	slices.SortFunc(m.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	byNode := map[int]*Node{}
	for id, bytes := range memory {
		byNode[id] = &Node{ID: id, Memory: bytes}
	}
	for i, c := range m.CPUs {
		if _, twice := m.index[c.ID]; twice {
			return nil, fmt.Errorf("CPU %d appears twice", c.ID)
		}
		m.index[c.ID] = i
		m.all.Add(i)
		n := byNode[c.Node]
		if n == nil {
			n = &Node{ID: c.Node}
			byNode[c.Node] = n
		}
		n.CPUs.Add(i)
	}
	for _, n := range byNode {
		m.Nodes = append(m.Nodes, *n)
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.ID - b.ID })
	return m, nil
}

// Online returns all online CPUs.
func (m *Machine) Online() Set { return m.all }

// Node returns the NUMA node with the given id.
func (m *Machine) Node(id int) (Node, bool) {
	for _, n := range m.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

// ParseCPUs reads a kernel list of CPU ids. A CPU that is not online is an
// error that names it.
func (m *Machine) ParseCPUs(list string) (Set, error) {
	ids, err := ParseList(list)
	if err != nil {
		return Set{}, err
	}
	var s Set
	for _, id := range ids {
		i, ok := m.index[id]
		if !ok {
			return Set{}, fmt.Errorf("CPU %d is not online on this node (online: %s)", id, m.Format(m.all))
		}
		s.Add(i)
	}
	return s, nil
}

// OnlineOf reads a kernel list of CPU ids and leaves out those that are not
// online. Malformed text is the empty set.
func (m *Machine) OnlineOf(list string) Set {
	var s Set
	ids, err := ParseList(list)
	if err != nil {
		return s
	}
	for _, id := range ids {
		if i, ok := m.index[id]; ok {
			s.Add(i)
		}
	}
	return s
}

// Format writes a set of CPUs as a kernel list of ids.
func (m *Machine) Format(s Set) string {
	members := s.Members()
	for i, x := range members {
		members[i] = m.CPUs[x].ID
	}
	return FormatList(members)
}
