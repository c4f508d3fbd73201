package balloons

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Layout gives each balloon as many CPUs as its containers request, within the bounds of its
// type. Balloons keep the CPUs that they had. A balloon without containers ends, unless its
// type has too few others. If the layout before is of the same policy, only the balloons whose
// requests changed are laid out, and those that lack CPUs; the result is the same.
func (p *Policy) Layout(pools *placement.Pools, d placement.Demand) *placement.Layout {
	before := cmp.Or(d.Before, &placement.Layout{})
	l := pools.Lay(d)
	l.By, l.OneThread = p, p.threads.OneOfEach
	if !p.Options.PinCPU {
		l.OneThread = func(cpus topology.Set) topology.Set { return cpus }
	}
	w := laying{p: p, l: l, had: before.Balloons}
	if before.By == placement.Policy(p) && before.Pools == *pools && before.Demand.Owned == d.Owned {
		w.changed(before)
	} else {
		w.everything()
	}
	w.order()
	w.lay()
	return l
}

// laying is a layout in progress: the balloons to lay out, and the names of those that end.
type laying struct {
	p    *Policy
	l    *placement.Layout
	had  placement.Balloons // those before
	todo []sized
	gone []string
}

// sized is a balloon and the number of CPUs that it should have.
type sized struct {
	which placement.Which
	t     *TypeOptions
	nth   int // the number of the type
	index int
	parts []part
	cpus  topology.Set
}

// everything lays out all balloons.
func (w *laying) everything() {
	w.l.Balloons, w.l.Idle = placement.Balloons{}, w.p.all(w.l)
	for nth := range w.p.types {
		for _, i := range w.exist(&w.p.types[nth]) {
			w.put(nth, i)
		}
	}
}

// changed lays out the balloons whose requests differ from those of the layout before, and those
// that lack CPUs.
func (w *laying) changed(before *placement.Layout) { //nolint:gocognit // each condition is a reason for a new layout
	w.l.Balloons, w.l.Idle = before.Balloons, before.Idle
	counted := map[int]bool{}
	for _, which := range w.l.Demand.Needs.Since(before.Demand.Needs) {
		name, i, ok := split(which.Name)
		nth, known := w.p.numbers[name]
		_, used := w.l.Demand.Needs.Of(which)
		_, was := before.Demand.Needs.Of(which)
		switch {
		case !ok || !known:
		case used != was && w.p.types[nth].MinBalloons > 0:
			if !counted[nth] {
				counted[nth] = true
				w.recount(nth)
			}
		case !used:
			w.gone = append(w.gone, which.Name)
		}
		if ok && known && used {
			w.add(nth, i)
		}
	}
	for _, b := range before.Balloons {
		if name := b.Need.Which.Name; b.Size > b.Own.Len() && !slices.Contains(w.gone, name) {
			of, i, _ := split(name)
			w.add(w.p.numbers[of], i)
		}
	}
	for _, name := range w.gone {
		if b := before.Balloons.Of(name); b != nil {
			w.l.Idle = w.l.Idle.Union(b.Own)
		}
	}
	for i := range w.todo {
		if b := before.Balloons.Of(w.todo[i].which.Name); b != nil {
			w.l.Idle = w.l.Idle.Union(b.Own)
		}
	}
}

// recount finds the balloons of a type that begin, end or become empty, if some of the type exist
// without containers.
func (w *laying) recount(nth int) {
	t := &w.p.types[nth]
	exist := w.exist(t)
	slices.Sort(exist)
	had := w.had.OfType(t.Name)
	for _, b := range had {
		_, used := w.l.Demand.Needs.Of(b.Need.Which)
		switch _, stays := slices.BinarySearch(exist, b.Index); {
		case !stays:
			w.gone = append(w.gone, b.Need.Which.Name)
		case used != (b.Need.Members > 0): // it became empty
			w.add(nth, b.Index)
		}
	}
	for _, i := range exist {
		if had.Of(t.balloon(i)) == nil {
			w.add(nth, i)
		}
	}
}

// add adds a balloon, once.
func (w *laying) add(nth, index int) {
	for i := range w.todo {
		if w.todo[i].nth == nth && w.todo[i].index == index {
			return
		}
	}
	w.put(nth, index)
}

func (w *laying) put(nth, index int) {
	t := &w.p.types[nth]
	w.todo = append(w.todo, sized{which: placement.Which{Name: t.balloon(index)}, t: t, nth: nth, index: index})
}

// exist lists the balloons of a type that exist: those with containers, and of the others as many
// as the type must have, first those that exist already.
func (w *laying) exist(t *TypeOptions) (all []int) {
	for _, of := range w.l.Demand.Needs {
		if name, i, ok := split(of.Which.Name); ok && name == t.Name {
			all = append(all, i)
		}
	}
	enough := func(i int) {
		if len(all) < t.MinBalloons && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	for _, b := range w.had.OfType(t.Name) {
		if _, i, ok := split(b.Need.Which.Name); ok {
			enough(i)
		}
	}
	for i := range t.MinBalloons {
		enough(i)
	}
	return all
}

// order sorts the balloons as they get CPUs: by the priority of their types, by type, and by
// index. It also decides which components they have.
func (w *laying) order() {
	slices.SortFunc(w.todo, func(a, b sized) int {
		return cmp.Or(cmp.Compare(rank(a.t), rank(b.t)), cmp.Compare(a.nth, b.nth), cmp.Compare(a.index, b.index))
	})
	counts := map[string]int{}
	if slices.ContainsFunc(w.todo, func(b sized) bool { return w.p.chooses(b.which, b.t, w.had) }) {
		counts = w.counts()
	}
	for _, choosing := range []bool{false, true} { // those that choose a component count the others
		for i := range w.todo {
			if b := &w.todo[i]; w.p.chooses(b.which, b.t, w.had) == choosing {
				b.parts = w.p.partsOf(b.which, b.t, w.l.Demand.Needs, w.had, counts)
			}
		}
	}
}

// counts counts the balloons and components by type, without those to lay out.
func (w *laying) counts() map[string]int {
	counts := map[string]int{}
	for _, b := range w.l.Balloons {
		which := b.Need.Which
		name, _, _ := split(which.Name)
		if slices.Contains(w.gone, which.Name) || slices.ContainsFunc(w.todo, func(s sized) bool { return s.which == which }) {
			continue
		}
		if len(b.Parts) == 0 {
			counts[name]++
		}
		for _, part := range b.Parts {
			if i, ok := component(part.Name); ok {
				counts[w.p.parts[name][i].Name]++
			}
		}
	}
	return counts
}

// lay gives CPUs to the balloons. First all keep what they had, then they grow.
func (w *laying) lay() {
	p, l := w.p, w.l
	for i := range w.todo {
		for n := range w.todo[i].parts {
			s := &w.todo[i].parts[n]
			s.cpus = w.kept(&w.todo[i], s)
			l.Idle = l.Idle.Minus(s.cpus)
		}
	}
	for i := range w.todo {
		b := &w.todo[i]
		for n := range b.parts {
			s := &b.parts[n]
			if more := s.size - s.cpus.Len(); more > 0 {
				s.cpus = s.cpus.Union(p.grow(l, s, more))
				l.Idle = l.Idle.Minus(s.cpus)
			}
			b.cpus = b.cpus.Union(s.cpus)
		}
	}
	laid := make(placement.Balloons, len(w.todo))
	for i := range w.todo {
		laid[i] = p.balloon(l, &w.todo[i])
	}
	l.Balloons = w.sharing(l.Balloons.Replaced(laid, w.gone))
}

// sharing renews the other balloons that share idle CPUs.
func (w *laying) sharing(all placement.Balloons) placement.Balloons {
	var renewed placement.Balloons
	for _, b := range all {
		if b.Shares.Empty() {
			continue
		}
		if cpus := b.Own.Union(b.Shares.And(w.l.Idle)); cpus != b.All {
			next := *b
			next.All, next.Near = cpus, cpus
			renewed = append(renewed, &next)
		}
	}
	return all.Replaced(renewed, nil)
}

// rank orders types by priority.
func rank(t *TypeOptions) int {
	return slices.Index([]string{"high", "normal", "low", "none"}, t.AllocatorPriority)
}

// all returns the CPUs that balloons may have. Isolated ones are none of them, unless a type
// prefers them.
func (p *Policy) all(l *placement.Layout) topology.Set {
	cpus := l.Pools.Shared.Union(l.Pools.Reserved.And(l.Pools.Online)).Minus(l.Demand.Owned)
	if p.ownsIsolated {
		return cpus
	}
	return p.ordinary(cpus)
}

// ordinary returns CPUs less the isolated ones, or all if there are no others.
func (p *Policy) ordinary(cpus topology.Set) topology.Set {
	if left := cpus.Minus(p.isolated); !left.Empty() {
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
func (w *laying) kept(b *sized, s *part) topology.Set {
	p, l, was := w.p, w.l, w.had.Of(b.which.Name)
	had, known := was.Part(s.name)
	if !known && was != nil {
		had = was.Own
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

// balloon returns the CPUs of a balloon, and those that its containers run on.
func (p *Policy) balloon(l *placement.Layout, b *sized) *placement.BalloonCPUs {
	need, _ := l.Demand.Needs.Of(b.which)
	out := &placement.BalloonCPUs{Need: need, Index: b.index, Own: b.cpus, All: b.cpus, Near: b.cpus, HidesThreads: b.t.HideHyperthreads}
	for i := range b.parts {
		out.Size += b.parts[i].size
		if len(b.t.Components) > 0 {
			out.Parts = append(out.Parts, placement.BalloonPart{Name: b.parts[i].name, CPUs: b.parts[i].cpus})
		}
	}
	switch {
	case !p.Options.PinCPU:
		out.All = p.all(l)
	case !b.cpus.Empty():
		out.Shares = p.near(b.t.ShareIdleCPUsInSame, b.cpus).Minus(l.Pools.Reserved).Minus(p.isolated)
		out.All = b.cpus.Union(out.Shares.And(l.Idle))
		out.Near = out.All
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
