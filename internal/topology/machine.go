package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Machine describes the node: its CPUs with their places, and its NUMA nodes. It is made once
// (by sysfs or describe) and then only read.
type Machine struct {
	// CPUs are the CPUs with a place, online or not, in ascending order of kernel id. Sets use
	// their index here.
	CPUs []CPU
	// Nodes are the NUMA nodes in ascending order of id.
	Nodes []Node
	// Offline are the kernel ids of CPUs that exist and are offline.
	Offline []int
	// Devices are the devices with a known place, by PCI address.
	Devices []Device

	index  map[int]int
	all    Set
	groups [levels][]Set
	member [levels][]int
}

// CPU is one hardware thread. Core, Die and Package have the kernel's numbers: a core within
// its die, a die within its package. L2, L3 and Cluster are equal for CPUs that share one, and
// 0 everywhere if unknown.
type CPU struct {
	ID      int // kernel id
	Core    int
	Die     int
	Package int
	Node    int // NUMA node id
	Cluster int // cores that share a bus or L2 tags, below a die
	L2, L3  int
	Kind    CoreKind
	// BaseMHz and MaxMHz are the guaranteed and the highest clock rate; 0 if unknown.
	BaseMHz, MaxMHz int
	// Isolated CPUs are those of isolcpus, on which the kernel balances no threads. NoHz CPUs
	// have no timer tick while they run one task (nohz_full).
	Isolated, NoHz bool
	// PlaceUnknown means that the CPU was offline when the machine was read, so the kernel showed
	// only its NUMA node. See NewOfflineCPU.
	PlaceUnknown bool
}

// NewOfflineCPU returns a CPU that was offline when the machine was read. It counts as a core
// of its own on a NUMA node until WithPlacesFrom finds its place.
func NewOfflineCPU(id, node int) CPU {
	alone := -1 - id // the kernel uses no such number
	return CPU{ID: id, Node: node, Core: alone, Cluster: alone, L2: alone, L3: alone, PlaceUnknown: true}
}

// CoreKind is the kind of a core on a hybrid processor.
type CoreKind uint8

// The kinds of cores. All cores of a processor that is not hybrid are plain.
const (
	PlainCore CoreKind = iota
	PerformanceCore
	EfficiencyCore
)

// String returns the kind's name.
func (k CoreKind) String() string { return [...]string{"plain", "performance", "efficiency"}[k] }

// MemoryKind is the kind of a NUMA node's memory.
type MemoryKind uint8

// The kinds of memory.
const (
	DRAM MemoryKind = iota
	HBM             // smaller and faster than DRAM, usually without CPUs
	PMEM            // larger and slower: persistent or CXL-attached memory
	NoMemory
)

// String returns the kind's name.
func (k MemoryKind) String() string { return [...]string{"DRAM", "HBM", "PMEM", "none"}[k] }

// Node is a NUMA node. CPUs has dense indices; it is empty for a memory-only node. Memory is in
// bytes; 0 if unknown or absent.
type Node struct {
	ID     int
	CPUs   Set
	Memory uint64
	Kind   MemoryKind
	// Distance is the distance to each node of Machine.Nodes, in the same order, as the firmware reports it (10 is
	// local); nil if unknown.
	Distance []int
	// HugePages are the huge pages that the node has reserved, by their size in bytes.
	HugePages map[uint64]uint64
}

// Device is a device with a known place on the machine.
type Device struct {
	Address string // PCI address such as "0000:3b:00.0"
	Class   uint32 // PCI class code, 24 bits
	Node    int    // NUMA node id, -1 if the firmware does not say
	CPUs    Set    // the CPUs near it
	// Numbers are the numbers of its character device nodes, major:minor.
	Numbers []string
}

// Layout is the input of Build: everything that is known about a machine.
type Layout struct {
	CPUs  []CPU
	Nodes []Node // Build sets their CPUs
	// Offline are the ids of CPUs that are not online. Some of them are also in CPUs, with their place.
	Offline []int
	Devices []Device
}

// New makes a machine from the given online CPUs and its nodes' memory in bytes by node id.
// It fails without CPUs, with more than MaxCPUs, and if an id is repeated.
func New(cpus []CPU, memory map[int]uint64) (*Machine, error) {
	l := Layout{CPUs: cpus}
	for id, bytes := range memory {
		l.Nodes = append(l.Nodes, Node{ID: id, Memory: bytes})
	}
	return Build(l)
}

// Build makes a machine from a layout. It adds nodes that only CPUs name, and keeps none of the
// layout's slices. Errors: no CPU, more than MaxCPUs or MaxNodes, a repeated id, distances that
// do not match the nodes.
func Build(l Layout) (*Machine, error) {
	if len(l.CPUs) == 0 || len(l.CPUs) > MaxCPUs {
		return nil, fmt.Errorf("a machine must have 1 to %d CPUs, not %d", MaxCPUs, len(l.CPUs))
	}
	m := &Machine{
		CPUs: slices.Clone(l.CPUs), index: make(map[int]int, len(l.CPUs)),
		Offline: slices.Sorted(slices.Values(l.Offline)), Devices: slices.Clone(l.Devices),
	}
	slices.SortFunc(m.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	for i, c := range m.CPUs {
		if _, twice := m.index[c.ID]; twice {
			return nil, fmt.Errorf("CPU %d appears twice", c.ID)
		}
		m.index[c.ID] = i
		if _, offline := slices.BinarySearch(m.Offline, c.ID); !offline {
			m.all.Add(i)
		}
	}
	if m.all.Empty() {
		return nil, fmt.Errorf("none of the %d CPUs is online", len(m.CPUs))
	}
	slices.SortFunc(m.Devices, func(a, b Device) int { return cmp.Compare(a.Address, b.Address) })
	if err := m.addNodes(l.Nodes); err != nil {
		return nil, err
	}
	m.group()
	return m, nil
}

// addNodes sorts the nodes, adds those that only CPUs name, and assigns the CPUs to them.
func (m *Machine) addNodes(nodes []Node) error {
	at := map[int]*Node{}
	for _, n := range nodes {
		if at[n.ID] != nil {
			return fmt.Errorf("NUMA node %d appears twice", n.ID)
		}
		n.CPUs = Set{}
		at[n.ID] = &n
	}
	known := len(at)
	for i, c := range m.CPUs {
		if at[c.Node] == nil {
			at[c.Node] = &Node{ID: c.Node}
		}
		if m.all.Has(i) {
			at[c.Node].CPUs.Add(i)
		}
	}
	if len(at) > MaxNodes {
		return fmt.Errorf("the machine has %d NUMA nodes; at most %d are supported", len(at), MaxNodes)
	}
	for _, n := range at {
		if n.Distance != nil && (len(n.Distance) != known || known != len(at)) {
			return fmt.Errorf("NUMA node %d has %d distances, but there are %d nodes", n.ID, len(n.Distance), len(at))
		}
		m.Nodes = append(m.Nodes, *n)
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.ID - b.ID })
	return nil
}

// Online returns all online CPUs.
func (m *Machine) Online() Set { return m.all }

// WithOnline returns the machine with other CPUs online, by kernel id. Sets mean the same on
// both machines. A CPU that went offline keeps its index and its groups, and belongs to no
// node. unknown lists the CPUs that did not exist when the machine was read.
func (m *Machine) WithOnline(ids []int) (now *Machine, unknown []int) {
	n := *m
	n.all, n.Offline = Set{}, nil
	for _, id := range ids {
		if i, known := m.index[id]; known {
			n.all.Add(i)
		} else {
			unknown = append(unknown, id)
		}
	}
	for i, c := range m.CPUs {
		if !n.all.Has(i) {
			n.Offline = append(n.Offline, c.ID)
		}
	}
	n.Offline = append(n.Offline, slices.DeleteFunc(slices.Clone(m.Offline), func(id int) bool {
		_, known := m.index[id]
		return known || slices.Contains(ids, id)
	})...)
	slices.Sort(n.Offline)
	n.Nodes = slices.Clone(m.Nodes)
	for i := range n.Nodes {
		n.Nodes[i].CPUs = Set{}
	}
	for i := range n.all.All() {
		at, _ := n.NodeIndex(n.CPUs[i].Node)
		n.Nodes[at].CPUs.Add(i)
	}
	return &n, unknown
}

// WithPlacesFrom returns the machine with the places of CPUs that were offline when it was
// read, from a later reading of the same machine. Sets mean the same on both. The place of a
// CPU on an unknown NUMA node stays unknown.
func (m *Machine) WithPlacesFrom(later *Machine) *Machine {
	n := *m
	n.CPUs = slices.Clone(m.CPUs)
	for i, c := range m.CPUs {
		at, there := later.index[c.ID]
		if !c.PlaceUnknown || !there || later.CPUs[at].PlaceUnknown {
			continue
		}
		if _, known := m.NodeIndex(later.CPUs[at].Node); known {
			n.CPUs[i] = n.withNumbersOf(later, at)
		}
	}
	n.groups, n.member = [levels][]Set{}, [levels][]int{}
	n.group()
	var online []int
	for i := range m.all.All() {
		online = append(online, m.CPUs[i].ID)
	}
	now, _ := n.WithOnline(online)
	now.Offline = m.Offline
	return now
}

// withNumbersOf returns a CPU of a later reading with this machine's numbers for cores and caches.
// Numbers that depend on the order of CPUs are copied from another CPU in the same group.
func (m *Machine) withNumbersOf(later *Machine, at int) CPU {
	c := later.CPUs[at]
	same := func(l Level) (CPU, bool) {
		for i := range later.groups[l][later.member[l][at]].All() {
			if j, there := m.index[later.CPUs[i].ID]; there && i != at && !m.CPUs[j].PlaceUnknown {
				return m.CPUs[j], true
			}
		}
		return CPU{}, false
	}
	alone := -1 - c.ID
	if o, found := same(CoreLevel); found {
		c.Core = o.Core
	} else if slices.ContainsFunc(m.CPUs, func(o CPU) bool { return CoreLevel.of(o) == CoreLevel.of(c) }) {
		c.Core = alone
	}
	for _, cache := range []struct {
		level Level
		of    func(*CPU) *int
	}{{L3Level, func(c *CPU) *int { return &c.L3 }}, {L2Level, func(c *CPU) *int { return &c.L2 }}} {
		*cache.of(&c) = alone
		if o, found := same(cache.level); found {
			*cache.of(&c) = *cache.of(&o)
		}
	}
	return c
}

// WithMemory returns the machine with other memory on its NUMA nodes: sizes, kinds and huge
// pages, by id. Unknown nodes are returned.
func (m *Machine) WithMemory(nodes []Node) (now *Machine, unknown []int) {
	n := *m
	n.Nodes = slices.Clone(m.Nodes)
	for _, t := range nodes {
		i, known := n.NodeIndex(t.ID)
		if !known {
			unknown = append(unknown, t.ID)
			continue
		}
		n.Nodes[i].Memory, n.Nodes[i].Kind, n.Nodes[i].HugePages = t.Memory, t.Kind, t.HugePages
	}
	return &n, unknown
}

// Node returns the NUMA node with the given id.
func (m *Machine) Node(id int) (Node, bool) {
	if i, ok := m.NodeIndex(id); ok {
		return m.Nodes[i], true
	}
	return Node{}, false
}

// NodeIndex returns the index in Nodes of the node with the given id.
func (m *Machine) NodeIndex(id int) (int, bool) {
	return slices.BinarySearchFunc(m.Nodes, id, func(n Node, id int) int { return n.ID - id })
}

// Distance returns the distance of node b from node a, both by index in Nodes. If the firmware
// does not report it, it is 10 for the node itself and 20 for any other.
func (m *Machine) Distance(a, b int) int {
	if d := m.Nodes[a].Distance; d != nil {
		return d[b]
	}
	if a == b {
		return 10
	}
	return 20
}

// DeviceAt returns the device at a PCI address, as the kernel writes it.
func (m *Machine) DeviceAt(address string) (Device, bool) {
	i, ok := slices.BinarySearchFunc(m.Devices, address, func(d Device, address string) int { return cmp.Compare(d.Address, address) })
	if !ok {
		return Device{}, false
	}
	return m.Devices[i], true
}

// DeviceOf returns the device that has a character device node with this number,
// major:minor.
func (m *Machine) DeviceOf(number string) (Device, bool) {
	for _, d := range m.Devices {
		if slices.Contains(d.Numbers, number) {
			return d, true
		}
	}
	return Device{}, false
}

// Near returns the online CPUs near a device: those of its NUMA node or, if the firmware names
// none, those that the device lists. The set is empty if neither is known, or if all CPUs are
// equally near.
func (m *Machine) Near(d Device) Set {
	near := d.CPUs.And(m.all)
	if n, ok := m.Node(d.Node); d.Node >= 0 && ok {
		near = n.CPUs
	}
	if near == m.all {
		return Set{}
	}
	return near
}

// CPUsOfKind returns the online CPUs on cores of a kind.
func (m *Machine) CPUsOfKind(k CoreKind) Set {
	var s Set
	for i := range m.all.All() {
		if m.CPUs[i].Kind == k {
			s.Add(i)
		}
	}
	return s
}

// Isolated returns the online CPUs of isolcpus, on which the kernel balances no threads.
func (m *Machine) Isolated() Set {
	var s Set
	for i := range m.all.All() {
		if m.CPUs[i].Isolated {
			s.Add(i)
		}
	}
	return s
}

// ParseCPUs parses a kernel list of CPU ids. A CPU that is not online is an error that names
// it.
func (m *Machine) ParseCPUs(list string) (Set, error) {
	ids, err := ParseList(list)
	if err != nil {
		return Set{}, err
	}
	var s Set
	for _, id := range ids {
		i, ok := m.index[id]
		if !ok || !m.all.Has(i) {
			return Set{}, fmt.Errorf("CPU %d is not online on this node (online: %s)", id, m.Format(m.all))
		}
		s.Add(i)
	}
	return s, nil
}

// OnlineOf parses a kernel list of CPU ids and leaves out those that are not online. Malformed
// text gives the empty set.
func (m *Machine) OnlineOf(list string) Set {
	ids, err := ParseList(list)
	if err != nil {
		return Set{}
	}
	return m.OnlineIDs(ids)
}

// PlacesOf returns the CPUs of a kernel list that have a place, online or not.
func (m *Machine) PlacesOf(list string) Set {
	ids, err := ParseList(list)
	if err != nil {
		return Set{}
	}
	var s Set
	for _, id := range ids {
		if i, ok := m.index[id]; ok {
			s.Add(i)
		}
	}
	return s
}

// OnlineIDs returns the CPUs of some kernel ids that are online.
func (m *Machine) OnlineIDs(ids []int) Set {
	var s Set
	for _, id := range ids {
		if i, ok := m.index[id]; ok && m.all.Has(i) {
			s.Add(i)
		}
	}
	return s
}

// Format formats a set of CPUs as a kernel list of ids.
func (m *Machine) Format(s Set) string {
	members := s.Members()
	for i, x := range members {
		members[i] = m.CPUs[x].ID
	}
	return FormatList(members)
}
