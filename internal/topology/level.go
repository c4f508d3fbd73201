package topology

// Level is a level of the topology, such as sockets or cores. The outermost level has the lowest number. On some
// machines a level has the same groups of CPUs as the level before it, or a group has CPUs of several groups of the
// level before it.
type Level uint8

// The levels.
const (
	PackageLevel Level = iota // sockets
	DieLevel                  // dies in a socket
	NodeLevel                 // NUMA nodes
	L3Level                   // CPUs that share an L3 cache
	ClusterLevel              // clusters: cores of one die that share a bus or L2 tags
	L2Level                   // CPUs that share an L2 cache
	CoreLevel                 // cores, with their threads

	levelCount // the number of levels
)

// Levels lists all levels, outermost first.
func Levels() []Level {
	return []Level{PackageLevel, DieLevel, NodeLevel, L3Level, ClusterLevel, L2Level, CoreLevel}
}

// String returns the level's name.
func (l Level) String() string {
	return [...]string{"socket", "die", "NUMA node", "L3 cache", "cluster", "L2 cache", "core"}[l]
}

// groupKey identifies a group of one level.
type groupKey [3]int

// keyOf returns the key of a CPU's group.
func (l Level) keyOf(c CPU) groupKey {
	switch l {
	case PackageLevel:
		return groupKey{c.Package}
	case DieLevel:
		return groupKey{c.Package, c.Die}
	case NodeLevel:
		return groupKey{c.Node}
	case L3Level:
		return groupKey{c.L3}
	case ClusterLevel:
		return groupKey{c.Package, c.Die, c.Cluster}
	case L2Level:
		return groupKey{c.L2}
	default:
		return groupKey{c.Package, c.Die, c.Core}
	}
}

// buildGroups assigns the CPUs to the groups of each level.
func (m *Machine) buildGroups() {
	for _, l := range Levels() {
		at := map[groupKey]int{}
		m.groupIndexes[l] = make([]int, len(m.CPUs))
		for i, c := range m.CPUs {
			p := l.keyOf(c)
			g, known := at[p]
			if !known {
				g = len(m.groups[l])
				at[p] = g
				m.groups[l] = append(m.groups[l], Set{})
			}
			m.groups[l][g].Add(i)
			m.groupIndexes[l][i] = g
		}
	}
}

// Groups returns the CPUs of each group of a level, in the order of their lowest CPUs. Callers
// must not change the slice.
func (m *Machine) Groups(l Level) []Set { return m.groups[l] }

// GroupOf returns the index of a CPU's group in the slice that Groups returns.
func (m *Machine) GroupOf(l Level, cpu int) int { return m.groupIndexes[l][cpu] }

// ExpandToGroups returns all CPUs of the groups that have at least one of the given CPUs. The groups are those of level
// l.
func (m *Machine) ExpandToGroups(l Level, cpus Set) Set {
	var s Set
	for i := range cpus.All() {
		s = s.Union(m.groups[l][m.groupIndexes[l][i]])
	}
	return s
}

// CountGroups returns the number of groups of a level that have at least one of the given CPUs.
func (m *Machine) CountGroups(l Level, cpus Set) int {
	n := 0
	for !cpus.Empty() {
		cpus = cpus.Minus(m.groups[l][m.groupIndexes[l][cpus.First()]])
		n++
	}
	return n
}
