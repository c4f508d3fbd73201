package engine

import (
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/placement"
)

// checkDerived compares what a state keeps up to date with every event to what follows from its
// containers: the needs of pools, the layout (all of it made anew from the CPUs that balloons had
// in the layout before), the groups of each pool, and the use of memory.
func checkDerived(t *rapid.T, before *placement.Layout, s *State) {
	t.Helper()
	needs, seats := placement.Needs(nil), map[placement.PoolID]map[placement.CPUGroup]bool{}
	for _, c := range s.containers {
		if needs = addNeed(needs, s.layout, c, 1); !c.Alive() {
			continue
		}
		if group := c.Assignment.CPUGroup; group.Pool.Named() {
			if seats[group.PoolID] == nil {
				seats[group.PoolID] = map[placement.CPUGroup]bool{}
			}
			seats[group.PoolID][group] = true
		}
	}
	checkUse(t, s, s.memoryUse, memoryOf)
	for resource, kept := range s.hugePageUse {
		checkUse(t, s, kept, func(p *Pod, c *Container) nodeBytes { return hugePagesOf(p, c, resource) })
	}
	if diff := cmp.Diff(needs, s.layout.Demand.Needs, cmpopts.EquateEmpty()); diff != "" {
		t.Fatal("needs computed and kept: ", diff)
	}
	for w, all := range seats {
		if len(all) != len(s.poolGroups[w]) || !slices.ContainsFunc(s.poolGroups[w], func(g placement.CPUGroup) bool { return all[g] }) {
			t.Fatalf("%d groups of %s, %d kept", len(all), w, len(s.poolGroups[w]))
		}
	}
	if len(seats) != len(s.poolGroups) {
		t.Fatalf("%d pools with groups, %d kept", len(seats), len(s.poolGroups))
	}
	checkScopes(t, s)
	anew := s.Policy.Placement.Layout(&s.Policy.Pools, placement.Demand{
		OwnedCPUs: s.layout.Demand.OwnedCPUs, LentCPUs: s.layout.Demand.LentCPUs, Needs: needs, Previous: &placement.Layout{Balloons: before.Balloons},
	})
	if diff := cmp.Diff(anew.Balloons, s.layout.Balloons); diff != "" || anew.Idle != s.layout.Idle || !maps.Equal(anew.CPUsByPart, s.layout.CPUsByPart) {
		t.Fatal("layout made anew and kept: ", diff)
	}
	for group, b := range s.groups {
		if cpus, _ := s.layout.CPUs(group); b.cpus != cpus || b.cpuList != s.Machine.Format(cpus) {
			t.Fatalf("%v has %s, kept %s", group, s.Machine.Format(cpus), b.cpuList)
		}
	}
}

// checkUse compares what a state keeps about the use of NUMA nodes to what its containers use.
func checkUse(t *rapid.T, s *State, kept nodeUse, of func(*Pod, *Container) nodeBytes) {
	t.Helper()
	use := newNodeUse()
	for _, c := range s.containers {
		if now := of(s.pods[c.PodID], c); now != (nodeBytes{}) {
			use.byContainer[c.ID] = now
			if !now.hasOneNode() {
				use.multiNode[c.ID] = true
			} else {
				use.singleNode[now.list] += now.bytes
			}
		}
	}
	maps.DeleteFunc(kept.singleNode, func(_ string, bytes uint64) bool { return bytes == 0 })
	if !maps.Equal(use.byContainer, kept.byContainer) || !maps.Equal(use.singleNode, kept.singleNode) || !maps.Equal(use.multiNode, kept.multiNode) {
		t.Fatalf("use %v, kept %v", use, kept)
	}
}
