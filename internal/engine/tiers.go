package engine

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// MemoryTiers has the ids of the memory nodes that the agent gave to a container. Slow has the nodes of kind PMEM, and
// Fast has all other nodes.
type MemoryTiers struct{ Fast, Slow []int }

// MemoryTiers returns the memory tiers of the running containers to which the agent gave both fast and slow
// nodes, by container id. It leaves out containers in a cold start, which have only slow memory now.
func (s *State) MemoryTiers() map[string]MemoryTiers {
	all := map[string]MemoryTiers{}
	if !s.Policy.PlacementOn {
		return all
	}
	for id, c := range s.containers {
		if !c.Runs() || c.Mems == "" || c.ColdStart.Seconds > 0 {
			continue
		}
		nodes, _ := topology.ParseList(c.Mems) // the agent made the list
		var m MemoryTiers
		for _, node := range nodes {
			switch n, known := s.Machine.Node(node); {
			case !known:
			case n.Kind == topology.PMEM:
				m.Slow = append(m.Slow, node)
			default:
				m.Fast = append(m.Fast, node)
			}
		}
		if len(m.Fast) > 0 && len(m.Slow) > 0 {
			all[id] = m
		}
	}
	return all
}
