package choose

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
	"pgregory.net/rapid"
)

// oddMachine draws a machine of up to limit CPUs with sparse ids, cores of different sizes, and caches and
// dies that need not divide each other.
func oddMachine(t *rapid.T, limit int) *topology.Machine {
	packages := rapid.IntRange(1, 3).Draw(t, "packages")
	nodes := rapid.IntRange(1, 3).Draw(t, "nodes a package")
	n := rapid.IntRange(1, limit).Draw(t, "CPUs")
	caches := rapid.IntRange(1, 3).Draw(t, "cores of an L3 cache")
	id := 0
	all := make([]topology.CPU, 0, n)
	for core := 0; len(all) < n; core++ {
		threads := rapid.IntRange(1, 2).Draw(t, "threads")
		pkg := core % packages
		for range min(threads, n-len(all)) {
			id += rapid.IntRange(1, 3).Draw(t, "step")
			all = append(all, topology.CPU{
				ID: id, Core: core, Package: pkg, Die: core % 2, Node: pkg*nodes + core/packages%nodes, L3: core / caches,
			})
		}
	}
	m, err := topology.New(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func someOf(t *rapid.T, m *topology.Machine, label string) topology.Set {
	var s topology.Set
	for i := range m.Online().All() {
		if rapid.IntRange(0, 3).Draw(t, label) > 0 {
			s.Add(i)
		}
	}
	return s
}

// What must hold for every answer, whatever was preferred.
func TestAnswersKeepTheirWord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, 60)
		w := Request{
			N: rapid.IntRange(-1, 40).Draw(t, "n"), From: someOf(t, m, "from"),
			Cores: CoreUse(rapid.IntRange(0, 3).Draw(t, "cores")), PreferEmptiest: rapid.Bool().Draw(t, "roomy"),
			UsedWith: someOf(t, m, "beside"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "preferences") {
			w.Preferences = append(w.Preferences, Preference{
				Name: "p", CPUs: someOf(t, m, "preferred"), Avoid: rapid.Bool().Draw(t, "avoid"),
			})
		}
		if rapid.Bool().Draw(t, "spread") {
			w.Spread = []topology.Level{topology.Level(rapid.IntRange(0, 5).Draw(t, "level"))}
			w.Even = rapid.Bool().Draw(t, "even")
		}
		tree := NewTree(m)
		got, err := tree.Choose(w)
		again, _ := tree.Choose(w)
		if got.CPUs != again.CPUs || got.Idle != again.Idle {
			t.Fatalf("the same question has two answers: %s and %s", m.Format(got.CPUs), m.Format(again.CPUs))
		}
		if err != nil {
			if !got.CPUs.Empty() {
				t.Fatalf("refused with %v, and yet %s", err, m.Format(got.CPUs))
			}
			if w.Cores == AnyThread && !w.Even && w.From.Len() >= w.N {
				t.Fatalf("refused though there are %d: %v", w.From.Len(), err)
			}
			return
		}
		if got.CPUs.Len() != max(0, w.N) || !w.From.Contains(got.CPUs) {
			t.Fatalf("%d of %s: %s", w.N, m.Format(w.From), m.Format(got.CPUs))
		}
		keepsCores(t, m, w, got)
		if w.Even && len(w.Spread) > 0 && w.N > 0 {
			each := w.N / m.CountGroups(w.Spread[0], w.From)
			for _, part := range tree.divide(got.CPUs, w.Spread[0]) {
				if part.Len() != each {
					t.Fatalf("not even over %ss: %s", w.Spread[0], m.Format(got.CPUs))
				}
			}
		}
	})
}

func keepsCores(t *rapid.T, m *topology.Machine, w Request, got Choice) {
	whole := m.ExpandToGroups(topology.CoreLevel, got.CPUs)
	switch w.Cores {
	case WholeCores:
		if whole != got.CPUs {
			t.Fatalf("not whole cores: %s", m.Format(got.CPUs))
		}
	case OneThread:
		if m.CountGroups(topology.CoreLevel, got.CPUs) != got.CPUs.Len() || got.Idle != whole.Minus(got.CPUs) || !w.From.Contains(whole) {
			t.Fatalf("not one thread of each core: %s, idle %s", m.Format(got.CPUs), m.Format(got.Idle))
		}
	case SpreadThreads:
		most := min(w.N, m.CountGroups(topology.CoreLevel, w.From))
		if n := m.CountGroups(topology.CoreLevel, got.CPUs); len(w.Spread)+len(w.Preferences) == 0 && n < min(most, coresOfGroup(m, got.CPUs, w.From, w.N)) {
			t.Fatalf("%d cores for %d CPUs: %s", n, w.N, m.Format(got.CPUs))
		}
	case AnyThread:
	}
}

// coresOfGroup returns the smallest number of cores for n CPUs in the innermost group that contains the
// chosen ones.
func coresOfGroup(m *topology.Machine, chosen, from topology.Set, n int) int {
	best := m.CountGroups(topology.CoreLevel, from)
	for _, l := range topology.Levels() {
		if m.CountGroups(l, chosen) == 1 {
			best = min(best, m.CountGroups(topology.CoreLevel, from.And(m.Groups(l)[m.GroupOf(l, chosen.First())])))
		} else {
			return 0 // several groups are filled one after another
		}
	}
	return min(best, n)
}

// A second, slow way to the same answer: it tries all subsets of the free CPUs, also on machines with
// several kinds of cores and shared pools. It compares them by the criteria in the order of
// docs/choosing.md: as few groups as possible at the outermost level that divides the machine; if one is
// enough, as few as possible at the next level, and so on; and if one innermost group is enough, as few
// cores as possible, no more whole cores split than necessary, and the fewest CPUs of shared pools. Over
// several packages it uses as few dies as possible or, if each package is one die, NUMA nodes.
func TestNoSubsetIsBetter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, 11)
		hybrid := rapid.IntRange(0, 3).Draw(t, "hybrid") == 0
		if hybrid {
			m = hybridOf(t, m)
		}
		w := Request{N: rapid.IntRange(1, 8).Draw(t, "n"), From: someOf(t, m, "from"), PreferEmptiest: rapid.Bool().Draw(t, "roomy")}
		tree := NewTree(m)
		if tree.uniform && rapid.Bool().Draw(t, "pools") { // among cores of different sizes, whole ones come first
			w.Shared = someOf(t, m, "shared").And(w.From)
		}
		if rapid.Bool().Draw(t, "memory") {
			w.Memory = uint64(rapid.IntRange(1, 20).Draw(t, "GiB")) << 30
			for range m.Nodes {
				w.FreeMemory = append(w.FreeMemory, uint64(rapid.IntRange(0, 20).Draw(t, "GiB left"))<<30)
			}
		}
		got, err := tree.Choose(w)
		if err != nil {
			return
		}
		mine := price(m, &w, tree.hybrid, got.CPUs)
		for mask := range uint64(1) << len(m.CPUs) {
			s := topology.Set{0: mask}
			if bits.OnesCount64(mask) != w.N || !w.From.Contains(s) {
				continue
			}
			if other := price(m, &w, tree.hybrid, s); less(other, mine) {
				t.Fatalf("%d of %s, pools on %s: chose %s at a cost of %v, though %s costs %v",
					w.N, m.Format(w.From), m.Format(w.Shared), m.Format(got.CPUs), mine, m.Format(s), other)
			}
		}
	})
}

// hybridOf makes the cores with one thread efficient ones.
func hybridOf(t *rapid.T, m *topology.Machine) *topology.Machine {
	l := topology.Layout{CPUs: m.CPUs, Nodes: m.Nodes}
	for i := range l.CPUs {
		if l.CPUs[i].Kind = topology.PerformanceCore; m.Groups(topology.CoreLevel)[m.GroupOf(topology.CoreLevel, i)].Len() == 1 {
			l.CPUs[i].Kind = topology.EfficiencyCore
		}
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// price counts, level by level, in how many groups some CPUs are, down to the first level with more than
// one; then the cores, the split cores, and CPUs of shared pools. Inside a NUMA node kinds of cores come
// first. For a single NUMA node it includes the distance of the memory.
func price(m *topology.Machine, w *Request, hybrid bool, s topology.Set) []int {
	var out []int
	for _, l := range []topology.Level{
		topology.PackageLevel, topology.DieLevel, topology.NodeLevel, topology.L3Level,
	} {
		if l == topology.L3Level {
			kinds, split := ofKinds(m, s)
			if out = append(out, kinds); kinds > 1 {
				return out
			}
			if hybrid {
				out = append(out, split, s.And(m.CPUsOfKind(topology.EfficiencyCore)).Len())
			}
		}
		n := m.CountGroups(l, s)
		out = append(out, n)
		if l == topology.NodeLevel && n == 1 {
			out = append(out, farMemory(m, w, s))
		}
		switch {
		case n == 1:
			continue
		case l == topology.PackageLevel && len(m.Groups(topology.DieLevel)) > len(m.Groups(l)):
			return append(out, m.CountGroups(topology.DieLevel, s))
		case l == topology.PackageLevel:
			return append(out, m.CountGroups(topology.NodeLevel, s))
		}
		return out
	}
	out = append(out, m.CountGroups(topology.CoreLevel, s))
	broken := 0
	for _, core := range m.Groups(topology.CoreLevel) {
		if both := s.And(core); w.From.Contains(core) && !both.Empty() && both != core {
			broken++
		}
	}
	return append(out, broken, s.And(w.Shared).Len())
}

// farMemory returns how much of the requested memory is not on the NUMA node of some CPUs, in MiB times the
// distance of the nearest nodes that have it.
func farMemory(m *topology.Machine, w *Request, s topology.Set) (far int) {
	if w.FreeMemory == nil {
		return 0
	}
	at := slices.IndexFunc(m.Nodes, func(n topology.Node) bool { return !n.CPUs.And(s).Empty() })
	order := make([]int, len(m.Nodes))
	for i := range order {
		order[i] = i
	}
	away := func(i int) int {
		if i == at {
			return 0
		}
		return m.Distance(at, i) - 10
	}
	slices.SortStableFunc(order, func(a, b int) int { return away(a) - away(b) })
	short := w.Memory
	for _, i := range order {
		some := min(short, w.FreeMemory[i])
		far, short = far+int(some>>20)*away(i), short-some
	}
	return far + int(short>>20)*(unreachable-localDistance)
}

// ofKinds returns of how many kinds the cores of some CPUs are, and how many cores are used in part.
func ofKinds(m *topology.Machine, s topology.Set) (kinds, split int) {
	for k := topology.PlainCore; k <= topology.EfficiencyCore; k++ {
		if !s.And(m.CPUsOfKind(k)).Empty() {
			kinds++
		}
	}
	for _, core := range m.Groups(topology.CoreLevel) {
		if both := s.And(core); !both.Empty() && both != core {
			split++
		}
	}
	return kinds, split
}

func less(a, b []int) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
