package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// exclusiveCPUs returns the CPUs that the cgroup of a pod can have exclusively (cpuset.cpus.exclusive): the CPUs that
// the pod's containers own. The result is empty in three cases: the pod lends these CPUs to reclaimed containers, a
// container of the pod also uses other CPUs, or the kubelet or resource claims gave a container its CPUs.
func (n *view) exclusiveCPUs(p *Pod) topology.Set {
	if !slices.ContainsFunc(n.policy.Hooks, func(h hook.Hook) bool { _, is := h.(hook.Partition); return is }) {
		return topology.Set{} // no hook needs these CPUs
	}
	cpus := n.ledger.CPUsOfPod(p.Pod.UID)
	if cpus.Empty() || p.Stopped || !cpus.And(n.ledger.LentCPUs()).Empty() {
		return topology.Set{}
	}
	for _, c := range n.containersOf(p.Pod.ID) {
		if c.Alive() && (c.Assignment.Pool != placement.Exclusive || c.Assignment.OwnsAndShares() || placement.IsExternal(c.Assignment.From)) {
			return topology.Set{}
		}
	}
	return cpus
}

// makesPartition reports whether a value belongs to a file with which a cgroup becomes a cpuset partition.
func makesPartition(v lifecycle.Value) bool {
	return v.Field == lifecycle.Unified && (v.Key == hook.ExclusiveFile || v.Key == hook.PartitionFile)
}
