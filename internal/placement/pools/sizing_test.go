package pools

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
	"pgregory.net/rapid"
)

// TestSizes has Katalyst's cases (katalyst-core, 2026-04), and edge cases.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		needs     []int
		available int
		expand    bool
		want      []int
	}{
		{"S1: pools expand", []int{1, 2, 3}, 12, true, []int{2, 4, 6}},
		{"S2: pools keep to their needs", []int{1, 2, 3}, 12, false, []int{1, 2, 3}},
		{"S3: just enough", []int{1, 2, 3}, 6, false, []int{1, 2, 3}},
		{"S7: not one for each", []int{1, 2, 3}, 2, false, nil},
		{"S9: too few", []int{2, 4, 6, 2, 2}, 8, false, []int{1, 2, 3, 1, 1}},
		{"one for each", []int{100, 1, 1}, 3, false, []int{1, 1, 1}},
	} {
		got, ok := Sizes(c.needs, c.available, c.expand)
		if diff := cmp.Diff(c.want, got); diff != "" || ok != (c.want != nil) {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.SliceOfN(rapid.IntRange(1, 300), 1, 8).Draw(t, "needs")
		available, expand := rapid.IntRange(0, 400).Draw(t, "available"), rapid.Bool().Draw(t, "expand")
		got, ok := Sizes(needs, available, expand)
		sum, need := 0, 0
		for i := range got {
			sum, need = sum+got[i], need+needs[i]
			if got[i] < 1 {
				t.Fatalf("an empty pool: %v", got)
			}
		}
		switch {
		case ok != (available >= len(needs)), ok && sum > available, ok && expand && sum != available && need > 0:
			t.Fatalf("%v of %d CPUs: %v, %v", needs, available, got, ok)
		}
	})
}

const t16 = "2s x 2n x 2c x 2t"

func rig(t testing.TB, text, reserved string) (*topology.Machine, *placement.Pools, *Sizing) {
	t.Helper()
	m, err := describe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := m.ParseCPUs(reserved)
	if err != nil {
		t.Fatal(err)
	}
	rest := m.Online().Minus(kept)
	return m, &placement.Pools{Online: m.Online(), Reserved: kept, Shared: rest, Reclaimed: rest}, NewSizing(m)
}

// TestLayout draws the CPUs of pools: NUMA node 0 has 0,1,8,9, and so on in pairs.
func TestLayout(t *testing.T) {
	at := func(name string, node int) placement.PoolID {
		return placement.PoolID{Name: name, BoundToNodes: true, Node: node}
	}
	alone := at("", 3)
	alone.ExclusiveNode = true
	for _, c := range []struct {
		name        string
		needs       map[placement.PoolID]int64
		owned, lent string
		expand      bool
		together    bool
		least       int
		want        map[placement.PoolID]string
		reclaimed   string
	}{
		{name: "nobody: a core that is broken already", want: map[placement.PoolID]string{{}: "8"}, reclaimed: "1,3-7,9-15"},
		{name: "little is one CPU", needs: map[placement.PoolID]int64{{}: 2}, want: map[placement.PoolID]string{{}: "8"}, reclaimed: "1,3-7,9-15"},
		{name: "whole cores in turn from each node", needs: map[placement.PoolID]int64{{}: 5900}, want: map[placement.PoolID]string{{}: "4,6,8,10,12,14"}, reclaimed: "1,3,5,7,9,11,13,15"},
		{
			name: "named pools from the back", needs: map[placement.PoolID]int64{{}: 2000, {Name: "a"}: 2000, {Name: "b"}: 1000},
			want: map[placement.PoolID]string{{}: "8,10", {Name: "a"}: "7,15", {Name: "b"}: "13"}, reclaimed: "1,3-6,9,11-12,14",
		},
		{
			name: "a container that owns CPUs between two pools does not change the pools' CPUs", needs: map[placement.PoolID]int64{{}: 2000, {Name: "a"}: 2000}, owned: "4,12",
			want: map[placement.PoolID]string{{}: "8,10", {Name: "a"}: "7,15"}, reclaimed: "1,3,5-6,9,11,13-14",
		},
		{
			name: "A8: bound to a node, and pools expand", needs: map[placement.PoolID]int64{at("", 0): 2000}, expand: true,
			want: map[placement.PoolID]string{{}: "3-7,10-15", at("", 0): "1,8-9"}, reclaimed: "15",
		},
		{
			name: "alone on a node", needs: map[placement.PoolID]int64{alone: 1000, {}: 3000},
			want: map[placement.PoolID]string{{}: "4,8,10", alone: "6-7,14-15"}, reclaimed: "1,3,5,9,11-13",
		},
		{name: "too many requests", needs: map[placement.PoolID]int64{{}: 64000}, least: 2, want: map[placement.PoolID]string{{}: "1,3-15"}, reclaimed: "7,15"},
		{
			name: "one CPU is left", needs: map[placement.PoolID]int64{{}: 1000, {Name: "a"}: 1000}, owned: "1,3-14",
			want: map[placement.PoolID]string{{}: "15", {Name: "a"}: "15"}, reclaimed: "15",
		},
		{
			name: "a named pool of nothing takes nothing", needs: map[placement.PoolID]int64{{}: 2000, {Name: "a"}: 0, {Name: "b"}: 0},
			want: map[placement.PoolID]string{{}: "8,10", {Name: "a"}: "8,10", {Name: "b"}: "8,10"}, reclaimed: "1,3-7,9,11-15",
		},
		{
			name: "what guests request is the default pool's", needs: map[placement.PoolID]int64{{}: 1500, {Name: "a"}: 999, {Name: "b"}: 1000},
			want: map[placement.PoolID]string{{}: "4,8,10", {Name: "a"}: "4,8,10", {Name: "b"}: "15"}, reclaimed: "1,3,5-7,9,11-14",
		},
		{
			name: "guests that are bound to a node", needs: map[placement.PoolID]int64{{}: 2000, at("", 0): 0, at("", 3): 10, at("b", 3): 2000},
			want: map[placement.PoolID]string{{}: "4,8,10", at("", 0): "8", at("", 3): "6,14", at("b", 3): "7,15"}, reclaimed: "1,3,5-6,9,11-14",
		},
		{
			name: "a guest on a node that another has alone", needs: map[placement.PoolID]int64{alone: 1000, at("", 3): 0},
			want: map[placement.PoolID]string{{}: "8", alone: "6-7,14-15", at("", 3): "8"}, reclaimed: "1,3-5,9-13",
		},
		{
			name: "together: what nobody needs is everybody's", together: true, needs: map[placement.PoolID]int64{{}: 2000, {Name: "a"}: 2000},
			want: map[placement.PoolID]string{{}: "1,3-6,8-14", {Name: "a"}: "1,3-7,9,11-15"}, reclaimed: "1,3-6,9,11-14",
		},
		{
			name: "together: a pool that is bound has what nobody needs on its node", together: true, needs: map[placement.PoolID]int64{at("", 0): 1000, {}: 1000},
			want: map[placement.PoolID]string{{}: "1,3-7,9-15", at("", 0): "1,8-9"}, reclaimed: "1,3-7,9,11-15",
		},
		{
			name: "together: a default pool without containers needs nothing", together: true, needs: map[placement.PoolID]int64{{Name: "a"}: 1000},
			want: map[placement.PoolID]string{{}: "1,3-14", {Name: "a"}: "1,3-15"}, reclaimed: "1,3-7,9-14",
		},
		{
			name: "together: but what its guests need is its own", together: true, needs: map[placement.PoolID]int64{{Name: "a"}: 1000, {Name: "b"}: 10},
			want: map[placement.PoolID]string{{}: "1,3-14", {Name: "a"}: "1,3-7,9-15", {Name: "b"}: "1,3-14"}, reclaimed: "1,3-7,9-14",
		},
		{
			name: "together: not what is owned", together: true, needs: map[placement.PoolID]int64{{}: 500}, owned: "4-7,12-15", lent: "6-7",
			want: map[placement.PoolID]string{{}: "1,3,8-11"}, reclaimed: "1,3,6-7,9-11",
		},
		{name: "together: too many requests", together: true, needs: map[placement.PoolID]int64{{}: 64000}, least: 2, want: map[placement.PoolID]string{{}: "1,3-15"}, reclaimed: "7,15"},
		{name: "lent CPUs", needs: map[placement.PoolID]int64{{}: 1000}, owned: "4-7,12-15", lent: "6-7", want: map[placement.PoolID]string{{}: "8"}, reclaimed: "1,3,6-7,9-11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, p, s := rig(t, t16, "0,2")
			s.Expand, s.ShareUnused, s.MinReclaimed = c.expand, c.together, max(c.least, 1)
			l := s.layout(p, placement.Demand{OwnedCPUs: m.OnlineOf(c.owned), LentCPUs: m.OnlineOf(c.lent), Needs: placement.NeedsOf(c.needs)})
			got := map[placement.PoolID]string{}
			for w, s := range l.Shared {
				got[w] = m.Format(s)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || m.Format(l.Reclaimed) != c.reclaimed {
				t.Errorf("%sreclaimed %s, want %s", diff, m.Format(l.Reclaimed), c.reclaimed)
			}
		})
	}
}

// demand draws what pools depend on, so that at least one CPU is left for containers without CPUs of their
// own.
func demand(t *rapid.T, m *topology.Machine, p *placement.Pools) placement.Demand {
	d, needs := placement.Demand{}, map[placement.PoolID]int64{}
	free := p.Online.Minus(p.Reserved).Members()
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(free)-1), 0, len(free)-1).Draw(t, "owned") {
		if d.OwnedCPUs.Len() < len(free)-1 {
			d.OwnedCPUs.Add(free[i])
		}
	}
	for cpu := range d.OwnedCPUs.All() {
		if cpu%5 == 0 {
			d.LentCPUs.Add(cpu)
		}
	}
	for range rapid.IntRange(0, 6).Draw(t, "pools") {
		w := placement.PoolID{Name: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "name")}
		if rapid.Bool().Draw(t, "bound") {
			w.BoundToNodes, w.Node = true, m.Nodes[rapid.IntRange(0, len(m.Nodes)-1).Draw(t, "node")].ID
			w.ExclusiveNode = rapid.IntRange(0, 5).Draw(t, "alone") == 0
			if other := m.Nodes[rapid.IntRange(0, len(m.Nodes)-1).Draw(t, "other")].ID; !w.ExclusiveNode {
				w = placement.BoundPool(w.Name, slices.Compact([]int{w.Node, other}))
			}
		}
		needs[w] = int64(rapid.IntRange(0, 9000).Draw(t, "need"))
	}
	d.Needs = placement.NeedsOf(needs)
	return d
}

// seatsOf lists one CPU group of every existing pool.
func seatsOf(d placement.Demand) []placement.CPUGroup {
	seats := []placement.CPUGroup{{Pool: placement.Unclassified}, {Pool: placement.Shared}, {Pool: placement.Reclaimed}, {Pool: placement.System}, {Pool: placement.System, PoolID: placement.PoolID{Name: placement.ReservedPool}}, {Pool: placement.System, PoolID: placement.PoolID{Name: "a"}}}
	for w := range d.Needs.All() {
		seats = append(seats, placement.CPUGroup{Pool: placement.Shared, PoolID: w})
	}
	return seats
}

// TestLayoutHolds: no pool is empty, none has an owned CPU except lent ones, a bound pool is on its node if
// that has free CPUs, and pools that fit get what they need, separate from each other.
func TestLayoutHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := fmt.Sprintf("%ds x %dn x %dc x %dt", rapid.IntRange(1, 2).Draw(t, "s"), rapid.IntRange(1, 4).Draw(t, "n"),
			rapid.IntRange(1, 4).Draw(t, "c"), rapid.IntRange(1, 3).Draw(t, "t"))
		m, err := describe.Parse(text)
		if err != nil || len(m.CPUs) < 2 {
			return
		}
		kept := topology.SetOf(0)
		rest := m.Online().Minus(kept)
		p, s := &placement.Pools{Online: m.Online(), Reserved: kept, Shared: rest, Reclaimed: rest, HardReserved: rapid.Bool().Draw(t, "hard")}, NewSizing(m)
		s.Expand, s.MinReclaimed = rapid.Bool().Draw(t, "expand"), rapid.IntRange(0, 4).Draw(t, "least")
		s.ShareUnused = rapid.Bool().Draw(t, "together")
		d := demand(t, m, p)
		l := s.layout(p, d)
		if s.ShareUnused && !s.Expand {
			testTogether(t, s, p, d, l)
		}
		for _, s := range seatsOf(d) {
			cpus, _ := l.CPUs(s)
			if cpus.Empty() {
				t.Fatalf("%+v has no CPU, with %+v", s, d)
			}
			if both := cpus.And(d.OwnedCPUs); !both.Empty() && (s.Pool != placement.Reclaimed || !d.LentCPUs.Contains(both)) {
				t.Fatalf("%+v has owned CPUs %s", s, m.Format(both))
			}
			if s.Pool == placement.Unclassified && p.HardReserved && !cpus.And(kept).Empty() {
				t.Fatalf("others are on reserved CPUs")
			}
		}
		if least := min(s.MinReclaimed, rest.Minus(d.OwnedCPUs).Len()); l.Reclaimed.Minus(d.LentCPUs).Len() < least {
			t.Fatalf("%d CPUs are reclaimed, want %d", l.Reclaimed.Len(), least)
		}
		for _, n := range m.Nodes {
			cpus, _ := l.CPUs(placement.CPUGroup{Pool: placement.Reclaimed, Near: n.CPUs})
			if open := n.CPUs.And(rest).Minus(d.OwnedCPUs); !open.Empty() && !isExclusiveNode(l, n.ID) && cpus.Minus(open.Union(n.CPUs.And(d.LentCPUs))) != (topology.Set{}) {
				t.Fatalf("a reclaimed container that is bound to node %d is on %s", n.ID, m.Format(cpus))
			}
		}
		for w, milli := range d.Needs.All() {
			var there topology.Set
			for _, id := range w.NodeIDs() {
				if n, _ := m.Node(id); w.Nodes != "" && !isExclusiveNode(l, id) {
					there = there.Union(n.CPUs)
				}
			}
			cpus, _ := l.CPUs(placement.CPUGroup{Pool: placement.Shared, PoolID: w})
			if !there.And(rest).Minus(d.OwnedCPUs).Empty() && (cpus.And(there).Empty() || !isSmallPool(w, milli) && !there.Contains(cpus)) {
				t.Fatalf("%+v is on %s, of %s in all, with %+v, owned %s", w, m.Format(cpus), m.Format(there), d.Needs, m.Format(d.OwnedCPUs))
			}
		}
		again := s.layout(p, d)
		if diff := cmp.Diff(l.Shared, again.Shared); diff != "" || l.Reclaimed != again.Reclaimed || l.ReclaimedNear != again.ReclaimedNear {
			t.Fatal("the same demand has another layout", diff)
		}
	})
}

// testTogether: no CPU without an owner is idle while a shared pool has work, and each pool has at least
// what it has without that option.
func testTogether(t *rapid.T, s *Sizing, p *placement.Pools, d placement.Demand, l *placement.Layout) {
	t.Helper()
	apart := *s
	apart.ShareUnused = false
	was := apart.layout(p, d)
	idle := p.Shared.Minus(d.OwnedCPUs)
	for w, cpus := range l.Shared {
		idle = idle.Minus(cpus)
		if !cpus.Contains(was.Shared[w]) {
			t.Fatalf("%+v has less than it has alone", w)
		}
		if !cpus.Minus(was.Shared[w]).Minus(l.Reclaimed.Union(was.Shared[placement.PoolID{}])).Empty() {
			t.Fatalf("%+v has what others need", w)
		}
	}
	if !idle.Empty() || l.Reclaimed != was.Reclaimed {
		t.Fatalf("%v are idle, %v reclaimed, %v without that", idle.Members(), l.Reclaimed.Members(), was.Reclaimed.Members())
	}
}

// TestGuestsCostNothing: named and bound pools that request less than a CPU leave all other pools what they
// would get if these requests were the default pool's.
func TestGuestsCostNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := describe.Parse("2s x 2n x 2c x 2t")
		if err != nil {
			t.Fatal(err)
		}
		kept := topology.SetOf(0)
		rest := m.Online().Minus(kept)
		p, s := &placement.Pools{Online: m.Online(), Reserved: kept, Shared: rest, Reclaimed: rest}, NewSizing(m)
		s.Expand, s.MinReclaimed = rapid.Bool().Draw(t, "expand"), rapid.IntRange(0, 4).Draw(t, "least")
		s.ShareUnused = rapid.Bool().Draw(t, "together")
		d := demand(t, m, p)
		needs := maps.Collect(d.Needs.All())
		maps.DeleteFunc(needs, isSmallPool)
		with, without := maps.Clone(needs), needs
		for i, milli := range rapid.SliceOfN(rapid.Int64Range(0, 999), 1, 4).Draw(t, "guests") {
			w := placement.PoolID{Name: fmt.Sprint("guest", i)}
			if w.BoundToNodes = rapid.Bool().Draw(t, "bound"); w.BoundToNodes {
				w.Node = m.Nodes[i].ID
			}
			with[w] = milli
			without[placement.PoolID{}] += milli
		}
		plain, guests := d, d
		plain.Needs, guests.Needs = placement.NeedsOf(without), placement.NeedsOf(with)
		alone, together := s.layout(p, plain), s.layout(p, guests)
		for _, s := range seatsOf(plain) {
			if s.Pool == placement.System && s.PoolID.Name == "a" {
				continue // the sum of all pools whose names start so
			}
			want, _ := alone.CPUs(s)
			if got, _ := together.CPUs(s); got != want {
				t.Fatalf("%+v has %s, and %s without guests", s, m.Format(got), m.Format(want))
			}
		}
		for w := range guests.Needs.All() {
			if got, _ := together.CPUs(placement.CPUGroup{Pool: placement.Shared, PoolID: w}); got.Empty() || !got.And(d.OwnedCPUs).Empty() {
				t.Fatalf("%+v has %s", w, m.Format(got))
			}
		}
	})
}

// TestGrowingKeeps: a default pool that grows keeps its CPUs, and moves no named pool, as long as all fit.
func TestGrowingKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, err := describe.Parse("2s x 2n x 4c x 2t")
		if err != nil {
			t.Fatal(err)
		}
		p, s := &placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()}, NewSizing(m)
		needs := map[placement.PoolID]int64{{Name: "a"}: 3000, {Name: "b"}: int64(rapid.IntRange(1, 9).Draw(t, "b")) * 1000}
		before := s.layout(p, placement.Demand{Needs: placement.NeedsOf(needs)})
		for n := range 15 {
			needs[placement.PoolID{}] = int64(n) * 1000
			after := s.layout(p, placement.Demand{Needs: placement.NeedsOf(needs)})
			for w, had := range before.Shared {
				if !after.Shared[w].Contains(had) {
					t.Fatalf("%+v had %s and has %s", w, m.Format(had), m.Format(after.Shared[w]))
				}
			}
			before = after
		}
	})
}

func TestIsolatedCPUsAreInNoPool(t *testing.T) {
	var cpus []topology.CPU
	for i := range 8 {
		cpus = append(cpus, topology.CPU{ID: i, Core: i, Isolated: i >= 6})
	}
	m, err := topology.New(cpus, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, s := &placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()}, NewSizing(m)
	l := s.layout(p, placement.Demand{Needs: placement.NeedsOf(map[placement.PoolID]int64{{}: 3000})})
	if got := m.Format(l.Reclaimed); got != "3-5" {
		t.Errorf("reclaimed are %s, want 3-5", got)
	}
	// If others own all ordinary CPUs, isolated ones are better than none.
	l = s.layout(p, placement.Demand{OwnedCPUs: m.OnlineOf("0-5")})
	for _, s := range []placement.CPUGroup{{Pool: placement.Shared}, {Pool: placement.Reclaimed}} {
		if got, _ := l.CPUs(s); m.Format(got) != "6-7" {
			t.Errorf("%s is %s, want 6-7", s.Pool, m.Format(got))
		}
	}
	for i := range cpus {
		cpus[i].Isolated = true
	}
	if m, err = topology.New(cpus, nil); err != nil || len(NewSizing(m).cpuOrder) != 8 || !slices.IsSorted(NewSizing(m).cpuOrder) {
		t.Error("where all are isolated, all are in pools")
	}
}
