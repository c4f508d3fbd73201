package engine

import (
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// beginColdStart handles a new container that requests a cold start. It limits the container to those of its memory
// nodes that have the kind PMEM. So the container starts with slow memory, and leaves fast memory to other containers
// (nri-plugins 0.14, cold-start).
func (s *placer) beginColdStart() {
	cold, from := s.c.Assignment.Memory.ColdStartSeconds, s.c.Assignment.Memory.ColdStartKey
	if cold == 0 {
		return
	}
	all, _ := topology.ParseList(s.c.Mems) // the agent made the list
	slow := slices.DeleteFunc(slices.Clone(all), func(id int) bool {
		n, ok := s.n.machine.Node(id)
		return !ok || n.Kind != topology.PMEM
	})
	if len(slow) == 0 || len(slow) == len(all) {
		has := "memory nodes " + s.c.Mems
		if len(all) == 0 {
			has = "no memory nodes that the agent chose"
		}
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: from, Value: strconv.Itoa(cold) + " s", Warning: true,
			Reason: "a cold start needs memory of kind PMEM and of another kind, and the container has " + has,
			Then:   "the container has all its memory nodes from its start",
		})
		return
	}
	s.c.ColdStart = lifecycle.ColdStart{Mems: s.c.Mems, Seconds: cold}
	s.c.Mems = topology.FormatList(slow)
}

// memoryNodesOf returns the memory nodes of a running container, and the container's cold start if this is not over.
func (d *draft) memoryNodesOf(c *Container) (mems string, cold lifecycle.ColdStart) {
	if c.ColdStart.Seconds > 0 && d.facts.ColdStartsOver[c.ID] {
		return c.ColdStart.Mems, lifecycle.ColdStart{}
	}
	return c.Mems, c.ColdStart
}

// endFinishedColdStart handles a container that is restored from its record. The parameter kernel is the list of memory
// nodes that the kernel gives to the container now. If this list has all memory nodes of the container, the cold start
// ended after the record was written. endFinishedColdStart then removes the cold start from c. With the cold start in
// c, the agent would limit the container to slow memory again, and the kernel would move pages.
func endFinishedColdStart(c *Container, kernel string) {
	if c.ColdStart.Seconds > 0 && kernel == c.ColdStart.Mems {
		c.Mems, c.ColdStart = c.ColdStart.Mems, lifecycle.ColdStart{}
	}
}

// ColdStarts returns, by container id, for how many seconds each container in a cold start has only slow
// memory; nil if there is no such container.
func (s *State) ColdStarts() (all map[string]int) {
	for id, c := range s.containers {
		if c.ColdStart.Seconds > 0 && c.Alive() {
			if all == nil {
				all = map[string]int{}
			}
			all[id] = c.ColdStart.Seconds
		}
	}
	return all
}
