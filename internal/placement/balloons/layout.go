package balloons

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Layout gives each balloon as many CPUs as its containers request, within the bounds of its
// type. Balloons keep the CPUs that they had. A balloon without containers ends, unless its
// type has too few others.
func (p *Policy) Layout(pools *placement.Pools, d placement.Demand) *placement.Layout {
	l := pools.Lay(d)
	l.Balloons, l.Components = map[placement.Which]placement.BalloonCPUs{}, map[placement.Which]topology.Set{}
	all := p.sizes(l)
	l.Idle = p.all(l)
	for i := range all {
		for n := range all[i].parts {
			s := &all[i].parts[n]
			s.cpus = p.kept(l, &all[i], s)
			l.Idle = l.Idle.Minus(s.cpus)
		}
	}
	for i := range all {
		b := &all[i]
		for n := range b.parts {
			s := &b.parts[n]
			if more := s.size - s.cpus.Len(); more > 0 {
				s.cpus = s.cpus.Union(p.grow(l, s, more))
				l.Idle = l.Idle.Minus(s.cpus)
			}
			b.cpus = b.cpus.Union(s.cpus)
			if len(b.t.Components) > 0 {
				l.Components[placement.Which{Name: s.name}] = s.cpus
			}
		}
	}
	for i := range all {
		b := &all[i]
		l.Balloons[b.which] = p.runs(l, b)
	}
	return l
}

// sized is a balloon and the number of CPUs that it should have.
type sized struct {
	which placement.Which
	t     *TypeOptions
	index int
	parts []part
	cpus  topology.Set
}

// sizes lists the balloons that exist, in the order in which they get CPUs: by the priority of
// their types, by type, and by index.
func (p *Policy) sizes(l *placement.Layout) (all []sized) {
	used, held := indexes(l.Demand.Needs), indexes(l.Demand.Held)
	for ti := range p.types {
		t := &p.types[ti]
		exist := used[t.Name]
		for _, more := range [][]int{held[t.Name], upTo(t.MinBalloons)} {
			for _, i := range more {
				if len(exist) < t.MinBalloons && !slices.Contains(exist, i) {
					exist = append(exist, i)
				}
			}
		}
		slices.Sort(exist)
		for _, i := range exist {
			w := placement.Which{Name: t.balloon(i)}
			all = append(all, sized{which: w, t: t, index: i})
		}
	}
	slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(rank(a.t), rank(b.t)) })
	counts := map[string]int{}
	for _, choosing := range []bool{false, true} { // those that choose a component count the others
		for i := range all {
			if b := &all[i]; p.chooses(b.which, b.t, &l.Demand) == choosing {
				b.parts = p.partsOf(b.which, b.t, &l.Demand, counts)
			}
		}
	}
	return all
}

// indexes lists the indexes of balloons by type, the lowest first.
func indexes[V any](of map[placement.Which]V) map[string][]int {
	all := map[string][]int{}
	for w := range of {
		if name, i, ok := split(w.Name); ok {
			all[name] = append(all[name], i)
		}
	}
	for _, list := range all {
		slices.Sort(list)
	}
	return all
}

// upTo lists the numbers from 0 that n balloons need.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// rank orders types by priority.
func rank(t *TypeOptions) int {
	return slices.Index([]string{"high", "normal", "low", "none"}, t.AllocatorPriority)
}

// all returns the CPUs that balloons may have. Isolated ones are none of them, unless a type
// prefers them.
func (p *Policy) all(l *placement.Layout) topology.Set {
	cpus := l.Pools.Shared.Union(l.Pools.Reserved.And(l.Pools.Online)).Minus(l.Demand.Owned)
	if slices.ContainsFunc(p.types, func(t TypeOptions) bool { return t.PreferIsolCPUs }) {
		return cpus
	}
	return p.ordinary(cpus)
}

// ordinary returns CPUs less the isolated ones, or all if there are no others.
func (p *Policy) ordinary(cpus topology.Set) topology.Set {
	if left := cpus.Minus(p.Machine.Isolated()); !left.Empty() {
		return left
	}
	return cpus
}

// from returns the idle CPUs that a type may get: reserved ones only for the type reserved,
// isolated ones only for types that prefer them.
func (p *Policy) from(l *placement.Layout, t *TypeOptions) topology.Set {
	idle := l.Idle
	if !t.PreferIsolCPUs {
		idle = p.ordinary(idle)
	}
	if t.Name == reservedType {
		return idle
	}
	return idle.Minus(l.Pools.Reserved)
}

// kept returns the CPUs that a part of a balloon keeps of those that it had and nobody else has. If
// it is not known which part had which, those near its devices come first.
func (p *Policy) kept(l *placement.Layout, b *sized, s *part) topology.Set {
	had, known := l.Demand.Held[placement.Which{Name: s.name}]
	if !known {
		had = l.Demand.Held[b.which]
	}
	h := p.hints[s.t.Name]
	if had = had.And(l.Idle); b.t.Name != reservedType {
		had = had.Minus(l.Pools.Reserved)
	}
	if had.Len() <= s.size {
		return had
	}
	if best := had.And(l.Pools.Reserved); !best.Empty() && best.Len() <= s.size {
		return best.Union(p.Pick.Pick(s.size-best.Len(), had.Minus(best), best, p.preference(s.t)))
	}
	return p.Pick.Pick(s.size, h.narrow(had, s.size), topology.Set{}, Preference{})
}

// grow returns n more CPUs for a part of a balloon, or as many as there are.
func (p *Policy) grow(l *placement.Layout, s *part, n int) topology.Set {
	h, from := p.hints[s.t.Name], p.from(l, s.t)
	if first := from.And(l.Pools.Reserved); !first.Empty() { // only the type reserved has some
		got := p.Pick.Pick(n, first, s.cpus, p.preference(s.t))
		return got.Union(p.Pick.Pick(n-got.Len(), from.Minus(first), s.cpus.Union(got), p.preference(s.t)))
	}
	return p.Pick.Pick(n, h.narrow(from, n), s.cpus, p.preference(s.t))
}

func (p *Policy) preference(t *TypeOptions) Preference {
	return Preference{
		SpreadCores: t.PreferSpreadOnPhysicalCores || p.Options.PreferSpreadOnPhysicalCores,
		Emptiest:    t.AllocatorTopologyBalancing || p.Options.AllocatorTopologyBalancing,
	}
}

// runs returns the CPUs of a balloon, and those that its containers run on.
func (p *Policy) runs(l *placement.Layout, b *sized) placement.BalloonCPUs {
	if !p.Options.PinCPU {
		all := p.all(l)
		return placement.BalloonCPUs{Own: b.cpus, CPUs: all, All: all, OneThread: all, Near: b.cpus}
	}
	cpus := b.cpus
	if idle := l.Idle.Minus(l.Pools.Reserved).Minus(p.Machine.Isolated()); !cpus.Empty() {
		cpus = cpus.Union(p.near(b.t.ShareIdleCPUsInSame, b.cpus).And(idle))
	}
	out := placement.BalloonCPUs{Own: b.cpus, CPUs: cpus, All: cpus, OneThread: p.oneThread(cpus), Near: cpus}
	if b.t.HideHyperthreads {
		out.CPUs = out.OneThread
	}
	return out
}

// near returns the CPUs in the same part of the node as some of a balloon's.
func (p *Policy) near(level string, cpus topology.Set) topology.Set {
	switch level {
	case "system":
		return p.Machine.Online()
	case "package":
		return p.Machine.Spread(topology.PackageLevel, cpus)
	case "die":
		return p.Machine.Spread(topology.DieLevel, cpus)
	case "numa":
		return p.Machine.Spread(topology.NodeLevel, cpus)
	case "l2cache":
		return p.Machine.Spread(topology.L2Level, cpus)
	case "core":
		return p.Machine.Spread(topology.CoreLevel, cpus)
	}
	return topology.Set{}
}

// oneThread returns the first thread of each core.
func (p *Policy) oneThread(cpus topology.Set) (out topology.Set) {
	cores := p.Machine.Groups(topology.CoreLevel)
	for cpu := range cpus.All() {
		if cores[p.Machine.GroupOf(topology.CoreLevel, cpu)].And(cpus).First() == cpu {
			out.Add(cpu)
		}
	}
	return out
}
