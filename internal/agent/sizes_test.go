package agent

import (
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// TestAboutSameMemory: the agent does not decide again because of a memory balloon, which moves a few MiB
// at a time, but it does when a memory module is added or removed.
func TestAboutSameMemory(t *testing.T) {
	node := func(gib float64, kind topology.MemoryKind) topology.Node {
		return topology.Node{Memory: uint64(gib * (1 << 30)), Kind: kind}
	}
	for name, tt := range map[string]struct {
		before, now topology.Node
		same        bool
	}{
		"nothing":         {node(64, 0), node(64, 0), true},
		"a balloon":       {node(64, 0), node(63.9, 0), true},
		"and back":        {node(63.9, 0), node(64, 0), true},
		"a module":        {node(64, 0), node(32, 0), false},
		"one more":        {node(64, 0), node(96, 0), false},
		"the first":       {node(0, 0), node(0.1, 0), false},
		"the last":        {node(0.1, 0), node(0, 0), false},
		"another kind":    {node(64, 0), node(64, 1), false},
		"just too much":   {node(16, 0), node(17.1, 0), false},
		"just not enough": {node(16, 0), node(16.9, 0), true},
	} {
		if got := isSameMemory(tt.now, tt.before); got != tt.same {
			t.Errorf("%s: %v, want %v", name, got, tt.same)
		}
	}
}
