package placement

import (
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Cores are the cores of a machine with their threads.
type Cores struct {
	first topology.Set  // the first thread of each core
	lower map[int][]int // for each other thread: the threads of the core that come before it
}

// CoresOf returns the cores of a machine.
func CoresOf(m *topology.Machine) Cores {
	c := Cores{lower: map[int][]int{}}
	for _, core := range m.Groups(topology.CoreLevel) {
		all := core.Members()
		for i, cpu := range all {
			if c.lower[cpu] = all[:i]; i == 0 {
				c.first.Add(cpu)
			}
		}
	}
	return c
}

// OneOfEach returns, for each core with threads in the set, the first of these threads.
func (c Cores) OneOfEach(cpus topology.Set) topology.Set {
	out := cpus.And(c.first)
	for cpu := range cpus.Minus(c.first).All() {
		if !slices.ContainsFunc(c.lower[cpu], cpus.Has) {
			out.Add(cpu)
		}
	}
	return out
}
