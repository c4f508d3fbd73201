package packing

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// katalyst implements the rules of Katalyst's dynamic CPU and memory policies (0.5) for dedicated_cores with
// numa_binding; Katalyst has no dedicated cores without it. An owner that does not fit into one empty NUMA node
// requests as many nodes as it needs (numa_number). Katalyst would refuse the memory of such a pod; this code does not.
// It refuses to resize dedicated cores. It does not merge hints of devices with those of CPUs. Pools are divided again
// after each event.
type katalyst struct {
	m      *topology.Machine
	owned  map[int]topology.Set
	memory map[int]map[int]int // GiB by owner and node
	shared map[int]event
	home   map[int]int // the node of sharing containers that are bound
}

func newKatalyst(_ testing.TB, m *topology.Machine) allocator {
	return &katalyst{m: m, owned: map[int]topology.Set{}, memory: map[int]map[int]int{}, shared: map[int]event{}, home: map[int]int{}}
}

func (k *katalyst) free() topology.Set { return freeOf(k.m, k.owned) }

// gibs returns the free memory of a node.
func (k *katalyst) gibs(node int) int {
	left := int(k.m.Nodes[node].Memory / gib)
	for _, by := range k.memory {
		left -= by[node]
	}
	return left
}

// own takes the lowest set of as many NUMA nodes as requested that has enough CPUs and memory and spans as few sockets
// as possible.
func (k *katalyst) own(e event) (placed, bool) {
	all := 0
	largest := 0
	for i, n := range k.m.Nodes {
		if !n.CPUs.Empty() {
			all, largest = all|1<<i, max(largest, n.CPUs.Len())
		}
	}
	count := (e.cpus + largest - 1) / largest
	perSocket := bits.OnesCount(uint(all)) / len(k.m.Groups(topology.PackageLevel))
	for mask := 1; mask <= all; mask++ {
		on := cpusOn(k.m, mask)
		if mask&all != mask || bits.OnesCount(uint(mask)) != count || count <= perSocket && k.m.CountGroups(topology.PackageLevel, on) > 1 {
			continue
		}
		free := k.free().And(on)
		if e.whole {
			free = (&question{m: k.m}).wholeCores(free)
		}
		if free.Len() < e.cpus || !k.fits(mask, e.gibs) {
			continue
		}
		p := placed{cpus: takeLargest(k.m, free, e.cpus, false), mems: make([]bool, len(k.m.Nodes))}
		k.memory[e.id] = map[int]int{}
		rest := e.gibs
		for i := range k.m.Nodes {
			if p.mems[i] = mask&(1<<i) != 0; p.mems[i] {
				some := min(rest, k.gibs(i))
				k.memory[e.id][i], rest = some, rest-some
			}
		}
		k.owned[e.id] = p.cpus
		return p, true
	}
	return placed{}, false
}

func (k *katalyst) fits(mask, gibs int) bool {
	for i := range k.m.Nodes {
		if mask&(1<<i) != 0 {
			gibs -= k.gibs(i)
		}
	}
	return gibs <= 0
}

func (k *katalyst) resize(event) (topology.Set, bool) { return topology.Set{}, false }

// share places a bound container on the node with the most CPUs left for pools.
func (k *katalyst) share(e event) {
	k.shared[e.id] = e
	if !e.bound {
		return
	}
	most := 0
	for i, n := range k.m.Nodes {
		left := n.CPUs.And(k.free()).Len() * 1000
		for id, node := range k.home {
			if node == i {
				left -= 2 * k.shared[id].milli
			}
		}
		if !n.CPUs.Empty() && (i == 0 || left > most) {
			k.home[e.id], most = i, left
		}
	}
}

func (k *katalyst) end(id int) {
	delete(k.owned, id)
	delete(k.memory, id)
	delete(k.shared, id)
	delete(k.home, id)
}

// pools divides the CPUs without an owner. First come bound pools, with twice the requests on their nodes. The others
// follow in the order of their names, on nodes without bound pools if there are any, with whole cores of each NUMA node
// in turn.
func (k *katalyst) pools() []pool {
	var out []pool
	rest, apart := k.free(), topology.Set{}
	milli, bound := map[string]int{}, map[int]int{}
	for id, e := range k.shared {
		if e.bound {
			bound[k.home[id]] += e.milli
		} else {
			milli["share"+e.pool] += e.milli
		}
	}
	for _, node := range ids(bound) {
		on := k.m.Nodes[node].CPUs
		p := pool{name: "share-NUMA" + string(rune('0'+node)), need: (bound[node] + 999) / 1000, node: node}
		p.cpus = k.balanced(rest.And(on), (2*bound[node]+999)/1000)
		rest, apart, out = rest.Minus(p.cpus), apart.Union(on), append(out, p)
	}
	if others := rest.Minus(apart); !others.Empty() {
		rest = others
	}
	names, sum := []string{}, 0
	for name, m := range milli {
		names, sum = append(names, name), sum+(m+999)/1000
	}
	slices.Sort(names)
	room := rest.Len()
	for _, name := range names {
		need := (milli[name] + 999) / 1000
		n := need
		if sum > room { // all of them in proportion
			n = max(1, need*room/sum)
		}
		p := pool{name: name, need: need, node: -1, cpus: k.balanced(rest, n)}
		rest, out = rest.Minus(p.cpus), append(out, p)
	}
	return out
}

// balanced takes n CPUs of a set: whole cores of each NUMA node in turn, then threads.
func (k *katalyst) balanced(from topology.Set, n int) topology.Set {
	var out topology.Set
	for _, whole := range []bool{true, false} {
		for took := true; took && n > 0; {
			took = false
			for _, node := range k.m.Nodes {
				some := k.next(from.And(node.CPUs), whole)
				if size := some.Len(); size > 0 && size <= n {
					out, from, n, took = out.Union(some), from.Minus(some), n-size, true
				}
			}
		}
	}
	return out
}

// next is the lowest core that is free, or the lowest thread.
func (k *katalyst) next(from topology.Set, whole bool) topology.Set {
	if whole {
		from = (&question{m: k.m}).wholeCores(from)
		if from.Empty() {
			return from
		}
		return k.m.Groups(topology.CoreLevel)[k.m.GroupOf(topology.CoreLevel, from.First())]
	}
	if from.Empty() {
		return from
	}
	return topology.SetOf(from.First())
}
