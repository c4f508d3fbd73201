package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Machine describes the node: its CPUs and their places, and its NUMA nodes. It is
// made once (by sysfs or describe) and then only read.
type Machine struct {
	// CPUs are the CPUs that have a place, online or not, in ascending order of
	// kernel id. Sets use their index here.
	CPUs []CPU
	// Nodes are the NUMA nodes in ascending order of id.
	Nodes []Node
	// Offline are the kernel ids of CPUs that exist and are not online.
	Offline []int
	// Devices are the devices whose place is known, by PCI address.
	Devices []Device

	index  map[int]int
	all    Set
	groups [levels][]Set
	member [levels][]int
}

// CPU is one hardware thread. Core, Die and Package are numbered as the kernel
// does: a core within its die, a die within its package. L2, L3 and Cluster are
// equal for CPUs that share one, and 0 everywhere if nothing is known.
type CPU struct {
	ID      int // kernel id
	Core    int
	Die     int
	Package int
	Node    int // NUMA node id
	Cluster int // cores that share a bus or an L2 tag, below a die
	L2, L3  int
	Kind    CoreKind
	// BaseMHz and MaxMHz are the guaranteed and the highest clock rate, 0
	// where unknown.
	BaseMHz, MaxMHz int
	// Isolated CPUs are left out by the kernel's scheduler (isolcpus); NoHz
	// CPUs have no tick while one task runs (nohz_full).
	Isolated, NoHz bool
	// Unread: it was offline when the machine was read, and the kernel shows only
	// the NUMA node of such a CPU. See NewUnread.
	PlaceUnknown bool
}

// NewUnread returns a CPU that was offline when the machine was read: it counts as
// a core of its own on a NUMA node, until Learned has its place.
func NewOfflineCPU(id, node int) CPU {
	alone := -1 - id // the kernel numbers nothing like this
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

// MemoryKind says what a NUMA node's memory is.
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

// Node is a NUMA node. CPUs is by dense index; it is empty for a memory-only
// node. Memory is in bytes, 0 where unknown or absent.
type Node struct {
	ID     int
	CPUs   Set
	Memory uint64
	Kind   MemoryKind
	// Distance to each node of Machine.Nodes, in their order, as the firmware says
	// (10 is local); nil if nothing is known.
	Distance []int
	// HugePages are the pages set aside at this node, by their size in bytes.
	HugePages map[uint64]uint64
}

// Device is a device whose place on the machine is known.
type Device struct {
	Address string // PCI address such as "0000:3b:00.0"
	Class   uint32 // PCI class code, 24 bits
	Node    int    // NUMA node id, -1 if the firmware does not say
	CPUs    Set    // the CPUs near it
	// Numbers are those of its character device nodes, major:minor.
	Numbers []string
}

// Layout is the input of Build: everything that is known of a machine.
type Layout struct {
	CPUs  []CPU
	Nodes []Node // CPUs are filled in by Build
	// Offline are the ids of CPUs that are not online. Those that are among CPUs
	// have a place nevertheless.
	Offline []int
	Devices []Device
}

// New makes a machine of the given online CPUs and of its nodes' memory in
// bytes by node id. Errors: no CPU, more than MaxCPUs, a repeated id.
func New(cpus []CPU, memory map[int]uint64) (*Machine, error) {
	l := Layout{CPUs: cpus}
	for id, bytes := range memory {
		l.Nodes = append(l.Nodes, Node{ID: id, Memory: bytes})
	}
	return Build(l)
}

// Build makes a machine of a layout. A node that only CPUs name is added. The
// layout's own slices are not kept. Errors: no CPU, more than MaxCPUs or
// MaxNodes, a repeated id, distances that do not match the nodes.
func Build(l Layout) (*Machine, error) {
	if len(l.CPUs) == 0 || len(l.CPUs) > MaxCPUs {
		return nil, fmt.Errorf("a machine has 1 to %d online CPUs, not %d", MaxCPUs, len(l.CPUs))
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

// seatNodes sorts the nodes, adds those only CPUs name, and gives each its CPUs.
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
		return fmt.Errorf("%d NUMA nodes are more than %d", len(at), MaxNodes)
	}
	for _, n := range at {
		if n.Distance != nil && (len(n.Distance) != known || known != len(at)) {
			return fmt.Errorf("NUMA node %d has %d distances, for %d nodes", n.ID, len(n.Distance), len(at))
		}
		m.Nodes = append(m.Nodes, *n)
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.ID - b.ID })
	return nil
}

// Online returns all online CPUs.
func (m *Machine) Online() Set { return m.all }

// WithOnline returns the machine with other CPUs online, by kernel id. Sets mean
// the same on both: a CPU that went offline keeps its place in CPUs and in its
// groups, and is in no node and not online. CPUs that did not exist when the
// machine was read have no place; they are returned.
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

// Learned returns the machine with the places of CPUs that were offline when it was
// read, from a later reading of the same machine. Sets mean the same on both. A CPU
// on a NUMA node that the machine lacks stays unread.
func (m *Machine) WithPlacesFrom(later *Machine) *Machine {
	n := *m
	n.CPUs = slices.Clone(m.CPUs)
	for i, c := range m.CPUs {
		at, there := later.index[c.ID]
		if !c.PlaceUnknown || !there || later.CPUs[at].PlaceUnknown {
			continue
		}
		if _, known := m.NodeIndex(later.CPUs[at].Node); known {
			n.CPUs[i] = n.numbered(later, at)
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

// numbered is a CPU of a later reading with this machine's numbers for cores and
// caches. If only their order numbers them, the numbers are those of another CPU in
// the same group.
func (m *Machine) numbered(later *Machine, at int) CPU {
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

// WithMemory returns the machine with other memory on its NUMA nodes: sizes, kinds
// and huge pages, by id. Nodes that the machine lacks are returned.
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

// Distance returns how far node b is from node a, both by index in Nodes. If the
// firmware does not say, it is 10 for the node itself and 20 for any other.
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

// Near returns the online CPUs near a device: those of its NUMA node, or, if the
// firmware names none, those that the device lists. Empty if nothing is known, or
// if all CPUs are equally near.
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

// Of returns the online CPUs on cores of a kind.
func (m *Machine) Of(k CoreKind) Set {
	var s Set
	for i := range m.all.All() {
		if m.CPUs[i].Kind == k {
			s.Add(i)
		}
	}
	return s
}

// Isolated returns the online CPUs that the kernel's scheduler leaves out.
func (m *Machine) Isolated() Set {
	var s Set
	for i := range m.all.All() {
		if m.CPUs[i].Isolated {
			s.Add(i)
		}
	}
	return s
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
		if !ok || !m.all.Has(i) {
			return Set{}, fmt.Errorf("CPU %d is not online on this node (online: %s)", id, m.Format(m.all))
		}
		s.Add(i)
	}
	return s, nil
}

// OnlineOf reads a kernel list of CPU ids and leaves out those that are not
// online. Malformed text is the empty set.
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

// OnlineIDs returns the online ones of CPUs by kernel id.
func (m *Machine) OnlineIDs(ids []int) Set {
	var s Set
	for _, id := range ids {
		if i, ok := m.index[id]; ok && m.all.Has(i) {
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
