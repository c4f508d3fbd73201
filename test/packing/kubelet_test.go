package packing

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// kubelet implements the rules of the kubelet's static CPU manager (Kubernetes 1.36), for containers of Guaranteed pods
// that request whole CPUs. No CPUs are reserved here.
//
// aligned sets options that an administrator can choose: the topology manager with policy best-effort, and the CPU
// manager's option prefer-align-cpus-by-uncorecache. Without it the defaults apply.
//
// It has no pools: all other containers run on the CPUs without an owner. A single pod cannot request whole cores. It
// refuses to resize owners (InPlacePodVerticalScalingExclusiveCPUs is off). It does not confine memory.
type kubelet struct {
	m       *topology.Machine
	aligned bool
	owned   map[int]topology.Set
	shared  map[int]int // milli-CPUs
}

func newKubelet(_ testing.TB, m *topology.Machine) allocator {
	return &kubelet{m: m, owned: map[int]topology.Set{}, shared: map[int]int{}}
}

func newAlignedKubelet(_ testing.TB, m *topology.Machine) allocator {
	return &kubelet{m: m, aligned: true, owned: map[int]topology.Set{}, shared: map[int]int{}}
}

func (k *kubelet) free() topology.Set { return freeOf(k.m, k.owned) }

func freeOf(m *topology.Machine, owned map[int]topology.Set) topology.Set {
	free := m.Online()
	for _, cpus := range owned {
		free = free.Minus(cpus)
	}
	return free
}

func (k *kubelet) own(e event) (placed, bool) {
	free := k.free()
	if free.Len() < e.cpus {
		return placed{}, false
	}
	var cpus topology.Set
	if k.aligned {
		near := free.And(k.on(k.affinity(e)))
		cpus = takeLargest(k.m, near, min(e.cpus, near.Len()), true)
	}
	cpus = cpus.Union(takeLargest(k.m, free.Minus(cpus), e.cpus-cpus.Len(), k.aligned))
	k.owned[e.id] = cpus
	return placed{cpus: cpus}, true
}

// on returns the CPUs of NUMA nodes.
func (k *kubelet) on(mask int) topology.Set { return cpusOn(k.m, mask) }

func cpusOn(m *topology.Machine, mask int) topology.Set {
	var on topology.Set
	for i, n := range m.Nodes {
		if mask&(1<<i) != 0 {
			on = on.Union(n.CPUs)
		}
	}
	return on
}

func (k *kubelet) resize(event) (topology.Set, bool) { return topology.Set{}, false }

func (k *kubelet) share(e event) { k.shared[e.id] = e.milli }

func (k *kubelet) end(id int) {
	delete(k.owned, id)
	delete(k.shared, id)
}

func (k *kubelet) pools() []pool {
	need := 0
	for _, milli := range k.shared {
		need += milli
	}
	return []pool{{name: "shared", cpus: k.free(), need: need, node: -1}}
}

// hint is a topology hint: a set of NUMA nodes, and whether it is preferred.
type hint struct {
	mask      int
	preferred bool
}

// affinity merges the hints for the owner's CPUs with those for its device, if it has one. Each pair of hints gives the
// NUMA nodes that are in both. The pair is preferred if both hints are preferred and equal. The best pair counts.
func (k *kubelet) affinity(e event) int {
	var withCPUs int
	for i, n := range k.m.Nodes {
		if !n.CPUs.Empty() {
			withCPUs |= 1 << i
		}
	}
	cpus := k.hints(withCPUs, e.cpus)
	cards := []hint{{withCPUs, true}} // no preference
	if e.device >= 0 {
		cards = nil
		for mask := 1; mask <= withCPUs; mask++ {
			if mask&withCPUs == mask && mask&(1<<e.device) != 0 {
				cards = append(cards, hint{mask, mask == 1<<e.device})
			}
		}
	}
	// The largest of the hints' smallest sets; a device's is one node.
	fewest := len(k.m.Nodes)
	for _, h := range cpus {
		fewest = min(fewest, bits.OnesCount(uint(h.mask)))
	}
	var best hint
	for _, a := range cpus {
		for _, b := range cards {
			both := hint{a.mask & b.mask, a.preferred && b.preferred && (a.mask == b.mask || e.device < 0)}
			if both.mask != 0 && (best.mask == 0 || both.beats(best, fewest)) {
				best = both
			}
		}
	}
	return best.mask
}

// hints returns the sets of NUMA nodes that have n free CPUs. Sets with as few nodes as an empty machine would need are
// preferred.
func (k *kubelet) hints(of, n int) []hint {
	var out []hint
	free, least := k.free(), bits.OnesCount(uint(of))
	for mask := 1; mask <= of; mask++ {
		on := k.on(mask)
		if mask&of != mask || on.Len() < n {
			continue
		}
		least = min(least, bits.OnesCount(uint(mask)))
		if on.And(free).Len() >= n {
			out = append(out, hint{mask: mask})
		}
	}
	for i := range out {
		out[i].preferred = bits.OnesCount(uint(out[i].mask)) == least
	}
	return out
}

// beats is the topology manager's order of merged hints. Preferred hints come first; of these, and of hints of the same
// size, those with the fewest and then the lowest nodes. Of the others, those with as many nodes as the largest of the
// hints' smallest sets come first, then those with fewer, the nearest to that number first.
func (h hint) beats(o hint, fewest int) bool {
	if h.preferred != o.preferred {
		return h.preferred
	}
	size := func(h hint) int { return bits.OnesCount(uint(h.mask)) }
	a, b := size(h), size(o)
	if h.preferred || a == b || a > fewest && b > fewest {
		return cmp.Or(cmp.Compare(a, b), cmp.Compare(h.mask, o.mask)) < 0
	}
	if b > fewest || a > fewest {
		return b > fewest
	}
	return a > b
}

// taker takes CPUs in the kubelet's packed order.
type taker struct {
	m         *topology.Machine
	free, out topology.Set
	need      int
}

// takeLargest first takes whole sockets and NUMA nodes, the larger kind first, while they are entirely free and needed.
// Then it takes L3 caches if byCache is set, then whole cores, then single threads. Within each kind, and among the
// groups that contain it, those with the fewest free CPUs come first.
func takeLargest(m *topology.Machine, free topology.Set, n int, byCache bool) topology.Set {
	t := &taker{m: m, free: free, need: n}
	if t.need > 0 {
		levels := []topology.Level{topology.PackageLevel, topology.NodeLevel}
		if !t.socketsFirst() {
			slices.Reverse(levels)
		}
		t.full(t.groups(levels[0], free))
		t.full(t.inside(levels[1], t.groups(levels[0], t.free)))
	}
	if byCache && t.need > 0 {
		t.caches()
	}
	t.cores()
	for _, core := range t.sortedCores() {
		for cpu := range core.And(t.free).All() {
			if t.need > 0 {
				t.take(topology.SetOf(cpu))
			}
		}
	}
	return t.out
}

// socketsFirst reports whether sockets hold NUMA nodes, and not the other way round.
func (t *taker) socketsFirst() bool {
	withCPUs := 0
	for _, n := range t.m.Nodes {
		if !n.CPUs.Empty() {
			withCPUs++
		}
	}
	return len(t.m.Groups(topology.PackageLevel)) < withCPUs
}

func (t *taker) take(cpus topology.Set) {
	t.out, t.free, t.need = t.out.Union(cpus), t.free.Minus(cpus), t.need-cpus.Len()
}

// groups returns the groups of a level that have some of these CPUs, those with the fewest free ones first.
func (t *taker) groups(l topology.Level, of topology.Set) []topology.Set {
	var out []topology.Set
	for _, g := range t.m.Groups(l) {
		if !g.And(of).And(t.free).Empty() {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b topology.Set) int { return a.And(t.free).Len() - b.And(t.free).Len() })
	return out
}

// inside returns the groups of a level in the order of the outer groups.
func (t *taker) inside(l topology.Level, outer []topology.Set) []topology.Set {
	var out []topology.Set
	for _, g := range outer {
		out = append(out, t.groups(l, g)...)
	}
	return out
}

// full takes groups that are entirely free and needed.
func (t *taker) full(groups []topology.Set) {
	for _, g := range groups {
		if t.free.Contains(g) && t.need >= g.Len() {
			t.take(g)
		}
	}
}

// sortedNodes returns the NUMA nodes in the kubelet's order.
func (t *taker) sortedNodes() []topology.Set {
	if t.socketsFirst() {
		return t.inside(topology.NodeLevel, t.groups(topology.PackageLevel, t.free))
	}
	return t.groups(topology.NodeLevel, t.free)
}

func (t *taker) sortedCores() []topology.Set {
	around := t.sortedNodes()
	if !t.socketsFirst() {
		around = t.inside(topology.PackageLevel, around)
	}
	return t.inside(topology.CoreLevel, around)
}

// perCore is the number of threads that the kubelet assumes for each core: CPUs of the machine divided by its cores,
// rounded down.
func (t *taker) perCore() int { return len(t.m.CPUs) / len(t.m.Groups(topology.CoreLevel)) }

func (t *taker) cores() {
	for _, core := range t.sortedCores() {
		if core.And(t.free).Len() == t.perCore() && t.need >= core.Len() {
			t.take(core.And(t.free))
		}
	}
}

// caches takes L3 caches like prefer-align-cpus-by-uncorecache: whole caches while that many CPUs are needed, and the
// rest from the first cache whose lowest cores have exactly the missing number.
func (t *taker) caches() {
	order := t.inside(topology.L3Level, t.sortedNodes())
	whole := len(t.m.CPUs) / len(t.m.Groups(topology.L3Level))
	for _, cache := range order {
		if t.need >= whole {
			t.full(t.inside(topology.L3Level, t.sortedNodes()))
		}
		if t.need == 0 {
			return
		}
		if some := t.lowestCores(cache); some.Len() == t.need {
			t.take(some)
			return
		}
	}
}

// lowestCores returns the free CPUs of as many cores of a cache as needed, the lowest first. For an odd number it
// leaves out the last CPU.
func (t *taker) lowestCores(cache topology.Set) topology.Set {
	cores := (t.need + t.perCore() - 1) / t.perCore()
	var some topology.Set
	for _, core := range t.m.Groups(topology.CoreLevel) {
		if at := core.And(cache).And(t.free); !at.Empty() && cores > 0 {
			some, cores = some.Union(at), cores-1
		}
	}
	if all := some.Members(); t.need%2 != 0 && t.perCore() > 1 && len(all) > t.need {
		some = topology.SetOf(all[:len(all)-1]...)
	}
	return some
}

// ids returns the sorted keys of a map.
func ids[V any](of map[int]V) []int { return slices.Sorted(maps.Keys(of)) }
