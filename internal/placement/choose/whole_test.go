package choose

import (
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// TestWholeCoresOfCaches: if no L3 cache of a hybrid processor is enough, whole cores of several caches are
// preferred over the rest of cores of which others have a thread.
func TestWholeCoresOfCaches(t *testing.T) {
	t.Parallel()
	var all []topology.CPU // six performance cores, two caches, and an efficient core
	for i := range 13 {
		c := topology.CPU{ID: i, Core: i / 2, L3: i / 6, Kind: topology.PerformanceCore}
		if i == 12 {
			c.L3, c.Kind = 1, topology.EfficiencyCore
		}
		all = append(all, c)
	}
	m, err := topology.New(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, from, cpus string
		n                int
	}{
		{name: "a whole core of each", from: "0,2,4-5,6-7", n: 4, cpus: "4-7"},
		{name: "an odd number, beside what one gives", from: "0,2,4-5,6-7", n: 5, cpus: "0,4-7"},
		{name: "more than whole cores", from: "0,2,4-5,6-7,8", n: 6, cpus: "0,2,4-7"},
		{name: "all of one, and a whole one", from: "0-5,6-7,8", n: 8, cpus: "0-7"},
		{name: "one of each", from: "0,6", n: 2, cpus: "0,6"},
		{name: "one cache, where it has no fewer whole ones", from: "0-5,6-7", n: 6, cpus: "0-5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewTree(m).Choose(Request{N: c.n, From: cpus(t, m, c.from)})
			if err != nil || got.CPUs != cpus(t, m, c.cpus) {
				t.Errorf("%s, %v, by %v; want %s", m.Format(got.CPUs), err, got.Why, c.cpus)
			}
		})
	}
}

// TestFewestDiesOfPackages: the dies of packages are also counted if NUMA nodes are inside them: fewer
// nodes do not mean fewer dies.
func TestFewestDiesOfPackages(t *testing.T) {
	t.Parallel()
	var all []topology.CPU
	for i, where := range [][3]int{ // package, die, NUMA node
		{0, 0, 0}, {0, 0, 0}, {1, 1, 3}, {1, 1, 3}, {1, 0, 4}, {1, 0, 4}, {0, 0, 2}, {1, 1, 5}, {0, 1, 1}, {1, 0, 4},
	} {
		all = append(all, topology.CPU{ID: i, Core: i, Package: where[0], Die: where[1], Node: where[2]})
	}
	m, err := topology.New(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewTree(m).Choose(Request{N: 6, From: cpus(t, m, "0-7")})
	if err != nil || m.Format(got.CPUs) != "0-3,6-7" {
		t.Errorf("%s, %v, by %v", m.Format(got.CPUs), err, got.Why)
	}
}
