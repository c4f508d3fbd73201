package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestFastAndSlow: only a running container to which the agent gave both kinds of memory has both, and none after a
// release.
func TestFastAndSlow(t *testing.T) {
	t.Parallel()
	m, p := topologyAwarePolicy(t, "2s x 1n x 2c", topologyaware.Options{})
	m.Nodes[1].Kind = topology.PMEM
	s := NewState(m, p)
	for id, c := range map[string]Container{
		"both":    {RecordFields: lifecycle.RecordFields{Mems: "0-1"}, Life: lifecycle.StateRunning},
		"created": {RecordFields: lifecycle.RecordFields{Mems: "0-1"}, Life: lifecycle.StateCreated},
		"ended":   {RecordFields: lifecycle.RecordFields{Mems: "0-1"}, Life: lifecycle.StateStopped},
		"fast":    {RecordFields: lifecycle.RecordFields{Mems: "0"}, Life: lifecycle.StateRunning},
		"slow":    {RecordFields: lifecycle.RecordFields{Mems: "1"}, Life: lifecycle.StateRunning},
		"its own": {Life: lifecycle.StateRunning},
		"cold":    {RecordFields: lifecycle.RecordFields{Mems: "0-1", ColdStart: lifecycle.ColdStart{Mems: "0-1", Seconds: 9}}, Life: lifecycle.StateRunning},
	} {
		s.containers[id] = &c
	}
	if d := cmp.Diff(map[string]MemoryTiers{"both": {Fast: []int{0}, Slow: []int{1}}}, s.MemoryTiers()); d != "" {
		t.Error(d)
	}
	s.Policy.PlacementOn = false
	if got := s.MemoryTiers(); len(got) > 0 {
		t.Errorf("after a release: %v", got)
	}
}
