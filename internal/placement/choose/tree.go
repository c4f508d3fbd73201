package choose

import (
	"fmt"
	"slices"
	"sync" //nolint:depguard // only to keep scratches: a tree that is only read has callers in parallel

	"github.com/trimtab/trimtab/internal/topology"
)

// Tree is the machine as a tree: each group is divided by the next level that divides it. It is
// built once and then only read.
type Tree struct {
	machine *topology.Machine
	groups  []group // the root first, parents before their parts
	threads int     // of the largest core
	uniform bool    // all cores have the same number of threads
	hybrid  bool    // cores differ in their number of threads, and there are several kinds of cores
	shapes  int     // the number of shapes
	cores   [][]int // the CPUs of each core, by the machine's core index
	// byNode is the group of each NUMA node, by its index; -1 if no group is the node.
	byNode []int
	// nearest lists for each NUMA node all nodes by distance, by index. packages has the
	// packages of each node as a bit set; nil if there are more than 64.
	nearest  [][]uint8
	packages []uint64
	// leaf is the innermost group of each CPU.
	leaf [topology.MaxCPUs]int32
	// spare are buffers for further requests.
	spare sync.Pool
}

// group is a set of CPUs that are close to each other.
type group struct {
	// outer and inner are the levels of the group: a package with one NUMA node and one L3
	// cache is all three.
	outer, inner topology.Level
	size         int
	threads      []int // the CPUs of a core; nil for more than one core
	node         int   // index of the NUMA node of all its CPUs, or -1
	parts        []int // indices of its parts
	parent       int   // index of its parent; -1 for the root
	ofCores      bool  // its parts are cores, or the group is a core
	ofKind       bool  // it has the cores of one kind of a NUMA node
	efficient    bool  // all its cores are efficient
	// Groups of one shape are divided in the same way at each level.
	shape int
}

// NewTree makes the tree of a machine.
func NewTree(m *topology.Machine) *Tree {
	t := &Tree{machine: m, uniform: true}
	cores := m.Groups(topology.CoreLevel)
	for _, c := range cores {
		t.threads = max(t.threads, c.Len())
		t.uniform = t.uniform && c.Len() == cores[0].Len()
		t.cores = append(t.cores, c.Members())
	}
	t.hybrid = !t.uniform && len(t.kinds(m.Online())) > 1
	shapes := map[string]int{}
	t.add(m.Online(), topology.PackageLevel, -1, false, shapes)
	t.shapes = len(shapes)
	t.byNode = make([]int, len(m.Nodes))
	for i := range t.byNode {
		t.byNode[i] = -1
	}
	for at := len(t.groups) - 1; at >= 0; at-- { // outer groups last, in case several groups are the node
		if g := &t.groups[at]; g.node >= 0 && g.outer <= topology.NodeLevel && g.size == m.Nodes[g.node].CPUs.And(m.Online()).Len() {
			t.byNode[g.node] = at
		}
	}
	t.neighbours()
	return t
}

// neighbours precomputes distances between NUMA nodes.
func (t *Tree) neighbours() {
	m := t.machine
	if packages := len(m.Groups(topology.PackageLevel)); packages <= 64 {
		t.packages = make([]uint64, len(m.Nodes))
		for i := range m.Nodes {
			for cpu := range m.Nodes[i].CPUs.And(m.Online()).All() {
				t.packages[i] |= 1 << m.GroupOf(topology.PackageLevel, cpu)
			}
		}
	}
	for i := range m.Nodes {
		order := make([]uint8, len(m.Nodes))
		for j := range order {
			order[j] = uint8(j)
		}
		slices.SortStableFunc(order, func(a, b uint8) int { return m.Distance(i, int(a)) - m.Distance(i, int(b)) })
		t.nearest = append(t.nearest, order)
	}
}

// add appends the group of some CPUs and all groups below it. level is its outermost level.
// ofKind says that a NUMA node was divided by kinds of cores.
func (t *Tree) add(cpus topology.Set, level topology.Level, parent int, ofKind bool, shapes map[string]int) int {
	at := len(t.groups)
	g := group{outer: level, inner: level, size: cpus.Len(), node: t.nodeOf(cpus), parent: parent, ofCores: true, ofKind: ofKind}
	t.groups = append(t.groups, g)
	form := ""
	for ; level <= topology.CoreLevel; level++ {
		sets, kinds := t.divideOrKinds(cpus, level, ofKind)
		if len(sets) == 1 {
			g.inner = level
			continue
		}
		if level == g.outer { // a kind of cores with several cores
			g.inner = level - 1
		}
		for _, s := range sets {
			part := t.add(s, level, at, kinds, shapes)
			g.parts = append(g.parts, part)
			// Each part is one core. It is treated as if it had its own L2 cache, but a NUMA
			// node of one core stays a node.
			g.ofCores = g.ofCores && t.groups[part].threads != nil && !kinds && g.node >= 0
			form += fmt.Sprint(" ", t.groups[part].shape)
		}
		break
	}
	if g.parts == nil {
		g.threads = cpus.Members()
		for _, cpu := range g.threads {
			t.leaf[cpu] = int32(at)
		}
	}
	if g.outer <= topology.NodeLevel && g.inner >= topology.NodeLevel {
		g.ofKind = len(g.parts) == 0 || !t.groups[g.parts[0]].ofKind
	}
	g.efficient = t.machine.Of(topology.EfficiencyCore).Contains(cpus)
	form = fmt.Sprint(g.outer, g.inner, g.ofKind, g.efficient, g.size, form)
	if _, known := shapes[form]; !known {
		shapes[form] = len(shapes)
	}
	g.shape = shapes[form]
	t.groups[at] = g
	return at
}

// divideOrKinds splits CPUs into the groups of a level. Before L3 caches it splits them by kind
// of core, if there are several kinds, and reports that in kinds.
func (t *Tree) divideOrKinds(cpus topology.Set, level topology.Level, ofKind bool) (sets []topology.Set, kinds bool) {
	if level == topology.L3Level && !ofKind {
		if byKind := t.kinds(cpus); len(byKind) > 1 {
			return byKind, true
		}
	}
	return t.divide(cpus, level), false
}

// divide splits CPUs into the groups of a level.
func (t *Tree) divide(cpus topology.Set, l topology.Level) []topology.Set {
	var parts []topology.Set
	for !cpus.Empty() {
		g := t.machine.Groups(l)[t.machine.GroupOf(l, cpus.First())]
		parts = append(parts, cpus.And(g))
		cpus = cpus.Minus(g)
	}
	return parts
}

// kinds splits CPUs by the kind of their cores, the kind with the lowest CPU first. On a hybrid
// processor an owner gets cores of one kind if these are enough, since its threads would run at
// different speeds.
func (t *Tree) kinds(cpus topology.Set) []topology.Set {
	var parts []topology.Set
	for !cpus.Empty() {
		kind, part := t.machine.CPUs[cpus.First()].Kind, topology.Set{}
		for cpu := range cpus.All() {
			if t.machine.CPUs[cpu].Kind == kind {
				part.Add(cpu)
			}
		}
		parts, cpus = append(parts, part), cpus.Minus(part)
	}
	return parts
}

// byKind reports whether the parts of a group are kinds of cores.
func (t *Tree) byKind(g *group) bool {
	part := &t.groups[g.parts[0]]
	return part.ofKind && part.outer > topology.NodeLevel
}

// nodeOf returns the index of the NUMA node that has all of the CPUs, or -1.
func (t *Tree) nodeOf(cpus topology.Set) int {
	first, _ := t.machine.NodeIndex(t.machine.CPUs[cpus.First()].Node)
	if t.machine.Nodes[first].CPUs.Contains(cpus) {
		return first
	}
	return -1
}

// id identifies a group for users: the id of a package or NUMA node, otherwise its first CPU.
func (t *Tree) id(at int) int {
	g := &t.groups[at]
	for g.threads == nil {
		g = &t.groups[g.parts[0]]
	}
	switch cpu := t.machine.CPUs[g.threads[0]]; t.groups[at].outer {
	case topology.PackageLevel:
		return cpu.Package
	case topology.NodeLevel:
		return cpu.Node
	default:
		return cpu.ID
	}
}
