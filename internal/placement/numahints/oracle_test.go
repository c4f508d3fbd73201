package numahints

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// oracle is the kubelet's merge as the kubelet implements it: every combination of one hint of each
// resource.
func oracle(n int, resources []Resource, o Options) (best Hint) {
	s := &search{nodeCount: n, allNodes: AllNodes(n), options: o}
	var lists [][]Hint
	for _, r := range resources {
		switch {
		case r.Counts != nil && len(r.Counts.hintsOn(n)) == 0, r.Counts == nil && r.Hints != nil && len(r.Hints) == 0:
			lists = append(lists, []Hint{nilF})
		case r.Counts != nil:
			lists = append(lists, r.Counts.hintsOn(n))
		case r.Hints == nil:
			lists = append(lists, []Hint{nilT})
		default:
			lists = append(lists, r.Hints)
		}
	}
	if o.Policy == SingleNode {
		for i := range lists {
			var kept []Hint
			for _, h := range lists[i] {
				if h.Preferred && (h.Any || h.Nodes.Len() == 1) {
					kept = append(kept, h)
				}
			}
			lists[i] = kept
		}
	}
	target := s.targetSize(resources)
	var now *Hint
	var walk func(i int, chosen []Hint)
	walk = func(i int, chosen []Hint) {
		if i < len(lists) {
			for _, h := range lists[i] {
				walk(i+1, append(chosen, h))
			}
			return
		}
		merged := Hint{Nodes: s.allNodes, Preferred: true}
		var first *Hint
		for _, h := range chosen {
			merged.Preferred = merged.Preferred && h.Preferred
			if h.Any {
				continue
			}
			if first != nil && first.Nodes != h.Nodes {
				merged.Preferred = false
			}
			first = &h
			merged.Nodes &= h.Nodes
		}
		if s.isBetterHint(target, now, merged) {
			now = &merged
		}
	}
	walk(0, nil)
	switch {
	case o.Policy == SingleNode && (now == nil || !now.Preferred):
		return nilF
	case o.Policy == SingleNode && now.Nodes == s.allNodes:
		return nilT
	case now == nil:
		return Hint{Nodes: s.allNodes}
	}
	return *now
}

func amounts(t *rapid.T, n int, name string) []uint64 {
	return rapid.SliceOfN(rapid.Uint64Range(0, 6), n, n).Draw(t, name)
}

func resource(t *rapid.T, n, i int, most int) Resource {
	r := Resource{Name: []string{"cpu", "memory", "nic", "gpu"}[i]}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0: // no preference
	case 1, 2:
		mask := rapid.Custom(func(t *rapid.T) Hint {
			return Hint{Nodes: Mask(rapid.Uint64Range(1, uint64(AllNodes(n))).Draw(t, "set")), Preferred: rapid.Bool().Draw(t, "preferred")}
		})
		r.Hints = rapid.SliceOfN(mask, 0, most).Draw(t, "hints")
		if r.Hints == nil {
			r.Hints = []Hint{}
		}
		if rapid.IntRange(0, 7).Draw(t, "any") == 0 {
			r.Hints = append(r.Hints, Hint{Any: true, Preferred: rapid.Bool().Draw(t, "preferred any")})
		}
	default:
		c := &Counts{Capacity: amounts(t, n, "capacity"), Free: amounts(t, n, "used"), Need: rapid.Uint64Range(1, 16).Draw(t, "need")}
		for i := range c.Free {
			c.Free[i] = c.Capacity[i] - min(c.Capacity[i], c.Free[i])
		}
		r.Counts = c
	}
	return r
}

func check(t *rapid.T, n int, resources []Resource, apart []int) {
	o := Options{PreferClosest: rapid.Bool().Draw(t, "closest"), maxListedNodes: rapid.SampledFrom([]int{1, 8}).Draw(t, "written out up to"), MaxWork: 10_000_000}
	o.Distance = func(a, b int) int {
		if a == b {
			return 10
		}
		return apart[a*n+b]
	}
	for _, o.Policy = range []Policy{BestEffort, Restricted, SingleNode} {
		want, got := oracle(n, resources, o), Merge(n, resources, o)
		if got.Hint() != want || !got.Exact {
			t.Fatalf("%s: %+v, want %+v", o.Policy, got, want)
		}
		if admit := want.Preferred || o.Policy == BestEffort; got.Admitted != admit {
			t.Fatalf("%s: admitted %v", o.Policy, got.Admitted)
		}
	}
}

// TestOracle: the result equals the kubelet's, whether counts are written out or not.
func TestOracle(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ nodes, resources, hints int }{{4, 3, 5}, {3, 4, 4}, {5, 3, 4}, {6, 2, 12}, {8, 2, 12}, {1, 2, 2}} {
		t.Run(fmt.Sprintf("%d nodes, %d resources", size.nodes, size.resources), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				n := size.nodes
				var resources []Resource
				for i := range rapid.IntRange(0, size.resources).Draw(t, "resources") {
					resources = append(resources, resource(t, n, i, size.hints))
				}
				check(t, n, resources, rapid.SliceOfN(rapid.IntRange(10, 13), n*n, n*n).Draw(t, "apart"))
			})
		})
	}
}

// numericOracle tries every combination: whether one is valid, and the best number of preferred hints
// outside of align and of nodes.
func numericOracle(n int, resources []Resource, align map[string]bool) (valid bool, preferred, nodes int) {
	var walk func(i int, chosen []Hint)
	consider := func(chosen []Hint) {
		pref, most, alignedPreferred, hasAligned := 0, 0, false, false
		var first *Hint
		for i, h := range chosen {
			aligned := align[resources[i].Name]
			hasAligned = hasAligned || aligned
			switch {
			case h.Any && !h.Preferred:
				return
			case aligned:
				alignedPreferred = alignedPreferred || h.Preferred
			case h.Preferred:
				pref++
			}
			if h.Any {
				continue
			}
			most = max(most, h.Nodes.Len())
			if aligned && first != nil && first.Nodes != h.Nodes {
				return
			} else if aligned {
				first = &h
			}
			for _, other := range chosen[:i] {
				if both := other.Nodes & h.Nodes; !other.Any && both != h.Nodes && both != other.Nodes {
					return
				}
			}
		}
		if hasAligned && !alignedPreferred {
			return
		}
		if !valid || pref > preferred || pref == preferred && most < nodes {
			valid, preferred, nodes = true, pref, most
		}
	}
	walk = func(i int, chosen []Hint) {
		if i == len(resources) {
			consider(chosen)
			return
		}
		r, hints := resources[i], resources[i].Hints
		if r.Counts != nil {
			hints = r.Counts.hintsOn(n)
		} else if r.Hints == nil || anyPreferred(r.Hints) {
			hints = []Hint{nilT} // a resource without a preference is ignored
		}
		for _, h := range hints {
			walk(i+1, append(chosen, h))
		}
	}
	walk(0, nil)
	return valid, preferred, nodes
}

func anyPreferred(hints []Hint) bool {
	for _, h := range hints {
		if h.Any && h.Preferred {
			return true
		}
	}
	return false
}

func TestNumericOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const n = 4
		var resources []Resource
		for i := range rapid.IntRange(0, 3).Draw(t, "resources") {
			resources = append(resources, resource(t, n, i, 6))
		}
		valid, preferred, nodes := numericOracle(n, resources, map[string]bool{"cpu": true, "memory": true})
		got := Merge(n, resources, Options{Policy: Numeric, AlignedResources: []string{"cpu", "memory"}})
		if got.Admitted != valid || !got.Exact {
			t.Fatalf("%+v, want admitted %v", got, valid)
		}
		if !valid {
			return
		}
		p, m := 0, 0
		for i, h := range got.ResourceHints {
			if h.Preferred && i > 1 {
				p++
			}
			if !h.Any {
				m = max(m, h.Nodes.Len())
			}
		}
		if p != preferred || m != nodes {
			t.Fatalf("%+v: %d preferred on %d nodes, want %d on %d", got, p, m, preferred, nodes)
		}
	})
}

// TestSmallSetsFirst: the choice among small sets, where it counts, is the choice among all sets.
func TestSmallSetsFirst(t *testing.T) {
	t.Parallel()
	enough := 0
	one := func(t *rapid.T) {
		n := rapid.IntRange(smallSetSize+1, exhaustiveNodes).Draw(t, "nodes")
		var resources []Resource
		for i := range rapid.IntRange(1, 4).Draw(t, "resources") {
			if r := resource(t, n, i, 6); (r.Counts == nil || r.Counts.fits(AllNodes(n))) && (r.Hints == nil || len(r.Hints) > 0) {
				resources = append(resources, r)
			}
		}
		o := Options{Policy: Numeric, AlignedResources: []string{"cpu", "memory"}, maxListedNodes: exhaustiveNodes, PreferClosest: rapid.Bool().Draw(t, "closest")}
		o.Distance = func(a, b int) int { return 10 + (a ^ b) }
		choice := func() *chains {
			return &chains{search: &search{nodeCount: n, allNodes: AllNodes(n), options: o, workLeft: 10_000_000}, choices: make([]Hint, len(resources))}
		}
		first, all := choice(), choice()
		if !first.chooseSmall(resources) {
			return
		}
		enough++
		if !all.listItems(resources, n) || !all.choose(n) || !slices.Equal(first.choices, all.choices) {
			t.Fatalf("%+v, of all sets %+v", first.choices, all.choices)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			one(t)
		}
	})
	if enough == 0 {
		t.Fatal("smallSetSize sets were never enough")
	}
}
