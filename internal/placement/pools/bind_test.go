package pools

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// TestBound: the NUMA nodes of a bound owner are chosen by CPUs, memory, caches and devices together.
func TestBound(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		name, machine string
		needs         map[placement.PoolID]int64
		owned         string
		n             int
		memory        placement.Memory
		device        []int // the NUMA nodes of its devices
		in            intent.Pod
		cpus, why     string
	}{
		{
			name: "60 GiB, where one node has them", machine: "2s x 2n x 4c x 2t", owned: "0", n: 2,
			memory: placement.Memory{Bytes: 60 * gib, FreeByNode: []uint64{0, 4 * gib, 64 * gib, 8 * gib}},
			cpus:   "8,24", why: "1 NUMA node: of 4 choices with enough CPUs, the one with the nearest memory",
		},
		{
			name: "60 GiB, where no node has them", machine: "2s x 2n x 4c x 2t", n: 2,
			memory: placement.Memory{Bytes: 60 * gib, FreeByNode: []uint64{30 * gib, 40 * gib, 50 * gib, 8 * gib}},
			cpus:   "8,24", why: "the nearest memory",
		},
		{
			name: "a card at a node without memory", machine: "2s x 4c x 2t", n: 2, device: []int{0},
			memory: placement.Memory{Bytes: 4 * gib, FreeByNode: []uint64{0, 64 * gib}},
			cpus:   "1,9", why: "the most nodes near its devices (x/gpu)",
		},
		{
			name: "cards at two nodes, memory at one", machine: "2s x 4c x 2t", n: 2, device: []int{0, 1},
			memory: placement.Memory{Bytes: 4 * gib, FreeByNode: []uint64{0, 64 * gib}},
			cpus:   "4,12", why: "the nearest memory",
		},
		{
			name: "eight CPUs of one L3 cache, not of four", machine: "2s x 4l x 4c x 2t", n: 8,
			owned: "1-3,5-7,9-11,13-15,33-35,37-39,41-43,45-47,21-31,53-63", cpus: "16-19,48-51", why: "the fewest L3 caches",
		},
		{
			name: "whole cores, not halves", machine: "2s x 4c x 2t", owned: "1,3-4,8,10-11,12", n: 2, cpus: "5,13", why: "the fewest cores",
		},
		{
			name: "apart from others", machine: "2s x 4c x 2t", owned: "4,8-11,12", n: 2, cpus: "5,13",
			in: intent.Pod{Cores: intent.Sourced[intent.CoreUse]{Key: "x", V: intent.CoreUse{AvoidOwnedCores: true}}}, why: "the most important preferences met",
		},
		{
			name: "what a pool needs that is bound to a node", machine: "2s x 4c x 2t", owned: "7,15",
			needs: map[placement.PoolID]int64{{BoundToNodes: true, Node: 1}: 5000}, n: 2, cpus: "1,9", why: "the only choice with enough CPUs",
		},
		{
			name: "and from it where there is no other way", machine: "2s x 4c x 2t", owned: "0-3,8-11,7,15",
			needs: map[placement.PoolID]int64{{BoundToNodes: true, Node: 1}: 5000}, n: 4, cpus: "4,6,12,14", why: "the only choice with enough CPUs",
		},
		{
			name: "and from it rather than of two nodes", machine: "2s x 4c x 2t", owned: "0-2,8-10,7,15",
			needs: map[placement.PoolID]int64{{BoundToNodes: true, Node: 1}: 5000}, n: 4, cpus: "4-5,12-13", why: "the only choice with enough CPUs",
		},
		{
			name: "whole cores, preferred", machine: "2s x 4c x 2t", owned: "0-2,7,15", n: 4, cpus: "4-5,12-13",
			in: intent.Pod{Cores: intent.Sourced[intent.CoreUse]{Key: "x", V: intent.CoreUse{PreferWholeCores: true}}}, why: "the most important preferences met",
		},
		{
			name: "evenly over two nodes, both with memory", machine: "4n x 4c x 2t", n: 4,
			in:     intent.Pod{NUMA: intent.Sourced[intent.NUMABinding]{Key: "x", V: intent.NUMABinding{Even: true, Count: 2}}},
			memory: placement.Memory{Bytes: 40 * gib, FreeByNode: []uint64{20 * gib, 0, 20 * gib, 20 * gib}},
			cpus:   "1,8,17,24", why: "the one with the lowest node ids (before 2 others), the nearest memory (before 3 others)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUsed(t, c.machine, c.needs)
			u.demand.OwnedCPUs = u.m.OnlineOf(c.owned)
			if !c.in.NUMA.IsSet() {
				c.in.NUMA.Key = "numa_binding"
			}
			s := placement.Subject{Intent: &c.in}
			if c.device != nil {
				s.Devices = []lifecycle.DeviceGrant{{NUMA: map[string][]int{"x/gpu": c.device}}}
			}
			got, err := u.policy.Choose(u.view(), s, placement.CPURequest{N: c.n, Memory: c.memory})
			if err != nil || got.CPUs != u.m.OnlineOf(c.cpus) || !strings.Contains(got.Why, c.why) {
				t.Errorf("%s, %v, by %q; want %s by %q", u.m.Format(got.CPUs), err, got.Why, c.cpus, c.why)
			}
		})
	}
}
