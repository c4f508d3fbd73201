package packing

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// kubelet is the rules of the kubelet's static CPU manager (Kubernetes 1.36), for
// containers of Guaranteed pods that ask for whole CPUs. No CPUs are reserved here.
//
// aligned is what an administrator can set who cares: the topology manager with policy
// best-effort, and the CPU manager's option prefer-align-cpus-by-uncorecache. Without it
// all is as it comes.
//
// It has no pools: all others run on what nobody owns. It does not know wishes for whole
// cores of a single pod, and it refuses to resize owners
// (InPlacePodVerticalScalingExclusiveCPUs is off). It confines no memory.
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

// on are the CPUs of some NUMA nodes.
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

// affinity merges the hints for the owner's CPUs and, where it has a card, of that: each
// pair of hints is a set of NUMA nodes that both have, preferred where both are and
// are equal; the best of these counts.
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
	// The largest of the hints' smallest sets: a card's is one node.
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

// hints are the sets of NUMA nodes that hold n free CPUs. Preferred are those of as few
// nodes as would do on an empty machine.
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

// beats is the topology manager's order of merged hints: preferred ones first; of
// these, and of others that are as large, the fewest nodes and then the lowest. Of ones
// that are not preferred those are first that have as many nodes as the largest of
// the hints' smallest sets, then those with fewer, nearest to that first.
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

// taker takes CPUs by the kubelet's packed order.
type taker struct {
	m         *topology.Machine
	free, out topology.Set
	need      int
}

// takeLargest takes whole sockets and NUMA nodes first (the larger of them first), as
// long as nothing of them is taken and all is needed; then, where asked for, L3 caches;
// then whole cores; then single threads. Within each kind, and among the groups around
// it, the ones with the fewest free CPUs come first.
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

// groups are the groups of a level that have some of these CPUs, those with the fewest
// free first.
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

// inside are the groups of a level in the order of those around them.
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

// sortedNodes are the NUMA nodes in the kubelet's order, sortedCores the cores.
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

// perCore is how many threads the kubelet takes a core to have: as many as there are CPUs
// for each core of the machine, rounded down.
func (t *taker) perCore() int { return len(t.m.CPUs) / len(t.m.Groups(topology.CoreLevel)) }

func (t *taker) cores() {
	for _, core := range t.sortedCores() {
		if core.And(t.free).Len() == t.perCore() && t.need >= core.Len() {
			t.take(core.And(t.free))
		}
	}
}

// caches takes L3 caches as prefer-align-cpus-by-uncorecache does: whole ones while as
// many CPUs are needed, and the rest of the first one whose lowest cores have exactly
// as many as are still needed.
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

// lowestCores are the free CPUs of as many cores of a cache as are needed, the lowest
// first; where an odd number is needed, without the last.
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

// ids lists the keys of a map, sorted.
func ids[V any](of map[int]V) []int { return slices.Sorted(maps.Keys(of)) }
