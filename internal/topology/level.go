package topology

// Level is a kind of group of CPUs. Levels are ordered outermost first. On some machines a
// level does not divide the one before it, on others two of them are the same.
type Level uint8

// The levels.
const (
	PackageLevel Level = iota
	DieLevel
	NodeLevel
	L3Level
	ClusterLevel
	L2Level
	CoreLevel

	levels
)

// Levels lists all levels, outermost first.
func Levels() []Level {
	return []Level{PackageLevel, DieLevel, NodeLevel, L3Level, ClusterLevel, L2Level, CoreLevel}
}

// String returns the level's name.
func (l Level) String() string {
	return [...]string{"socket", "die", "NUMA node", "L3 cache", "cluster", "L2 cache", "core"}[l]
}

// place identifies a group of one level.
type place [3]int

func (l Level) of(c CPU) place {
	switch l {
	case PackageLevel:
		return place{c.Package}
	case DieLevel:
		return place{c.Package, c.Die}
	case NodeLevel:
		return place{c.Node}
	case L3Level:
		return place{c.L3}
	case ClusterLevel:
		return place{c.Package, c.Die, c.Cluster}
	case L2Level:
		return place{c.L2}
	default:
		return place{c.Package, c.Die, c.Core}
	}
}

// group assigns the CPUs to the groups of each level.
func (m *Machine) group() {
	for _, l := range Levels() {
		at := map[place]int{}
		m.member[l] = make([]int, len(m.CPUs))
		for i, c := range m.CPUs {
			p := l.of(c)
			g, known := at[p]
			if !known {
				g = len(m.groups[l])
				at[p] = g
				m.groups[l] = append(m.groups[l], Set{})
			}
			m.groups[l][g].Add(i)
			m.member[l][i] = g
		}
	}
}

// Groups returns the CPUs of each group of a level, in the order of their lowest CPUs. Callers
// must not change the slice.
func (m *Machine) Groups(l Level) []Set { return m.groups[l] }

// GroupOf returns the index in Groups of a CPU's group.
func (m *Machine) GroupOf(l Level, cpu int) int { return m.member[l][cpu] }

// Spread returns all CPUs of the groups of a level that have one of the given CPUs.
func (m *Machine) Spread(l Level, cpus Set) Set {
	var s Set
	for i := range cpus.All() {
		s = s.Union(m.groups[l][m.member[l][i]])
	}
	return s
}

// Count returns how many groups of a level the given CPUs are in.
func (m *Machine) Count(l Level, cpus Set) int {
	n := 0
	for !cpus.Empty() {
		cpus = cpus.Minus(m.groups[l][m.member[l][cpus.First()]])
		n++
	}
	return n
}
