package placement

import (
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Cores are the cores of a machine with their threads.
type Cores struct {
	first topology.Set  // the first thread of each core
	lower map[int][]int // by thread: the threads of the same core that come before this thread
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

// OneOfEach returns one thread of each core that has threads in the set: the first of the core's threads in the set.
func (c Cores) OneOfEach(cpus topology.Set) topology.Set {
	out := cpus.And(c.first)
	for cpu := range cpus.Minus(c.first).All() {
		if !slices.ContainsFunc(c.lower[cpu], cpus.Has) {
			out.Add(cpu)
		}
	}
	return out
}
