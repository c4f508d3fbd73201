package pools

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// used is a machine of which others own and need a part.
type used struct {
	m      *topology.Machine
	pools  *placement.Pools
	policy *Policy
	demand placement.Demand
}

func newUsed(t testing.TB, text string, needs map[placement.PoolID]int64) *used {
	t.Helper()
	m, p, s := rig(t, text, "")
	return &used{m, p, &Policy{Tree: choose.NewTree(m), Sizing: s, NearDevices: true}, placement.Demand{Needs: placement.NeedsOf(needs)}}
}

func (u *used) view() placement.View {
	return placement.View{
		Machine: u.m, Pools: u.pools, Layout: u.policy.Layout(u.pools, u.demand), FreeCPUs: u.m.Online().Minus(u.demand.OwnedCPUs),
	}
}

// TestLocalityFirst: a shared pool is laid out again if an owner is better placed on its CPUs. Owners do
// not move.
func TestLocalityFirst(t *testing.T) {
	t.Parallel()
	def := placement.PoolID{}
	for _, c := range []struct {
		name, machine string
		needs         map[placement.PoolID]int64
		owned, has    string
		n             int
		device        string // the CPUs near its device are those of this NUMA node
		in            intent.Pod
		cpus, why     string
	}{
		{
			name: "the first owner of 40", machine: "2s x 32c x 2t", needs: map[placement.PoolID]int64{def: 60000}, n: 40,
			cpus: "0-2,15-31,64-66,79-95", why: "socket: of 2 with enough CPUs, the one with the lowest CPU",
		},
		{name: "a pool of one CPU", machine: "2s x 4c x 2t", owned: "4-6,12-14", n: 8, cpus: "0-3,8-11"},
		{
			name: "an owner that grows stays on its socket", machine: "2s x 10c x 2t", needs: map[placement.PoolID]int64{def: 24000},
			owned: "0-4,20-24", has: "0-4,20-24", n: 16, cpus: "0-6,9,20-26,29",
		},
		{
			name: "whole cores, although a pool has a part of each", machine: "1s x 4c x 2t", needs: map[placement.PoolID]int64{def: 3000},
			owned: "3,7", n: 4, cpus: "1-2,5-6",
		},
		{
			name: "what a pool needs that is bound to a node", machine: "2n x 4c x 2t", owned: "7,15",
			needs: map[placement.PoolID]int64{{BoundToNodes: true, Node: 1}: 3000}, n: 4, cpus: "1-2,9-10",
		},
		{
			name: "on another socket with room for it", machine: "2s x 4c x 2t", owned: "7,15",
			needs: map[placement.PoolID]int64{{BoundToNodes: true, Node: 1}: 4000}, n: 6, cpus: "1-3,9-11",
		},
		{
			name: "and from it where there is no other way", machine: "2s x 4c x 2t", owned: "0-3,8-11,7,15",
			needs: map[placement.PoolID]int64{{BoundToNodes: true, Node: 1}: 4000}, n: 4, cpus: "4,6,12,14",
			why: "away from CPUs that pools bound to a NUMA node need: not possible",
		},
		{
			name: "as many as possible near its device", machine: "2s x 2n x 8c x 2t", owned: "16-19,48-51", n: 20, device: "2",
			cpus: "20-27,52-59,28-29,60-61", why: "near its devices (x/gpu): as many as possible of 8 preferred CPUs, and the rest from 48 other CPUs",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUsed(t, c.machine, c.needs)
			u.demand.OwnedCPUs = u.m.OnlineOf(c.owned)
			s := placement.Subject{Intent: &c.in}
			if c.device != "" {
				s.Devices = []lifecycle.DeviceGrant{{NUMA: map[string][]int{"x/gpu": {int(c.device[0] - '0')}}}}
			}
			w := placement.CPURequest{N: c.n}
			w.UsableCPUs, w.OwnedCPUs = u.m.OnlineOf(c.has), u.m.OnlineOf(c.has)
			got, err := u.policy.Choose(u.view(), s, w)
			if err != nil || got.CPUs != u.m.OnlineOf(c.cpus) || !strings.Contains(got.Why, c.why) {
				t.Errorf("%s, %v, by %q; want %s by %q", u.m.Format(got.CPUs), err, got.Why, c.cpus, c.why)
			}
		})
	}
}

// TestNoAvoidableStraddle: on a machine of eight NUMA nodes, half of which a shared pool needs, no owner
// uses more nodes than necessary, while owners start and end.
func TestNoAvoidableStraddle(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(17, 1))
	u := newUsed(t, "2s x 4n x 4l x 4c x 2t", map[placement.PoolID]int64{{}: 128000})
	var owners []topology.Set
	asked := 0
	for range 400 {
		if len(owners) > 0 && random.IntN(5) < 2 {
			i := random.IntN(len(owners))
			u.demand.OwnedCPUs = u.demand.OwnedCPUs.Minus(owners[i])
			owners = append(owners[:i], owners[i+1:]...)
			continue
		}
		n := 1 + random.IntN(24)
		v := u.view()
		most := 0
		for _, node := range u.m.Nodes {
			most = max(most, v.FreeCPUs.And(node.CPUs).Len())
		}
		if u.demand.OwnedCPUs.Len()+n > 230 {
			continue
		}
		got, err := u.policy.Choose(v, placement.Subject{Intent: &intent.Pod{}}, placement.CPURequest{N: n})
		if err != nil {
			t.Fatal(err)
		}
		if nodes := u.m.CountGroups(topology.NodeLevel, got.CPUs); most >= n && nodes > 1 {
			t.Fatalf("owner %d of %d CPUs is on %d nodes, of which one has %d: %s", asked, n, nodes, most, got.Why)
		}
		asked++
		owners, u.demand.OwnedCPUs = append(owners, got.CPUs), u.demand.OwnedCPUs.Union(got.CPUs)
	}
	if asked < 100 {
		t.Errorf("%d owners show little", asked)
	}
}
