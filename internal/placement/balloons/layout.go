package balloons

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Layout gives each balloon as many CPUs as its containers request, within the limits of its type. Balloons
// keep the CPUs that they had. A balloon without containers ends, unless minBalloons requires it. If the
// previous layout is of the same policy, with the same pools and the same owned CPUs, Layout computes only the
// balloons whose requests changed and those that lack CPUs. The result is the same as if it computed all balloons.
func (p *Policy) Layout(pools *placement.Pools, d placement.Demand) *placement.Layout {
	before := cmp.Or(d.Previous, &placement.Layout{})
	l := pools.DefaultLayout(d)
	l.Policy, l.OneThread, l.CPUClasses = p, p.cores.OneOfEach, p.cpuClasses
	if !p.Options.PinCPU {
		l.OneThread = func(cpus topology.Set) topology.Set { return cpus }
	}
	w := layoutRun{policy: p, layout: l, previous: before.Balloons}
	if before.Policy == placement.Policy(p) && before.Pools == *pools && before.Demand.OwnedCPUs == d.OwnedCPUs {
		w.addChangedPending(before)
	} else {
		w.addAllPending()
	}
	w.sortAndDivide()
	w.assignCPUs()
	return l
}

// layoutRun is the computation of one layout.
type layoutRun struct {
	policy   *Policy
	layout   *placement.Layout
	previous placement.Balloons // the balloons of the previous layout
	pending  []sizedBalloon     // the balloons whose CPUs must be computed
	removed  []string           // the names of the balloons that end
}

// sizedBalloon is a balloon and the number of CPUs that it should have.
type sizedBalloon struct {
	poolID      placement.PoolID
	balloonType *TypeOptions
	typeIndex   int // the index of the type in Policy.types
	index       int // the number in the balloon's name, such as 0 in type[0]
	parts       []balloonPart
	cpus        topology.Set // the CPUs of all parts
}

// addAllPending puts all balloons into w.pending.
func (w *layoutRun) addAllPending() {
	w.layout.Balloons, w.layout.Idle = placement.Balloons{}, w.policy.allCPUs(w.layout)
	for nth := range w.policy.types {
		for _, i := range w.requiredIndexes(&w.policy.types[nth]) {
			w.appendPending(nth, i)
		}
	}
}

// addChangedPending puts into w.pending the balloons whose containers' requests differ from those in the previous layout,
// and the balloons that lack CPUs. It takes all other balloons from the previous layout.
func (w *layoutRun) addChangedPending(before *placement.Layout) { //nolint:gocognit // each condition is a reason for a new layout
	w.layout.Balloons, w.layout.Idle = before.Balloons, before.Idle
	counted := map[int]bool{}
	for _, which := range w.layout.Demand.Needs.ChangedSince(before.Demand.Needs) {
		name, i, ok := splitName(which.Name)
		nth, known := w.policy.typeIndexes[name]
		_, used := w.layout.Demand.Needs.OfPool(which)
		_, was := before.Demand.Needs.OfPool(which)
		switch {
		case !ok || !known:
		case used != was && w.policy.types[nth].MinBalloons > 0:
			if !counted[nth] {
				counted[nth] = true
				w.recountType(nth)
			}
		case !used:
			w.removed = append(w.removed, which.Name)
		}
		if ok && known && used {
			w.addPending(nth, i)
		}
	}
	for _, b := range before.Balloons {
		if name := b.Need.PoolID.Name; b.Size > b.OwnCPUs.Len() && !slices.Contains(w.removed, name) {
			of, i, _ := splitName(name)
			w.addPending(w.policy.typeIndexes[of], i)
		}
	}
	for _, name := range w.removed {
		if b := before.Balloons.ByName(name); b != nil {
			w.layout.Idle = w.layout.Idle.Union(b.OwnCPUs)
		}
	}
	for i := range w.pending {
		if b := before.Balloons.ByName(w.pending[i].poolID.Name); b != nil {
			w.layout.Idle = w.layout.Idle.Union(b.OwnCPUs)
		}
	}
}

// recountType handles a change of the balloons of a type with minBalloons; such balloons can exist without containers.
// It adds the balloons that end to w.removed. To w.pending it adds the balloons that begin, that became empty, or that
// got their first container.
func (w *layoutRun) recountType(nth int) {
	t := &w.policy.types[nth]
	exist := w.requiredIndexes(t)
	slices.Sort(exist)
	had := w.previous.OfType(t.Name)
	for _, b := range had {
		_, used := w.layout.Demand.Needs.OfPool(b.Need.PoolID)
		switch _, stays := slices.BinarySearch(exist, b.Index); {
		case !stays:
			w.removed = append(w.removed, b.Need.PoolID.Name)
		case used != (b.Need.Members > 0): // the balloon became empty, or got its first container
			w.addPending(nth, b.Index)
		}
	}
	for _, i := range exist {
		if had.ByName(t.balloonName(i)) == nil {
			w.addPending(nth, i)
		}
	}
}

// addPending adds a balloon to w.pending if it is not there yet. The parameter nth is the index of the balloon's type
// in Policy.types.
func (w *layoutRun) addPending(nth, index int) {
	for i := range w.pending {
		if w.pending[i].typeIndex == nth && w.pending[i].index == index {
			return
		}
	}
	w.appendPending(nth, index)
}

// appendPending adds a balloon to w.pending, even if it is already there. The parameter nth is the index of the
// balloon's type in Policy.types.
func (w *layoutRun) appendPending(nth, index int) {
	t := &w.policy.types[nth]
	w.pending = append(w.pending, sizedBalloon{poolID: placement.PoolID{Name: t.balloonName(index)}, balloonType: t, typeIndex: nth, index: index})
}

// requiredIndexes returns the indexes of the balloons of a type that the layout must have: the balloons with
// containers, and as many empty balloons as minBalloons requires. Of the empty balloons, it chooses those of the
// previous layout first.
func (w *layoutRun) requiredIndexes(t *TypeOptions) (all []int) {
	for _, of := range w.layout.Demand.Needs {
		if name, i, ok := splitName(of.PoolID.Name); ok && name == t.Name {
			all = append(all, i)
		}
	}
	enough := func(i int) {
		if len(all) < t.MinBalloons && !slices.Contains(all, i) {
			all = append(all, i)
		}
	}
	for _, b := range w.previous.OfType(t.Name) {
		if _, i, ok := splitName(b.Need.PoolID.Name); ok {
			enough(i)
		}
	}
	for i := range t.MinBalloons {
		enough(i)
	}
	return all
}

// sortAndDivide sorts w.pending into the order in which balloons get CPUs: by the priority of their types, by
// type, and by index. It also divides each balloon into its parts.
func (w *layoutRun) sortAndDivide() {
	slices.SortFunc(w.pending, func(a, b sizedBalloon) int {
		return cmp.Or(cmp.Compare(priorityRank(a.balloonType), priorityRank(b.balloonType)), cmp.Compare(a.typeIndex, b.typeIndex), cmp.Compare(a.index, b.index))
	})
	counts := map[string]int{}
	if slices.ContainsFunc(w.pending, func(b sizedBalloon) bool { return w.policy.choosesComponent(b.poolID, b.balloonType, w.previous) }) {
		counts = w.countsByType()
	}
	for _, choosing := range []bool{false, true} { // balloons that choose a component come last: they need the counts of the others
		for i := range w.pending {
			if b := &w.pending[i]; w.policy.choosesComponent(b.poolID, b.balloonType, w.previous) == choosing {
				b.parts = w.policy.partsOf(b.poolID, b.balloonType, w.layout.Demand.Needs, w.previous, counts)
			}
		}
	}
}

// countsByType returns the number of balloons and components of each type, without the balloons in w.pending.
func (w *layoutRun) countsByType() map[string]int {
	counts := map[string]int{}
	for _, b := range w.layout.Balloons {
		which := b.Need.PoolID
		name, _, _ := splitName(which.Name)
		if slices.Contains(w.removed, which.Name) || slices.ContainsFunc(w.pending, func(s sizedBalloon) bool { return s.poolID == which }) {
			continue
		}
		if len(b.Components) == 0 {
			counts[name]++
		}
		for _, part := range b.Components {
			if i, ok := componentIndex(part.Name); ok {
				counts[w.policy.partTypes[name][i].Name]++
			}
		}
	}
	return counts
}

// assignCPUs gives CPUs to the balloons in w.pending. First each balloon keeps CPUs that it had. Then the balloons get
// more CPUs.
func (w *layoutRun) assignCPUs() {
	p, l := w.policy, w.layout
	for i := range w.pending {
		for n := range w.pending[i].parts {
			s := &w.pending[i].parts[n]
			s.cpus = w.keptCPUs(&w.pending[i], s)
			l.Idle = l.Idle.Minus(s.cpus)
		}
	}
	for i := range w.pending {
		b := &w.pending[i]
		for n := range b.parts {
			s := &b.parts[n]
			w.inflate(b, s)
			b.cpus = b.cpus.Union(s.cpus)
		}
	}
	laid := make(placement.Balloons, len(w.pending))
	for i := range w.pending {
		laid[i] = p.balloon(l, &w.pending[i])
	}
	l.Balloons = w.renewSharing(l.Balloons.WithChanges(laid, w.removed))
}

// inflate gives a part of a balloon the CPUs that it lacks, as far as CPUs are idle.
func (w *layoutRun) inflate(b *sizedBalloon, s *balloonPart) {
	step := s.size - s.cpus.Len()
	if w.policy.picksOneByOne(b, s) {
		step = min(step, 1)
	}
	for step > 0 && s.cpus.Len() < s.size {
		got := w.policy.moreCPUs(w.layout, s, min(step, s.size-s.cpus.Len()), w.cpusToAvoid(b, s))
		if got.Empty() {
			return
		}
		s.cpus, w.layout.Idle = s.cpus.Union(got), w.layout.Idle.Minus(got)
	}
}

// renewSharing updates the balloons that share idle CPUs, because different CPUs may be idle now.
func (w *layoutRun) renewSharing(all placement.Balloons) placement.Balloons {
	var renewed placement.Balloons
	for _, b := range all {
		if b.SharedIdleCPUs.Empty() {
			continue
		}
		if cpus := b.OwnCPUs.Union(b.SharedIdleCPUs.And(w.layout.Idle)); cpus != b.AllowedCPUs {
			next := *b
			next.AllowedCPUs, next.MemoryCPUs = cpus, cpus
			renewed = append(renewed, &next)
		}
	}
	return all.WithChanges(renewed, nil)
}

// priorityRank returns the position of a type's priority; types with a lower position get CPUs first.
func priorityRank(t *TypeOptions) int {
	return slices.Index([]string{"high", "normal", "low", "none"}, t.AllocatorPriority)
}

// allCPUs returns the CPUs that balloons may have. It leaves out isolated CPUs, unless a type prefers them or all
// CPUs are isolated.
func (p *Policy) allCPUs(l *placement.Layout) topology.Set {
	cpus := l.Pools.Shared.Union(l.Pools.Reserved.And(l.Pools.Online)).Minus(l.Demand.OwnedCPUs)
	if p.usesIsolated {
		return cpus
	}
	return p.withoutIsolated(cpus)
}

// withoutIsolated returns the CPUs that are not isolated, or all CPUs if all are isolated.
func (p *Policy) withoutIsolated(cpus topology.Set) topology.Set {
	if left := cpus.Minus(p.isolated); !left.Empty() {
		return left
	}
	return cpus
}

// idleCPUs returns the idle CPUs that balloons of a type may get. Only the type reserved may get reserved
// CPUs. A type without preferIsolCpus gets isolated CPUs only if all idle CPUs are isolated.
func (p *Policy) idleCPUs(l *placement.Layout, t *TypeOptions) topology.Set {
	idle := l.Idle
	if !t.PreferIsolCPUs {
		idle = p.withoutIsolated(idle)
	}
	if t.Name == reservedType {
		return idle
	}
	return idle.Minus(l.Pools.Reserved)
}

// keptCPUs returns the CPUs that a part of a balloon keeps of its previous CPUs. The CPUs must be idle and,
// except for the type reserved, not reserved. If the previous layout has no CPUs for this part, the part keeps previous
// CPUs of the whole balloon.
func (w *layoutRun) keptCPUs(b *sizedBalloon, s *balloonPart) topology.Set {
	p, l, was := w.policy, w.layout, w.previous.ByName(b.poolID.Name)
	had, known := was.ComponentCPUs(s.name)
	if !known && was != nil {
		had = was.OwnCPUs
	}
	if had = had.And(l.Idle); b.balloonType.Name != reservedType {
		had = had.Minus(l.Pools.Reserved)
	}
	if had.Len() <= s.size {
		return had
	}
	if best := had.And(l.Pools.Reserved); !best.Empty() && best.Len() <= s.size {
		return best.Union(p.Pick.Pick(s.size-best.Len(), had.Minus(best), best, p.preference(s.balloonType)))
	}
	// The balloon gives up CPUs in that region of the node in which it has the fewest CPUs (nri-plugins 0.14,
	// cputree.go). So the remaining CPUs are close together.
	return p.pick(s, s.size, had, topology.Set{}, w.previousCPUsToAvoid(b, s), Preference{Emptiest: true, SpreadCores: p.picksOneByOne(b, s)})
}

// moreCPUs returns n more CPUs for a part of a balloon, or fewer if too few are idle. The sets in avoided are CPUs to
// avoid because of load classes.
func (p *Policy) moreCPUs(l *placement.Layout, s *balloonPart, n int, avoided []topology.Set) topology.Set {
	from := p.idleCPUs(l, s.balloonType)
	if first := from.And(l.Pools.Reserved); !first.Empty() { // only the type reserved may get reserved CPUs
		got := p.Pick.Pick(n, first, s.cpus, p.preference(s.balloonType))
		return got.Union(p.Pick.Pick(n-got.Len(), from.Minus(first), s.cpus.Union(got), p.preference(s.balloonType)))
	}
	return p.pick(s, n, from, s.cpus, avoided, p.preference(s.balloonType))
}

// preference returns which CPUs balloons of a type prefer.
func (p *Policy) preference(t *TypeOptions) Preference {
	return Preference{
		SpreadCores: t.PreferSpreadOnPhysicalCores || p.Options.PreferSpreadOnPhysicalCores,
		Emptiest:    t.AllocatorTopologyBalancing || p.Options.AllocatorTopologyBalancing,
	}
}

// balloon makes the entry of a balloon in the layout.
func (p *Policy) balloon(l *placement.Layout, b *sizedBalloon) *placement.BalloonCPUs {
	need, _ := l.Demand.Needs.OfPool(b.poolID)
	out := &placement.BalloonCPUs{Need: need, Index: b.index, OwnCPUs: b.cpus, AllowedCPUs: b.cpus, MemoryCPUs: b.cpus, HidesThreads: b.balloonType.HideHyperthreads}
	for i := range b.parts {
		out.Size += b.parts[i].size
		if len(b.balloonType.Components) > 0 {
			out.Components = append(out.Components, placement.BalloonComponent{Name: b.parts[i].name, CPUs: b.parts[i].cpus})
		}
	}
	switch {
	case !p.Options.PinCPU:
		out.AllowedCPUs = p.allCPUs(l)
	case !b.cpus.Empty():
		out.SharedIdleCPUs = p.nearCPUs(b.balloonType.ShareIdleCPUsInSame, b.cpus).Minus(l.Pools.Reserved).Minus(p.isolated)
		out.AllowedCPUs = b.cpus.Union(out.SharedIdleCPUs.And(l.Idle))
		out.MemoryCPUs = out.AllowedCPUs
	}
	return out
}

// nearCPUs returns all CPUs in the same part of the node as one of the given CPUs. The parameter level names the kind
// of part; it is a value of shareIdleCPUsInSame.
func (p *Policy) nearCPUs(level string, cpus topology.Set) topology.Set {
	switch level {
	case "system":
		return p.Machine.Online()
	case "package":
		return p.Machine.ExpandToGroups(topology.PackageLevel, cpus)
	case "die":
		return p.Machine.ExpandToGroups(topology.DieLevel, cpus)
	case "numa":
		return p.Machine.ExpandToGroups(topology.NodeLevel, cpus)
	case "l2cache":
		return p.Machine.ExpandToGroups(topology.L2Level, cpus)
	case "core":
		return p.Machine.ExpandToGroups(topology.CoreLevel, cpus)
	}
	return topology.Set{}
}
