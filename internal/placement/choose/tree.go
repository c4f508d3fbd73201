package choose

import (
	"fmt"
	"slices"
	"sync" //nolint:depguard // only for the pool of scratch buffers: several goroutines use a tree at the same time

	"github.com/trimtab/trimtab/internal/topology"
)

// Tree has the groups of a machine's CPUs as a tree. The parts of a group are the groups of the next level
// that divides it. The tree does not change after NewTree.
type Tree struct {
	machine    *topology.Machine
	groups     []group // the root first, parents before their parts
	maxThreads int     // the number of threads of the largest core
	uniform    bool    // all cores have the same number of threads
	hybrid     bool    // there are several kinds of cores, and cores differ in their number of threads
	shapes     int     // the number of different values of group.shape
	cores      [][]int // the CPUs of each core, by the machine's core index
	// byNode has the index of the group that has exactly the CPUs of each NUMA node, by the node's index; -1
	// if there is no such group.
	byNode []int
	// nodesByDistance has, for each NUMA node, the indices of all nodes, the nearest first. packages has the packages
	// of each node as a bit set; nil if the machine has more than 64 packages.
	nodesByDistance [][]uint8
	packages        []uint64
	// innermostGroup has the index of the innermost group of each CPU.
	innermostGroup [topology.MaxCPUs]int32
	// scratchPool has buffers that requests reuse.
	scratchPool sync.Pool
}

// group is a set of CPUs that share a part of the machine, such as a package or a cache.
type group struct {
	// outer and inner are the outermost and the innermost level of the group. For example, a package with one
	// NUMA node and one L3 cache is a group of all three levels.
	outer, inner topology.Level
	size         int   // the number of online CPUs of the group
	threads      []int // the CPUs of the group, if it is one core; otherwise nil
	node         int   // the index of the NUMA node that has all CPUs of the group; -1 if there is none
	parts        []int // the indices of the groups into which the group is divided
	parent       int   // the index of the group that contains this group; -1 for the root
	hasCores     bool  // the group is a core, or its parts are cores
	isCoreKind   bool  // the group has the cores of one kind in a NUMA node
	efficient    bool  // all cores of the group are efficient
	// shape is equal for groups that are divided in the same way at each level.
	shape int
}

// NewTree makes the tree of a machine.
func NewTree(m *topology.Machine) *Tree {
	t := &Tree{machine: m, uniform: true}
	cores := m.Groups(topology.CoreLevel)
	for _, c := range cores {
		t.maxThreads = max(t.maxThreads, c.Len())
		t.uniform = t.uniform && c.Len() == cores[0].Len()
		t.cores = append(t.cores, c.Members())
	}
	t.hybrid = !t.uniform && len(t.splitByCoreKind(m.Online())) > 1
	shapes := map[string]int{}
	t.add(m.Online(), topology.PackageLevel, -1, false, shapes)
	t.shapes = len(shapes)
	t.byNode = make([]int, len(m.Nodes))
	for i := range t.byNode {
		t.byNode[i] = -1
	}
	for at := len(t.groups) - 1; at >= 0; at-- { // outer groups come last, so that they win if several groups have exactly the node's CPUs
		if g := &t.groups[at]; g.node >= 0 && g.outer <= topology.NodeLevel && g.size == m.Nodes[g.node].CPUs.And(m.Online()).Len() {
			t.byNode[g.node] = at
		}
	}
	t.computeDistances()
	return t
}

// computeDistances computes t.nodesByDistance and t.packages.
func (t *Tree) computeDistances() {
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
		t.nodesByDistance = append(t.nodesByDistance, order)
	}
}

// add appends the group of some CPUs and all groups inside it, and returns the index of the group. The parameter level
// is the group's outermost level. If isCoreKind is true, the group has the cores of one kind in a NUMA node.
func (t *Tree) add(cpus topology.Set, level topology.Level, parent int, isCoreKind bool, shapes map[string]int) int {
	at := len(t.groups)
	g := group{outer: level, inner: level, size: cpus.Len(), node: t.nodeOf(cpus), parent: parent, hasCores: true, isCoreKind: isCoreKind}
	t.groups = append(t.groups, g)
	form := ""
	for ; level <= topology.CoreLevel; level++ {
		sets, kinds := t.divideByLevelOrKind(cpus, level, isCoreKind)
		if len(sets) == 1 {
			g.inner = level
			continue
		}
		if level == g.outer { // only for the root or a group of one kind of cores; the level then does not belong to the group
			g.inner = level - 1
		}
		for _, s := range sets {
			part := t.add(s, level, at, kinds, shapes)
			g.parts = append(g.parts, part)
			// If each part is one core, the group has cores as its parts, whatever levels the parts have. The exception
			// is a group of several NUMA nodes with one core each.
			g.hasCores = g.hasCores && t.groups[part].threads != nil && !kinds && g.node >= 0
			form += fmt.Sprint(" ", t.groups[part].shape)
		}
		break
	}
	if g.parts == nil {
		g.threads = cpus.Members()
		for _, cpu := range g.threads {
			t.innermostGroup[cpu] = int32(at)
		}
	}
	if g.outer <= topology.NodeLevel && g.inner >= topology.NodeLevel {
		g.isCoreKind = len(g.parts) == 0 || !t.groups[g.parts[0]].isCoreKind
	}
	g.efficient = t.machine.CPUsOfKind(topology.EfficiencyCore).Contains(cpus)
	form = fmt.Sprint(g.outer, g.inner, g.isCoreKind, g.efficient, g.size, form)
	if _, known := shapes[form]; !known {
		shapes[form] = len(shapes)
	}
	g.shape = shapes[form]
	t.groups[at] = g
	return at
}

// divideByLevelOrKind splits CPUs into the groups of a level. If the level is that of L3 caches and the CPUs have several
// kinds of cores, it splits them by these kinds instead, but not if isCoreKind is true. The result byCoreKind is true
// if the sets are kinds of cores.
func (t *Tree) divideByLevelOrKind(cpus topology.Set, level topology.Level, isCoreKind bool) (sets []topology.Set, byCoreKind bool) {
	if level == topology.L3Level && !isCoreKind {
		if parts := t.splitByCoreKind(cpus); len(parts) > 1 {
			return parts, true
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

// splitByCoreKind splits CPUs by the kind of their cores, the kind with the lowest CPU first. On a hybrid processor a
// request gets cores of one kind if possible, because threads run at different speeds on different kinds of cores.
func (t *Tree) splitByCoreKind(cpus topology.Set) []topology.Set {
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

// isDividedByKind reports whether the parts of a group are kinds of cores.
func (t *Tree) isDividedByKind(g *group) bool {
	part := &t.groups[g.parts[0]]
	return part.isCoreKind && part.outer > topology.NodeLevel
}

// nodeOf returns the index of the NUMA node that has all of the CPUs; -1 if there is none.
func (t *Tree) nodeOf(cpus topology.Set) int {
	first, _ := t.machine.NodeIndex(t.machine.CPUs[cpus.First()].Node)
	if t.machine.Nodes[first].CPUs.Contains(cpus) {
		return first
	}
	return -1
}

// id returns the number that identifies a group for users: the id of a package or NUMA node, or else the id
// of the group's first CPU.
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
