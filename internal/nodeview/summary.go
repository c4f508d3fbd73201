package nodeview

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/topology"
)

// Summary returns the node's state in numbers, for metrics.
func Summary(source Source) api.Summary {
	n, k := read(source, (*View).summary)
	tally := k.Tally()
	n.Drift, n.Kernel = tally.Drift, map[string]uint64{}
	for s, count := range tally.Results {
		n.Kernel[s.String()] = count
	}
	_, n.Ceded, n.Contested = k.ContestedFiles(0)
	return n
}

// summary does the work of Summary, without the numbers of the keeper. It formats no texts, because events wait until
// the view is released.
func (v *View) summary() api.Summary {
	n := api.Summary{
		LastSync: v.Synced, Attached: len(v.Attached()) > 0, WithoutCgroup: len(v.withoutCgroup(len(v.MissingCgroups))),
		Exclusive: v.State.OwnedCPUs().Len(), Classes: map[string]int{}, Unapplied: map[api.MissingReason]int{}, Specs: specCounts(v.State),
	}
	n.Observed, n.CPUClasses, n.Demotion = v.Observed, classCounts(v.CPUClasses), demotionOf(v.Demotion)
	n.Pools, n.PoolMembers = v.poolSizes()
	for class := intent.None; class <= intent.Reclaimed; class++ {
		n.Classes[class.String()] = 0
	}
	for _, id := range v.State.Containers() {
		ctr := v.State.Container(id)
		if !ctr.Alive() {
			continue
		}
		if p := v.State.Pod(ctr.PodID); p != nil {
			n.Classes[p.Intent.Class.V.String()]++
		}
		v.addMissing(n.Unapplied, id, v.State.Values(ctr))
	}
	for _, id := range v.State.Pods() {
		v.addMissing(n.Unapplied, id, v.State.Pod(id).Values)
	}
	return n
}

// addMissing counts the values of a container or pod that are not in force, by reason.
func (v *View) addMissing(into map[api.MissingReason]int, owner string, values []lifecycle.Value) {
	for _, val := range values {
		if _, missing, _ := v.applyResult(owner, val); missing != "" {
			into[missing]++
		}
	}
}

// The metrics have one series for all named pools together, and one for all pools that are bound to NUMA nodes, since
// the number of such pools is not limited.
const (
	namedPools = "named"
	boundPools = "bound"
)

// poolSizes counts the CPUs of each kind of pool on each NUMA node, and the live containers of each kind of pool.
func (v *View) poolSizes() (sizes []api.PoolSize, members map[string]int) {
	pools := v.State.Policy.Pools
	cpus := map[string]topology.Set{
		"reserved": pools.Reserved, placement.Unclassified.String(): v.State.PoolCPUs(placement.Unclassified),
		namedPools: {}, boundPools: {},
	}
	members = map[string]int{placement.Unclassified.String(): 0, placement.System.String(): 0, namedPools: 0, boundPools: 0}
	for _, p := range v.State.PoolShares() {
		name := p.Pool.String()
		switch {
		case p.PoolID.BoundToNodes:
			name = boundPools
		case p.PoolID.Name != "" && p.Pool == placement.Shared:
			name = namedPools
		}
		members[name] += p.Members
		if p.Pool == placement.Shared || p.Pool == placement.Reclaimed {
			cpus[name] = cpus[name].Union(p.CPUs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cpus)) {
		for _, n := range v.State.Machine.Nodes {
			sizes = append(sizes, api.PoolSize{Pool: name, Node: n.ID, CPUs: cpus[name].And(n.CPUs).Len()})
		}
	}
	return sizes, members
}

// specCounts counts pods that have not ended by the source of their spec.
func specCounts(s *engine.State) map[lifecycle.Source]int {
	n := map[lifecycle.Source]int{}
	for _, from := range []lifecycle.Source{lifecycle.FromPodsAPI, lifecycle.FromKubelet, lifecycle.FromAPIServer, lifecycle.FromNothing} {
		n[from] = 0
	}
	for _, id := range s.Pods() {
		switch p := s.Pod(id); {
		case p.Stopped:
		case p.Spec == nil:
			n[lifecycle.FromNothing]++
		default:
			n[p.Spec.From]++
		}
	}
	return n
}
