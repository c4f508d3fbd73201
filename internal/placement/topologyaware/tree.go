package topologyaware

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// part is a part of the node that containers are placed in. nri-plugins calls it a pool.
type part struct {
	name     string // such as "NUMA node #1"
	level    Level
	cpus     topology.Set
	depth    int // 0 for the whole node
	parent   int // index in the tree, -1 for the whole node
	children []int
}

// Level is the kind of a part of the node.
type Level int

// The levels, the largest part first.
const (
	System Level = iota
	Package
	Die
	NUMA
	L3Cache
)

// Levels are the levels by their names in the configuration.
func Levels() map[string]Level {
	return map[string]Level{"system": System, "package": Package, "die": Die, "numa": NUMA, "l3cache": L3Cache}
}

// tree has the parts of a node. A part comes after its children, so that of two equal parts the
// one with the lower index is the first leaf. The whole node is the last.
type tree []part

// newTree makes the tree of a machine. A level that does not divide a part is left out. A NUMA
// node without memory is no part: its CPUs belong to the part around it (nri-plugins 0.14,
// topology-aware, buildPoolsByTopology).
func newTree(m *topology.Machine) tree {
	b := builder{m: m}
	packages := b.divide(topology.PackageLevel, m.Online())
	if len(packages) == 1 {
		b.add(-1, Package, packages[0], 0)
		return b.reversed()
	}
	root := b.put(part{name: "root", level: System, cpus: m.Online(), parent: -1})
	for _, cpus := range slices.Backward(packages) {
		b.add(root, Package, cpus, 1)
	}
	return b.reversed()
}

// builder makes a tree with parents before children, the last child first.
type builder struct {
	m     *topology.Machine
	parts tree
}

func (b *builder) put(p part) int {
	b.parts = append(b.parts, p)
	return len(b.parts) - 1
}

// divide returns the groups of a level that have some of the CPUs.
func (b *builder) divide(l topology.Level, cpus topology.Set) (groups []topology.Set) {
	for _, g := range b.m.Groups(l) {
		if both := g.And(cpus); !both.Empty() {
			groups = append(groups, both)
		}
	}
	return groups
}

// add adds a part and those in it.
func (b *builder) add(parent int, level Level, cpus topology.Set, depth int) {
	at := b.put(part{name: b.name(parent, level, cpus), level: level, cpus: cpus, depth: depth, parent: parent})
	inner, groups := b.next(level, cpus)
	for _, g := range slices.Backward(groups) {
		b.add(at, inner, g, depth+1)
	}
}

// next returns the next level that divides a part, and the groups.
func (b *builder) next(level Level, cpus topology.Set) (Level, []topology.Set) {
	for l := level + 1; l <= L3Cache; l++ {
		groups := b.divide(map[Level]topology.Level{Die: topology.DieLevel, NUMA: topology.NodeLevel, L3Cache: topology.L3Level}[l], cpus)
		if l == Die && slices.Equal(groups, b.divide(topology.L3Level, cpus)) {
			continue // these dies are nothing but L3 caches
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

func (b *builder) withoutMemory(cpus topology.Set) bool {
	n, ok := b.m.Node(b.m.CPUs[cpus.First()].Node)
	return ok && n.Kind == topology.NoMemory
}

// name returns the name that nri-plugins gives a part.
func (b *builder) name(parent int, level Level, cpus topology.Set) string {
	first := b.m.CPUs[cpus.First()]
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

// reversed returns the parts with children before parents.
func (b *builder) reversed() tree {
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

// named returns the index of a part, -1 for none.
func (t tree) named(name string) int {
	return slices.IndexFunc(t, func(p part) bool { return p.name == name })
}

// smallest returns the smallest part that has all of some CPUs.
func (t tree) smallest(cpus topology.Set) int {
	return slices.IndexFunc(t, func(p part) bool { return p.cpus.Contains(cpus) })
}

// distance returns the number of levels between two parts; ok is false if neither is in the
// other.
func (t tree) distance(a, b int) (n int, ok bool) {
	if t[a].depth < t[b].depth {
		a, b = b, a
	}
	for n = t[a].depth - t[b].depth; t[a].depth > t[b].depth; {
		a = t[a].parent
	}
	return n, a == b
}
