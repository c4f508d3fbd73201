package demotion_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

const mib = 1 << 20

// node is a node with two fast memory nodes, 0 and 1, and a slow one near each, 2 and 3.
type node struct {
	kernel *kernel.Cgroups
	d      *demotion.Demoter
	asked  int64 // bytes of the last run
	now    time.Time
	all    map[string]demotion.Container
}

type failer interface{ Fatal(args ...any) }

func newNode(t failer, v cgroup.Version, set kernel.Tiers, release string) *node {
	n := &node{now: time.Unix(1, 0), all: map[string]demotion.Container{}}
	var err error
	if n.kernel, err = kernel.NewCgroups(v, "0-7", "0-3"); err == nil {
		err = n.kernel.SetRelease(release)
	}
	if err != nil {
		t.Fatal(err)
	}
	distance := func(a, b int) int {
		switch {
		case a == b:
			return 10
		case a%2 == b%2:
			return 17
		}
		return 28
	}
	var nodes []kernel.TierNode
	for id, tier := range []int{4, 4, 22, 22} {
		tn := kernel.TierNode{ID: id, Tier: tier, Size: 1024 * mib, Distance: map[int]int{}}
		for other := range 4 {
			tn.Distance[other] = distance(id, other)
		}
		nodes = append(nodes, tn)
	}
	n.kernel.SetTiers(set, nodes)
	tree := &cgroup.Tree{FS: n.kernel, Version: v}
	n.d = demotion.New(demotion.Dependencies{
		Files: n.kernel.TierFiles(), Tree: tree, Distance: distance, Now: func() time.Time { return n.now },
		Reclaim: func(dir string, bytes int64) error { n.asked += bytes; return tree.ReclaimAnonymous(dir, bytes) },
	})
	return n
}

// add adds a container with memory nodes.
func (n *node) add(t failer, id, mems string, fast, slow []int, memory map[int]kernel.NodeMemory) {
	err := n.kernel.MkdirRunc(id)
	file := id + "/cpuset.mems"
	if v1 := "cpuset/" + file; err == nil {
		if err = n.kernel.WriteFile(file, []byte(mems)); err != nil {
			err = n.kernel.WriteFile(v1, []byte(mems))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	n.all[id] = demotion.Container{Dir: id, Fast: fast, Slow: slow}
	for node, m := range memory {
		if err := n.kernel.SetNodeMemory(id, node, m); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) run(o demotion.Options) demotion.Report {
	n.asked, n.now = 0, n.now.Add(demotion.Interval)
	return n.d.Run(o, n.all)
}

// TestRun: the slow part of a container grows to what is configured, by no more than the limit in each run, and page
// cache in fast memory stays.
func TestRun(t *testing.T) {
	t.Parallel()
	n := newNode(t, cgroup.V2, kernel.Tiers{Demotion: true}, "6.16")
	n.add(t, "a", "0,2", []int{0}, []int{2}, map[int]kernel.NodeMemory{0: {Anonymous: 200 * mib, PageCache: 50 * mib}})
	o := demotion.Options{SlowPercent: 30, BytesPerSecond: 25 * mib}
	for _, want := range []int64{25, 50, 60, 60} {
		r := n.run(o)
		got := n.kernel.NodeMemory("a")
		if d := cmp.Diff(map[int]kernel.NodeMemory{0: {Anonymous: (200 - want) * mib, PageCache: 50 * mib}, 1: {}, 2: {Anonymous: want * mib}, 3: {}}, got); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(map[string]demotion.Result{"a": {Anonymous: 200 * mib, Slow: want * mib, Moved: want * mib}}, r.Containers); d != "" || r.Reason != "" || r.Moved != want*mib {
			t.Fatalf("%+v: %s", r, d)
		}
	}
	if n.asked != 0 || n.kernel.LostBytes() != 0 {
		t.Errorf("asked for %d bytes more, %d are lost", n.asked, n.kernel.LostBytes())
	}
	delete(n.all, "a")
	if r := n.run(o); len(r.Containers) != 0 || r.Moved != 60*mib {
		t.Errorf("an ended container is still known: %+v", r)
	}
	n.d.Stop()
	if r := n.d.Report(); r.Enabled || r.Moved != 60*mib {
		t.Errorf("stopped: %+v", r)
	}
}

// TestLeftAlone: where reclaim would lose a page, it is not asked for, and the report says why.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	fast := map[int]kernel.NodeMemory{0: {Anonymous: 200 * mib, PageCache: 50 * mib}}
	with := func(node int, m kernel.NodeMemory) map[int]kernel.NodeMemory {
		all := maps.Clone(fast)
		all[node] = m
		return all
	}
	for name, c := range map[string]struct {
		version                 cgroup.Version
		tiers                   kernel.Tiers
		release                 string
		mems                    string
		fast                    []int
		slow                    []int
		memory                  map[int]kernel.NodeMemory
		swapMax                 string
		reason, containerReason string
		asks                    bool // the kernel is asked, and refuses
	}{
		"demotion is off":                {reason: "demotion is off: /sys/kernel/mm/numa/demotion_enabled is false"},
		"cgroup v1":                      {version: cgroup.V1, tiers: kernel.Tiers{Demotion: true}, reason: "cgroup v1 has no memory.reclaim"},
		"a kernel that takes page cache": {tiers: kernel.Tiers{Demotion: true}, release: "6.12", reason: "the kernel cannot reclaim anonymous memory without page cache (Linux 6.16 can)", asks: true},
		"page cache in slow memory":      {tiers: kernel.Tiers{Demotion: true}, memory: with(2, kernel.NodeMemory{PageCache: mib}), containerReason: "the kernel would drop page cache: the container has 1048576 bytes"},
		"page cache elsewhere":           {tiers: kernel.Tiers{Demotion: true}, memory: with(3, kernel.NodeMemory{PageCache: mib}), containerReason: "the kernel would drop page cache"},
		"swap":                           {tiers: kernel.Tiers{Demotion: true, Swap: true}, memory: with(2, kernel.NodeMemory{Anonymous: mib}), containerReason: "the kernel would swap pages"},
		"swap that it may not use":       {tiers: kernel.Tiers{Demotion: true, Swap: true}, swapMax: "0", asks: true},
		"a slow node far away":           {tiers: kernel.Tiers{Demotion: true}, mems: "0,3", slow: []int{3}, containerReason: "the kernel demotes pages from memory node 0 to node 2, which the container may not use"},
		"no slower node":                 {tiers: kernel.Tiers{Demotion: true}, mems: "2-3", fast: []int{2}, slow: []int{3}, memory: map[int]kernel.NodeMemory{2: {Anonymous: 200 * mib}}, containerReason: "no memory node is slower than memory node 2"},
		"a full slow node":               {tiers: kernel.Tiers{Demotion: true}, memory: with(2, kernel.NodeMemory{Anonymous: 950 * mib}), containerReason: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.version == 0 {
				c.version = cgroup.V2
			}
			pick := func(text, other string) string {
				if text == "" {
					return other
				}
				return text
			}
			n := newNode(t, c.version, c.tiers, pick(c.release, "6.16"))
			if c.memory == nil {
				c.memory = fast
			}
			if c.fast == nil {
				c.fast = []int{0}
			}
			if c.slow == nil {
				c.slow = []int{2}
			}
			n.add(t, "a", pick(c.mems, "0,2"), c.fast, c.slow, c.memory)
			if c.swapMax != "" {
				if err := n.kernel.WriteFile("a/memory.swap.max", []byte(c.swapMax)); err != nil {
					t.Fatal(err)
				}
			}
			o := demotion.Options{SlowPercent: 50, BytesPerSecond: 100 * mib}
			r := n.run(o)
			if !strings.Contains(r.Reason, c.reason) || (r.Reason == "") != (c.reason == "") || !strings.Contains(r.Containers["a"].Reason, c.containerReason) || (r.Containers["a"].Reason == "") != (c.containerReason == "") {
				t.Errorf("%+v, want reason %q, and %q of the container", r, c.reason, c.containerReason)
			}
			if (n.asked > 0) != c.asks || n.kernel.LostBytes() > 0 {
				t.Errorf("asked for %d bytes, %d are lost", n.asked, n.kernel.LostBytes())
			}
			if r := n.run(o); c.release != "" && (n.asked > 0 || r.Reason == "") {
				t.Errorf("asked again, although the kernel refused: %+v", r)
			}
		})
	}
}

// TestFull: a slow node that is almost full gets no more.
func TestFull(t *testing.T) {
	t.Parallel()
	n := newNode(t, cgroup.V2, kernel.Tiers{Demotion: true}, "6.16")
	n.add(t, "other", "2", nil, []int{2}, map[int]kernel.NodeMemory{2: {Anonymous: 950 * mib}})
	delete(n.all, "other")
	n.add(t, "a", "0,2", []int{0}, []int{2}, map[int]kernel.NodeMemory{0: {Anonymous: 100 * mib}})
	if r := n.run(demotion.Options{SlowPercent: 50, BytesPerSecond: 100 * mib}); n.asked > 0 || !strings.Contains(r.Containers["a"].Reason, "almost full") {
		t.Errorf("asked for %d bytes: %+v", n.asked, r)
	}
}

// TestTurns: one run reads a part of many containers, the next ones the others.
func TestTurns(t *testing.T) {
	t.Parallel()
	n := newNode(t, cgroup.V2, kernel.Tiers{Demotion: true}, "6.16")
	const many = 100
	for i := range many {
		n.add(t, fmt.Sprintf("c%03d", i), "0,2", []int{0}, []int{2}, map[int]kernel.NodeMemory{0: {Anonymous: 4 * mib}})
	}
	for runs := 1; ; runs++ {
		r := n.run(demotion.Options{SlowPercent: 50, BytesPerSecond: 512 * mib})
		if r.Moved == many*2*mib {
			if runs != 4 {
				t.Errorf("took %d runs", runs)
			}
			return
		}
		if runs > many {
			t.Fatalf("%d bytes after %d runs", r.Moved, runs)
		}
	}
}

// TestNothingIsLost draws nodes and containers: no run loses a page, or moves more than the limit from or to a node.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		set := kernel.Tiers{Demotion: rapid.IntRange(0, 3).Draw(rt, "demotion") > 0, Swap: rapid.Bool().Draw(rt, "swap")}
		n := newNode(rt, cgroup.V2, set, rapid.SampledFrom([]string{"6.1", "6.12", "6.16", "6.18"}).Draw(rt, "release"))
		amount := rapid.Map(rapid.IntRange(0, 40), func(i int) int64 { return max(int64(i)-20, 0) * mib })
		for i := range rapid.IntRange(1, 4).Draw(rt, "containers") {
			c := rapid.SampledFrom([]struct {
				mems       string
				fast, slow []int
			}{{"0,2", []int{0}, []int{2}}, {"0-3", []int{0, 1}, []int{2, 3}}, {"0,3", []int{0}, []int{3}}, {"1,3", []int{1}, []int{3}}, {"0-2", []int{0, 1}, []int{2}}}).Draw(rt, "nodes")
			memory := map[int]kernel.NodeMemory{}
			for node := range 4 {
				memory[node] = kernel.NodeMemory{Anonymous: amount.Draw(rt, "anonymous"), PageCache: amount.Draw(rt, "cache")}
			}
			id := fmt.Sprintf("c%d", i)
			n.add(rt, id, c.mems, c.fast, c.slow, memory)
			if rapid.Bool().Draw(rt, "no swap") {
				if err := n.kernel.WriteFile(id+"/memory.swap.max", []byte("0")); err != nil {
					rt.Fatal(err)
				}
			}
		}
		o := demotion.Options{SlowPercent: rapid.IntRange(1, 95).Draw(rt, "percent"), BytesPerSecond: rapid.Int64Range(1, 30).Draw(rt, "limit") * mib}
		for range 5 {
			before := n.onNodes()
			n.run(o)
			for node, bytes := range n.onNodes() {
				if moved := bytes - before[node]; max(moved, -moved) > o.BytesPerSecond {
					rt.Fatalf("%d bytes moved on node %d, the limit is %d", moved, node, o.BytesPerSecond)
				}
			}
			if lost := n.kernel.LostBytes(); lost > 0 {
				rt.Fatalf("%d bytes are lost", lost)
			}
		}
	})
}

// onNodes returns the anonymous memory on each node.
func (n *node) onNodes() map[int]int64 {
	sum := map[int]int64{}
	for id := range n.all {
		for node, m := range n.kernel.NodeMemory(id) {
			sum[node] += m.Anonymous
		}
	}
	return sum
}
