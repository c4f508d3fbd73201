package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// PoolShare is a pool with its current CPUs and the number of its containers.
type PoolShare struct {
	Pool   placement.PoolKind
	PoolID placement.PoolID
	CPUs   topology.Set
	// Members is the number of live containers in the pool.
	Members int
}

// PoolShares returns the pools that always exist, all balloons, and all other pools that have containers. For a balloon
// without containers it returns only the CPUs that no other balloon uses. A container in a pool can have fewer CPUs
// than the pool, because the cgroup of the container's Kubernetes pod limits its CPUs.
func (s *State) PoolShares() []PoolShare {
	type name struct {
		pool  placement.PoolKind
		which placement.PoolID
	}
	members := map[name]int{{pool: placement.Shared}: 0, {pool: placement.Reclaimed}: 0}
	for group, b := range s.groups {
		if group.Pool != placement.Exclusive {
			members[name{group.Pool, group.PoolID}] += len(b.members)
		}
	}
	for _, b := range s.layout.Balloons {
		members[name{placement.Balloon, b.Need.PoolID}] += 0
	}
	names := slices.SortedFunc(maps.Keys(members), func(a, b name) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), a.which.Compare(b.which))
	})
	out := make([]PoolShare, len(names))
	for i, n := range names {
		cpus, _ := s.layout.CPUs(placement.CPUGroup{Pool: n.pool, PoolID: n.which})
		if n.pool == placement.Balloon && members[n] == 0 {
			cpus = s.BalloonCPUs(n.which.Name)
		}
		out[i] = PoolShare{Pool: n.pool, PoolID: n.which, CPUs: cpus, Members: members[n]}
	}
	return out
}
