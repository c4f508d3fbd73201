package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// PoolShare is a pool with its current CPUs.
type PoolShare struct {
	Pool  placement.Pool
	Which placement.Which
	CPUs  topology.Set
	// Members is the number of live containers in it.
	Members int
}

// PoolShares lists the pools that always exist, and all other pools that have containers. A
// pod's cgroup may limit a container further.
func (s *State) PoolShares() []PoolShare {
	type name struct {
		pool  placement.Pool
		which placement.Which
	}
	members := map[name]int{{pool: placement.Shared}: 0, {pool: placement.Reclaimed}: 0}
	for seat, b := range s.groups {
		if seat.Pool != placement.Own {
			members[name{seat.Pool, seat.Which}] += len(b.members)
		}
	}
	names := slices.SortedFunc(maps.Keys(members), func(a, b name) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), a.which.Compare(b.which))
	})
	out := make([]PoolShare, len(names))
	for i, n := range names {
		cpus, _ := s.layout.CPUs(placement.CPUGroup{Pool: n.pool, Which: n.which})
		out[i] = PoolShare{Pool: n.pool, Which: n.which, CPUs: cpus, Members: members[n]}
	}
	return out
}
