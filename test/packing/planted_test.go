package packing

import (
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// planted is an allocator with a planted fault.
type planted struct {
	m      *topology.Machine
	owned  map[int]topology.Set
	order  func(m *topology.Machine, free topology.Set, e event) []int
	mems   func(m *topology.Machine, cpus topology.Set) []bool
	shifts bool // a pool has another CPU at each call
	asked  int
}

func (p *planted) own(e event) (placed, bool) {
	if p.order == nil {
		return placed{}, false
	}
	cpus := p.order(p.m, freeOf(p.m, p.owned), e)
	if len(cpus) < e.cpus {
		return placed{}, false
	}
	got := placed{cpus: topology.SetOf(cpus[:e.cpus]...)}
	if p.mems != nil {
		got.mems = p.mems(p.m, got.cpus)
	}
	p.owned[e.id] = got.cpus
	return got, true
}

func (p *planted) resize(event) (topology.Set, bool) { return topology.Set{}, false }
func (p *planted) share(event)                       {}
func (p *planted) end(id int)                        { delete(p.owned, id) }

func (p *planted) pools() []pool {
	if !p.shifts {
		return nil
	}
	p.asked++
	return []pool{{name: "restless", cpus: topology.SetOf(p.asked % 2), need: 1, node: -1}}
}

// inTurn takes one CPU of each group of a level in turn.
func inTurn(m *topology.Machine, free topology.Set, l topology.Level) (out []int) {
	for round := 0; len(out) < free.Len(); round++ {
		for _, g := range m.Groups(l) {
			if at := g.And(free).Members(); round < len(at) {
				out = append(out, at[round])
			}
		}
	}
	return out
}

// holding returns the first group of a level that has n of these CPUs, or else all of them.
func holding(m *topology.Machine, free topology.Set, l topology.Level, n int) topology.Set {
	for _, g := range m.Groups(l) {
		if at := g.And(free); at.Len() >= n {
			return at
		}
	}
	return free
}

// TestPlantedFaults: each planted fault is counted under its criterion.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	over := func(l, within topology.Level) func(*topology.Machine, topology.Set, event) []int {
		return func(m *topology.Machine, free topology.Set, e event) []int {
			return inTurn(m, holding(m, free, within, e.cpus), l)
		}
	}
	lowest := func(_ *topology.Machine, free topology.Set, _ event) []int { return free.Members() }
	for _, tt := range []struct {
		name, shape string
		a           planted
		count       func(score) int
	}{
		{"both sockets", "oneL3", planted{order: func(m *topology.Machine, free topology.Set, _ event) []int {
			return inTurn(m, free, topology.PackageLevel)
		}}, func(s score) int { return s.avoidable[packages] }},
		{"a CPU of each node in turn", "rome", planted{order: over(topology.NodeLevel, topology.PackageLevel)}, func(s score) int { return s.avoidable[nodes] }},
		{"a CPU of each L3 cache in turn", "rome", planted{order: over(topology.L3Level, topology.NodeLevel)}, func(s score) int { return s.avoidable[caches] }},
		{"a thread of each core in turn", "rome", planted{order: over(topology.CoreLevel, topology.L3Level)}, func(s score) int { return s.avoidable[split] }},
		{"threads of both kinds of cores", "hybrid", planted{order: func(m *topology.Machine, free topology.Set, _ event) []int {
			p, e := free.And(m.CPUsOfKind(topology.PerformanceCore)).Members(), free.And(m.CPUsOfKind(topology.EfficiencyCore)).Members()
			n := min(len(p), len(e))
			return append(slices.Concat(p[:min(1, n)], e[:min(1, n)]), slices.Concat(p[min(1, n):], e[min(1, n):])...)
		}}, func(s score) int { return s.avoidable[kinds] }},
		{"far from its card", "rome", planted{order: func(m *topology.Machine, free topology.Set, e event) []int {
			if e.device >= 0 {
				free = free.Minus(m.Nodes[e.device].CPUs)
			}
			return holding(m, free, topology.NodeLevel, e.cpus).Members()
		}}, func(s score) int { return s.avoidable[device] }},
		{"memory on the last node", "cxl", planted{order: lowest, mems: func(m *topology.Machine, _ topology.Set) []bool {
			mems := make([]bool, len(m.Nodes))
			mems[len(mems)-1] = true
			return mems
		}}, func(s score) int { return s.avoidable[memory] }},
		{"a pool that changes at each event", "oneL3", planted{order: lowest, shifts: true}, func(s score) int { return s.moves }},
		{"every owner is refused", "oneL3", planted{}, func(s score) int { return s.refused }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := shapeNamed(t, tt.shape)
			tt.a.m, tt.a.owned = s.machine(t), map[int]topology.Set{}
			got := playAll(t, tt.a.m, &tt.a, newHistory(s, tt.a.m, 80, 30, 2)).score
			if tt.count(got) == 0 {
				t.Errorf("the fault is not counted: %+v", got)
			}
		})
	}
}

// TestNothingAvoidable: the best possible choice is not counted as avoidable.
func TestNothingAvoidable(t *testing.T) {
	t.Parallel()
	m := shapeNamed(t, "rome").machine(t)
	for _, tt := range []struct{ cpus, free string }{
		{"0-3,128-131", "0-255"},
		{"0-4,128-132", "0-255"},
		{"0-1,128", "0-1,128,16"},
		{"0,16", "0,16,32-33"},
		{"0-15,128-143,16-17", "0-15,128-143,16-17,64"},
	} {
		cpus, err := m.ParseCPUs(tt.cpus)
		if err != nil {
			t.Fatal(err)
		}
		q := (&play{m: m}).question(nil)
		if q.free, err = m.ParseCPUs(tt.free); err != nil {
			t.Fatal(err)
		}
		q.left, q.more = make([]int, len(m.Nodes)), cpus.Len()
		worse, _ := q.avoidable(q.price(cpus, nil))
		if want := (tt.cpus == "0,16"); worse != [criteria]bool{} != want {
			t.Errorf("%s of %s: avoidable %v", tt.cpus, tt.free, worse)
		}
	}
}
