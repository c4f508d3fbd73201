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
	needs, seats, memory := placement.Needs(nil), map[placement.Which]map[placement.CPUGroup]bool{}, newMemoryUse()
	for _, c := range s.containers {
		if needs = addNeed(needs, s.layout, c, 1); !c.Alive() {
			continue
		}
		if seat := c.Assignment.CPUGroup; seat.Pool.Named() {
			if seats[seat.Which] == nil {
				seats[seat.Which] = map[placement.CPUGroup]bool{}
			}
			seats[seat.Which][seat] = true
		}
		if now := chargeOf(s.pods[c.PodID], c); now != (charge{}) {
			memory.charges[c.ID] = now
			if !now.oneNode() {
				memory.wide[c.ID] = true
			} else {
				memory.alone[now.list] += now.bytes
			}
		}
	}
	if diff := cmp.Diff(needs, s.layout.Demand.Needs, cmpopts.EquateEmpty()); diff != "" {
		t.Fatal("needs computed and kept: ", diff)
	}
	for w, all := range seats {
		if len(all) != len(s.seats[w]) || !slices.ContainsFunc(s.seats[w], func(g placement.CPUGroup) bool { return all[g] }) {
			t.Fatalf("%d groups of %s, %d kept", len(all), w, len(s.seats[w]))
		}
	}
	maps.DeleteFunc(s.memory.alone, func(_ string, bytes uint64) bool { return bytes == 0 })
	if len(seats) != len(s.seats) || !maps.Equal(memory.charges, s.memory.charges) || !maps.Equal(memory.alone, s.memory.alone) || !maps.Equal(memory.wide, s.memory.wide) {
		t.Fatalf("%d pools with groups, %d kept; memory %v, kept %v", len(seats), len(s.seats), memory, s.memory)
	}
	anew := s.Policy.Placement.Layout(&s.Policy.Pools, placement.Demand{
		Owned: s.layout.Demand.Owned, Lent: s.layout.Demand.Lent, Needs: needs, Before: &placement.Layout{Balloons: before.Balloons},
	})
	if diff := cmp.Diff(anew.Balloons, s.layout.Balloons); diff != "" || anew.Idle != s.layout.Idle || !maps.Equal(anew.Tree, s.layout.Tree) {
		t.Fatal("layout made anew and kept: ", diff)
	}
	for seat, b := range s.groups {
		if cpus, _ := s.layout.CPUs(seat); b.cpus != cpus || b.text != s.Machine.Format(cpus) {
			t.Fatalf("%v has %s, kept %s", seat, s.Machine.Format(cpus), b.text)
		}
	}
}
