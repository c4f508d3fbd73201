package topologyaware

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// nodePart is a part of the node in which containers are placed. nri-plugins calls it a pool.
type nodePart struct {
	name     string // such as "NUMA node #1"
	level    Level
	cpus     topology.Set
	depth    int   // the number of parts that contain this part; 0 for the whole node
	parent   int   // the index of the smallest part that contains this part; -1 for the whole node
	children []int // the indexes of the parts whose parent is this part
}

// Level is the level of a part of the node in the machine's topology.
type Level int

// The levels, the largest part first.
const (
	System Level = iota
	Package
	Die
	NUMA
	L3Cache
)

// Levels returns the levels by their names in the configuration.
func Levels() map[string]Level {
	return map[string]Level{"system": System, "package": Package, "die": Die, "numa": NUMA, "l3cache": L3Cache}
}

// partIndexes has the indexes of parts by their names.
type partIndexes map[string]int

// partIndexes returns the indexes of all parts of the tree.
func (t tree) partIndexes() partIndexes {
	all := make(partIndexes, len(t))
	for i := range t {
		all[t[i].name] = i
	}
	return all
}

// tree has the parts of a node. Each part is after its children, and the whole node is last. So the first part that
// contains given CPUs is the smallest part that contains them.
type tree []nodePart

// newTree makes the tree of a machine. It leaves out a level that does not divide a part into several
// parts. A NUMA node without memory is not a part of the tree: its CPUs belong only to the larger part
// that contains them (nri-plugins 0.14, topology-aware, buildPoolsByTopology).
func newTree(m *topology.Machine) tree {
	b := treeBuilder{machine: m}
	packages := b.divide(topology.PackageLevel, m.Online())
	if len(packages) == 1 {
		b.addPart(-1, Package, packages[0], 0)
		return b.childrenFirst()
	}
	root := b.appendPart(nodePart{name: "root", level: System, cpus: m.Online(), parent: -1})
	for _, cpus := range slices.Backward(packages) {
		b.addPart(root, Package, cpus, 1)
	}
	return b.childrenFirst()
}

// treeBuilder makes a tree in reverse order: parents before children, and the last child first.
type treeBuilder struct {
	machine *topology.Machine
	parts   tree
}

// appendPart appends a part and returns its index.
func (b *treeBuilder) appendPart(p nodePart) int {
	b.parts = append(b.parts, p)
	return len(b.parts) - 1
}

// divide returns the groups of a level, each limited to the given CPUs. It leaves out empty groups.
func (b *treeBuilder) divide(l topology.Level, cpus topology.Set) (groups []topology.Set) {
	for _, g := range b.machine.Groups(l) {
		if both := g.And(cpus); !both.Empty() {
			groups = append(groups, both)
		}
	}
	return groups
}

// addPart adds a part with the given CPUs, and all smaller parts in it.
func (b *treeBuilder) addPart(parent int, level Level, cpus topology.Set, depth int) {
	at := b.appendPart(nodePart{name: b.partName(parent, level, cpus), level: level, cpus: cpus, depth: depth, parent: parent})
	inner, groups := b.nextLevel(level, cpus)
	for _, g := range slices.Backward(groups) {
		b.addPart(at, inner, g, depth+1)
	}
}

// nextLevel returns the next level that divides the CPUs into several groups, and the groups. It returns no groups
// if there is no such level.
func (b *treeBuilder) nextLevel(level Level, cpus topology.Set) (Level, []topology.Set) {
	for l := level + 1; l <= L3Cache; l++ {
		groups := b.divide(map[Level]topology.Level{Die: topology.DieLevel, NUMA: topology.NodeLevel, L3Cache: topology.L3Level}[l], cpus)
		if l == Die && slices.Equal(groups, b.divide(topology.L3Level, cpus)) {
			continue // each die has one L3 cache, so both levels have the same groups
		}
		if len(groups) < 2 {
			continue
		}
		if l == NUMA {
			groups = slices.DeleteFunc(groups, b.withoutMemory)
		}
		return l, groups
	}
	return level, nil
}

// withoutMemory reports whether the NUMA node of the given CPUs has no memory.
func (b *treeBuilder) withoutMemory(cpus topology.Set) bool {
	n, ok := b.machine.Node(b.machine.CPUs[cpus.First()].Node)
	return ok && n.Kind == topology.NoMemory
}

// partName returns the name of a part. nri-plugins uses the same names.
func (b *treeBuilder) partName(parent int, level Level, cpus topology.Set) string {
	first := b.machine.CPUs[cpus.First()]
	switch level {
	case Package:
		return fmt.Sprintf("socket #%d", first.Package)
	case Die:
		return fmt.Sprintf("die #%d/%d", first.Package, first.Die)
	case NUMA:
		return fmt.Sprintf("NUMA node #%d", first.Node)
	case System, L3Cache:
	}
	return fmt.Sprintf("%s/L3 cache #%d", b.parts[parent].name, first.L3)
}

// childrenFirst returns the parts in reverse order, so that children come before their parents. It also sets the fields
// parent and children.
func (b *treeBuilder) childrenFirst() tree {
	last := len(b.parts) - 1
	slices.Reverse(b.parts)
	for i := range b.parts {
		p := &b.parts[i]
		if p.parent >= 0 {
			p.parent = last - p.parent
			b.parts[p.parent].children = append(b.parts[p.parent].children, i)
		}
	}
	return b.parts
}

// smallestAround returns the index of the smallest part that contains the CPUs.
func (t tree) smallestAround(cpus topology.Set) int {
	return slices.IndexFunc(t, func(p nodePart) bool { return p.cpus.Contains(cpus) })
}

// distance returns the number of levels between two parts. ok is false if neither part contains the other.
func (t tree) distance(a, b int) (n int, ok bool) {
	if t[a].depth < t[b].depth {
		a, b = b, a
	}
	for n = t[a].depth - t[b].depth; t[a].depth > t[b].depth; {
		a = t[a].parent
	}
	return n, a == b
}
