package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// tierRelease is the first kernel release that can reclaim anonymous memory without also reclaiming page cache.
const tierRelease = "6.16"

// kernelTiers has the numbers of the memory tiers that Linux assigns to HBM, DRAM and CXL memory.
var kernelTiers = map[topology.MemoryKind]int{topology.HBM: 2, topology.DRAM: 4, topology.PMEM: 22}

// setTiers configures the simulated kernel with memory tiers for the machine's memory nodes, and with the release
// tierRelease.
func setTiers(k *kernel.Cgroups, t kernel.Tiers, m *topology.Machine) error {
	var nodes []kernel.TierNode
	for i, n := range m.Nodes {
		tn := kernel.TierNode{ID: n.ID, Tier: kernelTiers[n.Kind], Size: int64(n.Memory), Distance: map[int]int{}} //nolint:gosec // a scenario's
		for j, other := range m.Nodes {
			tn.Distance[other.ID] = m.Distance(i, j)
		}
		nodes = append(nodes, tn)
	}
	k.SetTiers(t, nodes)
	return k.SetRelease(tierRelease)
}

// useMemory sets the memory that the processes of a step's new containers use.
func (r *Runtime) useMemory(s *scenario.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range s.Run {
		for _, request := range run.Containers {
			c := r.containers[scenario.PodRef(run.Pod.Namespace, run.Pod.Name).In(request.Name)]
			for node, bytes := range request.Uses {
				id, err := strconv.Atoi(node)
				if err == nil && c != nil {
					err = r.opts.Kernel.SetNodeMemory(c.dir, id, kernel.NodeMemory{Anonymous: bytes})
				}
				if err != nil {
					return fmt.Errorf("container %s: uses: memory node %s: %w", request.Name, node, err)
				}
			}
		}
	}
	return nil
}

// compareNodeMemory compares a container's anonymous memory on each memory node with a want. It compares nothing on
// cgroup v1, because the agent cannot move memory there. It also notes memory that the kernel dropped or swapped.
func (p *player) compareNodeMemory(ref scenario.Ref, want scenario.Want, note func(string, ...any)) {
	if want.OnNodes == nil {
		return
	}
	got := p.runtime.anonymousMemoryByNode(ref)
	if p.version == cgroup.V1 { // cgroup v1 has no memory.reclaim
		got = want.OnNodes
	}
	for _, node := range slices.Sorted(maps.Keys(want.OnNodes)) {
		if got[node] != want.OnNodes[node] {
			note("has %d bytes on memory node %s, wanted %d", got[node], node, want.OnNodes[node])
		}
	}
	if lost := p.kernel.LostBytes(); lost > 0 {
		note("the kernel dropped or swapped %d bytes", lost)
	}
}

// anonymousMemoryByNode returns a container's anonymous memory by memory node.
func (r *Runtime) anonymousMemoryByNode(ref scenario.Ref) map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int64{}
	if c := r.containers[ref]; c != nil {
		for node, m := range r.opts.Kernel.NodeMemory(c.dir) {
			all[fmt.Sprint(node)] = m.Anonymous
		}
	}
	return all
}
