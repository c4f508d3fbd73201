package choose

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
	"pgregory.net/rapid"
)

const gib = 1 << 30

// TestBind has the hints that Katalyst's unit tests prefer (katalyst-core, 2026-04, cpu dynamicpolicy
// hints). The agent chooses one of them.
func TestBind(t *testing.T) {
	for _, c := range []struct {
		name, machine, from string
		want                NodeSetRequest
		nodes, err, why     string
	}{
		{name: "H2: two CPUs of any node", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 2}, nodes: "[0]"},
		{name: "H2: the roomiest", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 2, PreferEmptiest: true}, nodes: "[2]"},
		{name: "H4: nearly everything", machine: "2s x 6n x 16c x 2t", from: "2-383", want: NodeSetRequest{N: 380}, nodes: "[0 1 2 3 4 5 6 7 8 9 10 11]"},
		{name: "H11: a socket has enough", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 7, FewestPackages: true}, nodes: "[2 3]"},
		{name: "H11: across sockets, where a socket is the rule", machine: t16, from: "1,3,6-7,9,11,14-15", want: NodeSetRequest{N: 6, FewestPackages: true}, err: "no more sockets than needed"},
		{name: "H14: whole cores", machine: t16, from: "1-7,10-15", want: NodeSetRequest{N: 4, Cores: WholeCores}, nodes: "[1]"},
		{name: "H16: evenly over four", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 12, Count: 4, Even: true}, nodes: "[0 1 2 3]"},
		{name: "H18: evenly and whole cores", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 8, Count: 2, Even: true, Cores: WholeCores}, nodes: "[2 3]"},
		{name: "A19: evenly and whole cores of an odd part", machine: t16, from: "4-7,12-15", want: NodeSetRequest{N: 6, Count: 2, Even: true, Cores: WholeCores}, err: "exactly 2 nodes, evenly, whole cores"},
		{name: "H23: two nodes for what one would hold", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 2, Count: 2}, nodes: "[0 1]"},
		{name: "H19: two whole nodes for four", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 4, Count: 2, WholeNodes: true}, nodes: "[0 1]", why: "the fewest CPUs left"},
		{name: "H24: which node", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 2, AllowedNodes: []int{1}, Count: 1}, nodes: "[1]"},
		{name: "H27: nodes there are none of", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 2, AllowedNodes: []int{0, 2, 4}, Count: 3}, err: "7 are available on 2 NUMA nodes"},
		{name: "more than there is", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 15}, err: "have 15 CPUs (as few nodes as possible): 14 are available on 4 NUMA nodes, at most 4 on one"},
		{name: "a socket rather than nodes apart", machine: t16, from: "0-15", want: NodeSetRequest{N: 6}, nodes: "[0 1]"},
		{name: "near a device", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 2, Near: topology.SetOf(6), NearName: "its devices"}, nodes: "[3]"},
		{name: "near a device, and another for want of room", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 6, Near: topology.SetOf(6)}, nodes: "[2 3]"},
		{name: "near devices at two nodes, where one holds it", machine: t16, from: "1,3-15", want: NodeSetRequest{N: 2, Near: topology.SetOf(2, 6)}, nodes: "[1]"},
		{name: "near devices apart", machine: t16, from: "0-15", want: NodeSetRequest{N: 6, Near: topology.SetOf(1, 6)}, nodes: "[0 3]"},
		{name: "memory is left", machine: "4n x 2c x 2t", from: "0-15", want: NodeSetRequest{N: 2, Memory: 60 * gib, FreeMemory: []uint64{0, 12 * gib, 64 * gib, 20 * gib}}, nodes: "[2]", why: "the nearest memory"},
		{name: "the least memory elsewhere", machine: t16, from: "0-15", want: NodeSetRequest{N: 2, Memory: 16 * gib, FreeMemory: []uint64{4 * gib, 8 * gib, 12 * gib, 8 * gib}}, nodes: "[2]", why: "the nearest memory"},
		{name: "nothing tells of memory", machine: t16, from: "0-15", want: NodeSetRequest{N: 2, Memory: 16 * gib}, nodes: "[0]", why: "the lowest node ids"},
		{name: "devices before memory", machine: t16, from: "0-15", want: NodeSetRequest{N: 2, Near: topology.SetOf(0), Memory: gib, FreeMemory: []uint64{0, gib, gib, gib}}, nodes: "[0]", why: "the most nodes near "},
		{name: "memory of two nodes", machine: t16, from: "0-15", want: NodeSetRequest{N: 6, Memory: 16 * gib, FreeMemory: []uint64{4 * gib, 4 * gib, 8 * gib, 8 * gib}}, nodes: "[2 3]", why: "the nearest memory"},
		{
			name: "one L3 cache, and not a part of four", machine: "2s x 4l x 4c x 2t", from: "0,32,4,36,8,40,12,44,16-20,48-52", want: NodeSetRequest{N: 8}, nodes: "[1]",
			why: "the fewest L3 caches",
		},
		{name: "a whole core, and not two halves", machine: "2s x 4c x 2t", from: "0-1,4-6,12-14", want: NodeSetRequest{N: 2}, nodes: "[1]", why: "the fewest cores"},
		{name: "four halves, where these are to be spread", machine: "2s x 4c x 2t", from: "0-3,4-5,12-13", want: NodeSetRequest{N: 4, Cores: SpreadThreads}, nodes: "[0]", why: "the most cores"},
		{
			name: "what is preferred", machine: "2s x 4c x 2t", from: "0-3,4-7,12-15", why: "the most important preferences met", nodes: "[1]",
			want: NodeSetRequest{N: 2, Preferences: []Preference{{Name: "x", CPUs: topology.SetOf(0, 1, 2), Avoid: true}}},
		},
		{name: "whole cores, where these are preferred", machine: "2s x 4c x 2t", from: "0-3,8,4-7,12-15", want: NodeSetRequest{N: 4, Cores: PreferWhole}, nodes: "[1]", why: "the most important preferences met"},
		{
			name: "what pools need there", machine: "2s x 4c x 2t", from: "0-1,8-9,4-7,12-15", nodes: "[1]", why: "",
			want: NodeSetRequest{N: 2, Reserve: []NodeReserve{{Node: 0, CPUs: topology.SetOf(0, 1, 8, 9), N: 3}}},
		},
		{name: "CPUs of shared pools", machine: "2s x 4c x 2t", from: "0-15", want: NodeSetRequest{N: 2, Shared: topology.SetOf(0, 1, 2, 3, 8, 9, 10, 11)}, nodes: "[1]", why: "the fewest CPUs of shared pools"},
		{name: "a core less on two nodes", machine: "2s x 2n x 2c x 2t", from: "0-4,5,8-12,14", want: NodeSetRequest{N: 5}, nodes: "[0 1]", why: "the fewest sockets"},
		{name: "many sets", machine: "8s x 8n x 2c x 2t", from: "0-255", want: NodeSetRequest{N: 30}, nodes: "[0 1 2 3 4 5 6 7]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine(t, c.machine)
			c.want.From = cpus(t, m, c.from)
			ids, why, err := NewTree(m).ChooseNodeSet(c.want)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("nodes %v, error %v; want %q", ids, err, c.err)
				}
			case err != nil || fmt.Sprint(ids) != c.nodes || len(why) != 1 || c.why != "" && why[0].Rule != c.why:
				t.Errorf("nodes %v by %v, error %v; want %s", ids, why, err, c.nodes)
			}
		})
	}
}

// TestBindAgainstOracle: on small machines no set of nodes is better, according to a slow search that
// shares no code with the real one.
func TestBindAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := oddMachine(t, 24)
		if len(m.Nodes) > 6 {
			return
		}
		if rapid.Bool().Draw(t, "distances") {
			m = distant(t, m)
		}
		from := topology.SetOf(rapid.SliceOf(rapid.IntRange(0, len(m.CPUs)-1)).Draw(t, "from")...)
		w := NodeSetRequest{
			N: rapid.IntRange(1, 12).Draw(t, "n"), From: from, Count: rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "count"),
			Near:           someOf(t, m, "near"),
			PreferEmptiest: rapid.Bool().Draw(t, "roomy"), FewestPackages: rapid.IntRange(0, 3).Draw(t, "by socket") == 0,
		}
		w.Even = w.Count > 1 && rapid.Bool().Draw(t, "even")
		if rapid.Bool().Draw(t, "memory") {
			w.Memory = uint64(rapid.IntRange(1, 40).Draw(t, "GiB")) << 30
			for range m.Nodes {
				w.FreeMemory = append(w.FreeMemory, uint64(rapid.IntRange(0, 20).Draw(t, "GiB left"))<<30)
			}
		}
		ids, why, err := NewTree(m).ChooseNodeSet(w)
		var best []int // nodes, nodes far from the preferred CPUs, packages, memory elsewhere, distance between the nodes
		var of []int
		hold := map[int]int{} // the number of sets with equally many nodes
		for mask := 1; mask < 1<<len(m.Nodes); mask++ {
			cost, ok := nodeCost(m, w, mask)
			if !ok {
				continue
			}
			if hold[cost[0]]++; best == nil || slices.Compare(cost, best) < 0 {
				best = cost
				of = membersOf(m, mask)
			}
		}
		switch {
		case best == nil && err == nil:
			t.Fatalf("%+v: nothing holds it, and %v were chosen", w, ids)
		case best != nil && err != nil:
			t.Fatalf("%+v: %v, though %v hold it", w, err, of)
		case best == nil:
			return
		}
		mask := 0
		for i, n := range m.Nodes {
			if slices.Contains(ids, n.ID) {
				mask |= 1 << i
			}
		}
		if cost, ok := nodeCost(m, w, mask); !ok || slices.Compare(cost, best) != 0 {
			t.Fatalf("%+v: %v were chosen at a cost of %v, though %v cost %v", w, ids, cost, of, best)
		}
		lost := 0
		for _, a := range why[0].Eliminations {
			lost += a.N
		}
		if why[0].Candidates != hold[best[0]] || lost != why[0].Candidates-1 {
			t.Fatalf("%+v: %v is said, of %d that hold it, %d of them lost", w, why[0], hold[best[0]], lost)
		}
	})
}

// distant is a machine whose firmware reports the distances of its NUMA nodes.
func distant(t *rapid.T, m *topology.Machine) *topology.Machine {
	l := topology.Layout{CPUs: m.CPUs, Nodes: slices.Clone(m.Nodes)}
	for i := range l.Nodes {
		l.Nodes[i].Distance = make([]int, len(l.Nodes))
		for j := range i {
			d := rapid.IntRange(11, 13).Draw(t, "distance")
			l.Nodes[i].Distance[j], l.Nodes[j].Distance[i] = d, d
		}
		l.Nodes[i].Distance[i] = 10
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// memoryAway returns how many GiB are not on the given nodes, times the additional distance; each GiB is
// taken from the nearest node that has one.
func memoryAway(m *topology.Machine, w NodeSetRequest, mask int) (away int) {
	left := slices.Clone(w.FreeMemory)
	for range w.Memory >> 30 {
		best, way := -1, unreachable
		for i := range left {
			for j := range left {
				if mask>>j&1 == 1 && left[i] > 0 && (best < 0 || m.Distance(j, i) < way) {
					best, way = i, m.Distance(j, i)
				}
			}
		}
		if best >= 0 {
			left[best] -= 1 << 30
		}
		away += way - localDistance
	}
	return away
}

func membersOf(m *topology.Machine, mask int) (ids []int) {
	for i, n := range m.Nodes {
		if mask>>i&1 == 1 {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func nodeCost(m *topology.Machine, w NodeSetRequest, mask int) (cost []int, ok bool) {
	k := bits.OnesCount(uint(mask))
	packages, have := map[int]bool{}, 0
	way, far := 0, k
	for i, n := range m.Nodes {
		if mask>>i&1 == 0 {
			continue
		}
		free, near := 0, 0
		for _, c := range n.CPUs.Members() {
			packages[m.CPUs[c].Package] = true
			if w.Near.Has(c) {
				near = 1
			}
			if w.From.Has(c) {
				free++
			}
		}
		far -= near
		if free == 0 || w.Even && free*k < w.N {
			return nil, false
		}
		have += free
		for j := range i {
			if mask>>j&1 == 1 {
				way += m.Distance(j, i)
			}
		}
	}
	socket := map[int]int{}
	largest := 0
	for _, c := range m.CPUs {
		socket[c.Package]++
		largest = max(largest, socket[c.Package])
	}
	if have < w.N || w.Count > 0 && k != w.Count || w.Even && w.N%k != 0 || w.FewestPackages && len(packages) > (w.N+largest-1)/largest {
		return nil, false
	}
	return []int{k, far, len(packages), memoryAway(m, w, mask), way}, true
}
