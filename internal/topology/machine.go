package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Machine describes the hardware of a node: its CPUs with their positions in the topology, its NUMA nodes and its
// devices. Code never changes a Machine; the methods With... return a changed copy.
type Machine struct {
	// CPUs are the CPUs that a Set can contain, online or not, in ascending order of kernel id. The members of a Set
	// are indexes of this list.
	CPUs []CPU
	// Nodes are the NUMA nodes in ascending order of id.
	Nodes []Node
	// Offline are the kernel ids of CPUs that exist and are offline.
	Offline []int
	// Devices are PCI functions, sorted by PCI address.
	Devices []Device

	indexByID    map[int]int // the index in CPUs, by kernel id
	online       Set
	groups       [levelCount][]Set // the result of Groups, by level
	groupIndexes [levelCount][]int // the result of GroupOf, by level and CPU
}

// CPU is one hardware thread. Core, Die and Package are the kernel's numbers. Core is unique within the die, and Die
// within the package. Two CPUs that share an L2 cache, an L3 cache or a cluster have the same number in L2, L3 or
// Cluster. If the kernel does not report caches or clusters, these numbers are 0 for all CPUs.
type CPU struct {
	ID      int // kernel id
	Core    int
	Die     int
	Package int
	Node    int // NUMA node id
	Cluster int // the cluster: cores of one die that share a bus or L2 tags
	L2, L3  int // the caches
	Kind    CoreKind
	// BaseMHz and MaxMHz are the guaranteed and the highest clock rate; 0 if unknown.
	BaseMHz, MaxMHz int
	// Isolated means that the CPU is in isolcpus, so the kernel balances no threads over it. NoHz means that the CPU is
	// in nohz_full, so it has no timer tick while it runs one task.
	Isolated, NoHz bool
	// TopologyUnknown means that the CPU was offline when the machine was read, so the kernel showed only its NUMA
	// node. NewOfflineCPU makes such a CPU. The JSON tag keeps the name that existing recordings have.
	TopologyUnknown bool `json:"placeUnknown"`
}

// NewOfflineCPU returns a CPU that was offline when the machine was read. Until WithTopologyFrom finds its position,
// the CPU counts as a core of its own on the NUMA node with id node.
func NewOfflineCPU(id, node int) CPU {
	alone := -1 - id // the kernel uses no such number
	return CPU{ID: id, Node: node, Core: alone, Cluster: alone, L2: alone, L3: alone, TopologyUnknown: true}
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

// Node is a NUMA node. CPUs are its online CPUs, by their index in Machine.CPUs. Memory is in bytes; 0 if it is unknown
// or if the node has none.
type Node struct {
	ID     int
	CPUs   Set
	Memory uint64
	Kind   MemoryKind
	// Distance is the distance to each node of Machine.Nodes, in the same order, as the firmware reports it (10 is
	// local); nil if unknown.
	Distance []int
	// HugePages is the number of huge pages that the node has reserved, by the size of a page in bytes.
	HugePages map[uint64]uint64
}

// Device is a PCI function, with its position on the machine as far as the kernel reports it.
type Device struct {
	Address string // PCI address such as "0000:3b:00.0"
	Class   uint32 // PCI class code, 24 bits
	Node    int    // NUMA node id, -1 if the firmware does not say
	CPUs    Set    // the CPUs near the device
	// Numbers are the numbers of the device's character device nodes, in the form major:minor.
	Numbers []string
}

// Layout is the input of Build: everything that is known about a machine.
type Layout struct {
	CPUs  []CPU
	Nodes []Node // Build sets their CPUs
	// Offline are the ids of CPUs that are not online. Some of these CPUs may also be in the field CPUs.
	Offline []int
	Devices []Device
}

// New makes a machine from online CPUs, and from the memory of NUMA nodes in bytes, by node id. It returns the errors
// of Build.
func New(cpus []CPU, memory map[int]uint64) (*Machine, error) {
	l := Layout{CPUs: cpus}
	for id, bytes := range memory {
		l.Nodes = append(l.Nodes, Node{ID: id, Memory: bytes})
	}
	return Build(l)
}

// Build makes a machine from a layout. It adds NUMA nodes that a CPU names and the layout lacks. It returns an error if
// no CPU is online, if there are more than MaxCPUs CPUs or MaxNodes nodes, if an id appears twice, or if a node's
// distances do not match the nodes.
func Build(l Layout) (*Machine, error) {
	if len(l.CPUs) == 0 || len(l.CPUs) > MaxCPUs {
		return nil, fmt.Errorf("a machine must have 1 to %d CPUs, not %d", MaxCPUs, len(l.CPUs))
	}
	m := &Machine{
		CPUs: slices.Clone(l.CPUs), indexByID: make(map[int]int, len(l.CPUs)),
		Offline: slices.Sorted(slices.Values(l.Offline)), Devices: slices.Clone(l.Devices),
	}
	slices.SortFunc(m.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	for i, c := range m.CPUs {
		if _, twice := m.indexByID[c.ID]; twice {
			return nil, fmt.Errorf("CPU %d appears twice", c.ID)
		}
		m.indexByID[c.ID] = i
		if _, offline := slices.BinarySearch(m.Offline, c.ID); !offline {
			m.online.Add(i)
		}
	}
	if m.online.Empty() {
		return nil, fmt.Errorf("none of the %d CPUs is online", len(m.CPUs))
	}
	slices.SortFunc(m.Devices, func(a, b Device) int { return cmp.Compare(a.Address, b.Address) })
	if err := m.addNodes(l.Nodes); err != nil {
		return nil, err
	}
	m.buildGroups()
	return m, nil
}

// addNodes adds the given nodes and the nodes that only CPUs name, sorts them by id, and assigns the online CPUs to
// them.
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
		if m.online.Has(i) {
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
func (m *Machine) Online() Set { return m.online }

// WithOnline returns a copy of the machine on which exactly the CPUs with the given kernel ids are online. All CPUs
// keep their index in CPUs, so a Set means the same CPUs on the machine and on the copy. A CPU that is offline on the
// copy also keeps its groups, but is in no Node.CPUs. The result unknown has the ids that are not in Machine.CPUs.
func (m *Machine) WithOnline(ids []int) (now *Machine, unknown []int) {
	n := *m
	n.online, n.Offline = Set{}, nil
	for _, id := range ids {
		if i, known := m.indexByID[id]; known {
			n.online.Add(i)
		} else {
			unknown = append(unknown, id)
		}
	}
	for i, c := range m.CPUs {
		if !n.online.Has(i) {
			n.Offline = append(n.Offline, c.ID)
		}
	}
	n.Offline = append(n.Offline, slices.DeleteFunc(slices.Clone(m.Offline), func(id int) bool {
		_, known := m.indexByID[id]
		return known || slices.Contains(ids, id)
	})...)
	slices.Sort(n.Offline)
	n.Nodes = slices.Clone(m.Nodes)
	for i := range n.Nodes {
		n.Nodes[i].CPUs = Set{}
	}
	for i := range n.online.All() {
		at, _ := n.NodeIndex(n.CPUs[i].Node)
		n.Nodes[at].CPUs.Add(i)
	}
	return &n, unknown
}

// WithTopologyFrom returns a copy of the machine in which CPUs with TopologyUnknown get their position from later, a
// later reading of the same machine. All CPUs keep their index, so a Set means the same CPUs on the machine and on the
// copy. If later has a CPU on a NUMA node that this machine lacks, the position of this CPU stays unknown.
func (m *Machine) WithTopologyFrom(later *Machine) *Machine {
	n := *m
	n.CPUs = slices.Clone(m.CPUs)
	for i, c := range m.CPUs {
		at, there := later.indexByID[c.ID]
		if !c.TopologyUnknown || !there || later.CPUs[at].TopologyUnknown {
			continue
		}
		if _, known := m.NodeIndex(later.CPUs[at].Node); known {
			n.CPUs[i] = n.withNumbersOf(later, at)
		}
	}
	n.groups, n.groupIndexes = [levelCount][]Set{}, [levelCount][]int{}
	n.buildGroups()
	var online []int
	for i := range m.online.All() {
		online = append(online, m.CPUs[i].ID)
	}
	now, _ := n.WithOnline(online)
	now.Offline = m.Offline
	return now
}

// withNumbersOf returns the CPU with the index at in later, a later reading of the same machine. The CPU gets the
// numbers that its core and caches have on this machine, from another CPU that shares the core or cache. If no other
// CPU shares the cache, the cache gets a new number: the numbers of caches depend on the order in which a reading finds
// the CPUs. If no other CPU shares the core, the core keeps its number in later, or gets a new number if another core
// has this number.
func (m *Machine) withNumbersOf(later *Machine, at int) CPU {
	c := later.CPUs[at]
	same := func(l Level) (CPU, bool) {
		for i := range later.groups[l][later.groupIndexes[l][at]].All() {
			if j, there := m.indexByID[later.CPUs[i].ID]; there && i != at && !m.CPUs[j].TopologyUnknown {
				return m.CPUs[j], true
			}
		}
		return CPU{}, false
	}
	alone := -1 - c.ID
	if o, found := same(CoreLevel); found {
		c.Core = o.Core
	} else if slices.ContainsFunc(m.CPUs, func(o CPU) bool { return CoreLevel.keyOf(o) == CoreLevel.keyOf(c) }) {
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

// WithMemory returns a copy of the machine in which NUMA nodes have the memory size, memory kind and huge pages of the
// given node with the same id. The result unknown has the ids of given nodes that the machine lacks.
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

// Distance returns the distance of node b from node a, both by index in Nodes. If the firmware reports no distances,
// the result is 10 if a is b, and 20 otherwise.
func (m *Machine) Distance(a, b int) int {
	if d := m.Nodes[a].Distance; d != nil {
		return d[b]
	}
	if a == b {
		return 10
	}
	return 20
}

// DeviceAt returns the device with a PCI address in the kernel's form, such as 0000:3b:00.0.
func (m *Machine) DeviceAt(address string) (Device, bool) {
	i, ok := slices.BinarySearchFunc(m.Devices, address, func(d Device, address string) int { return cmp.Compare(d.Address, address) })
	if !ok {
		return Device{}, false
	}
	return m.Devices[i], true
}

// DeviceWithNumber returns the device that has a character device node with this number, major:minor.
func (m *Machine) DeviceWithNumber(number string) (Device, bool) {
	for _, d := range m.Devices {
		if slices.Contains(d.Numbers, number) {
			return d, true
		}
	}
	return Device{}, false
}

// CPUsNear returns the online CPUs near a device: the CPUs of the device's NUMA node, or else the CPUs in Device.CPUs.
// The result is empty if the node and the CPUs are unknown, or if all online CPUs are near the device.
func (m *Machine) CPUsNear(d Device) Set {
	near := d.CPUs.And(m.online)
	if n, ok := m.Node(d.Node); d.Node >= 0 && ok {
		near = n.CPUs
	}
	if near == m.online {
		return Set{}
	}
	return near
}

// CPUsOfKind returns the online CPUs on cores of a kind.
func (m *Machine) CPUsOfKind(k CoreKind) Set {
	var s Set
	for i := range m.online.All() {
		if m.CPUs[i].Kind == k {
			s.Add(i)
		}
	}
	return s
}

// IsolatedCPUs returns the online CPUs of isolcpus, on which the kernel balances no threads.
func (m *Machine) IsolatedCPUs() Set {
	var s Set
	for i := range m.online.All() {
		if m.CPUs[i].Isolated {
			s.Add(i)
		}
	}
	return s
}

// ParseCPUs parses a kernel list of CPU ids. If one of the CPUs is not online, it returns an error that names the CPU.
func (m *Machine) ParseCPUs(list string) (Set, error) {
	ids, err := ParseList(list)
	if err != nil {
		return Set{}, err
	}
	var s Set
	for _, id := range ids {
		i, ok := m.indexByID[id]
		if !ok || !m.online.Has(i) {
			return Set{}, fmt.Errorf("CPU %d is not online on this node (online: %s)", id, m.Format(m.online))
		}
		s.Add(i)
	}
	return s, nil
}

// OnlineOf returns the online CPUs of a kernel list of CPU ids. If the text is not a valid list, the result is empty.
func (m *Machine) OnlineOf(list string) Set {
	ids, err := ParseList(list)
	if err != nil {
		return Set{}
	}
	return m.OnlineCPUs(ids)
}

// KnownCPUsOf returns the CPUs of a kernel list of CPU ids that are in Machine.CPUs, online or not. If the text is not
// a valid list, the result is empty.
func (m *Machine) KnownCPUsOf(list string) Set {
	ids, err := ParseList(list)
	if err != nil {
		return Set{}
	}
	var s Set
	for _, id := range ids {
		if i, ok := m.indexByID[id]; ok {
			s.Add(i)
		}
	}
	return s
}

// OnlineCPUs returns the online CPUs among those with the given kernel ids.
func (m *Machine) OnlineCPUs(ids []int) Set {
	var s Set
	for _, id := range ids {
		if i, ok := m.indexByID[id]; ok && m.online.Has(i) {
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
