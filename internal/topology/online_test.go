package topology_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestWithOnline takes CPUs of a machine offline and online. Sets keep their meaning; lists are parsed like
// the kernel's.
func TestWithOnline(t *testing.T) {
	t.Parallel()
	var cpus []topology.CPU
	for id := range 4 {
		cpus = append(cpus, topology.CPU{ID: id, Core: id / 2, Node: id / 2})
	}
	m, err := topology.Build(topology.Layout{CPUs: cpus, Offline: []int{4}})
	if err != nil {
		t.Fatal(err)
	}
	all := m.Online()
	less, unknown := m.WithOnline([]int{0, 1, 3})
	for what, pair := range map[string][2]any{
		"unknown":         {len(unknown), 0},
		"online":          {less.Format(less.Online()), "0-1,3"},
		"a set from then": {less.Format(all), "0-3"},
		"offline":         {less.Offline, []int{2, 4}},
		"a node":          {less.Format(less.Nodes[1].CPUs), "3"},
		"a list":          {less.Format(less.OnlineOf("1-3")), "1,3"},
		"the one before":  {m.Format(m.Nodes[1].CPUs) + " " + m.Format(m.Online()), "2-3 0-3"},
	} {
		if d := cmp.Diff(pair[1], pair[0]); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	if _, err := less.ParseCPUs("2"); err == nil {
		t.Error("an offline CPU is taken for one that can be used")
	}
	back, unknown := less.WithOnline([]int{0, 1, 2, 3, 4})
	if d := cmp.Diff([]int{4}, unknown); d != "" || back.Online() != all || len(back.Offline) != 0 {
		t.Errorf("back: unknown %v, online %s, offline %v", unknown, back.Format(back.Online()), back.Offline)
	}
}
