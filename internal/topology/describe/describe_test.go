package describe

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/clock"
)

func TestParse(t *testing.T) {
	type node struct {
		ID     int
		CPUs   string
		Memory uint64
	}
	tests := []struct {
		text  string
		nodes []node
		some  []topology.CPU
	}{
		{"2c", []node{{0, "0-1", DefaultMemory}}, []topology.CPU{{ID: 1, Core: 1}}},
		{"2c x 2t", []node{{0, "0-3", DefaultMemory}}, []topology.CPU{{ID: 2, Core: 0}, {ID: 3, Core: 1}}},
		{"2s", []node{{0, "0", DefaultMemory}, {1, "1", DefaultMemory}}, []topology.CPU{{ID: 1, Package: 1, Node: 1}}},
		{
			"2s x 2n x 2c x 2t, 64GiB/node",
			[]node{{0, "0-1,8-9", 64 << 30}, {1, "2-3,10-11", 64 << 30}, {2, "4-5,12-13", 64 << 30}, {3, "6-7,14-15", 64 << 30}},
			[]topology.CPU{
				{ID: 3, Core: 3, Package: 0, Node: 1},
				{ID: 4, Core: 0, Package: 1, Node: 2},
				{ID: 15, Core: 3, Package: 1, Node: 3},
			},
		},
		{
			"1s x 2d x 1n x 2l x 1c x 2t",
			[]node{{0, "0-1,4-5", DefaultMemory}, {1, "2-3,6-7", DefaultMemory}},
			[]topology.CPU{{ID: 3, Core: 3, Die: 1, Node: 1, L3: 3}, {ID: 6, Core: 2, Die: 1, Node: 1, L3: 2}},
		},
		{"1s×1n×1c×1t,512MiB/node", []node{{0, "0", 512 << 20}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			m, err := Parse(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			var got []node
			for _, n := range m.Nodes {
				got = append(got, node{n.ID, m.Format(n.CPUs), n.Memory})
			}
			if d := cmp.Diff(tt.nodes, got); d != "" {
				t.Error(d)
			}
			for _, want := range tt.some {
				if d := cmp.Diff(want, m.CPUs[want.ID]); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":               "the description is empty",
		" , 1GiB/node":   "the description is empty",
		"8":              `"8" is none of s (sockets)`,
		"8c x":           "missing before or after an x",
		"8c x 2s":        "out of order",
		"8c x 8c":        "repeated",
		"0c":             "not a number from 1",
		"-1c":            "not a number from 1",
		"+1c":            "not a number from 1",
		"c":              "not a number from 1",
		"9999999999999c": "not a number from 1",
		"1000s x 1000c":  "the description has 1000000 CPUs; at most 1024 are supported",
		"1024s x 1024d x 1024n x 1024l x 1024c x 1024t": "at most 1024 are supported",
		"2c, 64GiB":           "write the memory per node",
		"2c, 64GB/node":       "none of the units",
		"2c, 0GiB/node":       "want a positive integer",
		"2c, 9999999TiB/node": "want a positive integer",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to contain %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"2s x 2n x 8c x 2t, 64GiB/node", "2c", "x", "1s×1t", "1c,1KiB/node", "1024t"} {
		f.Add(s)
	}
	f.Add(strings.Repeat("2s x ", 40_000))
	f.Add(strings.Repeat("2c,", 60_000))
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		m, err := Parse(text)
		if err != nil {
			return
		}
		if n := m.Online().Len(); n < 1 || n > topology.MaxCPUs {
			t.Fatalf("%d CPUs", n)
		}
		var all topology.Set
		for _, n := range m.Nodes {
			if !all.And(n.CPUs).Empty() {
				t.Fatalf("node %d shares a CPU with another", n.ID)
			}
			if n.Memory == 0 || n.CPUs.Empty() {
				t.Fatalf("node %d is bare: %+v", n.ID, n)
			}
			all = all.Union(n.CPUs)
		}
		if all != m.Online() {
			t.Fatal("nodes do not make up the machine")
		}
	})
}

// TestPages: each node has the huge pages of the text, and without a text none.
func TestPages(t *testing.T) {
	m, err := Parse("1s x 2n x 2c, 8GiB/node, 2 x 1GiB pages/node, 16 x 2MiB pages/node")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range m.Nodes {
		if len(n.HugePages) != 2 || n.HugePages[1<<30] != 2 || n.HugePages[2<<20] != 16 || n.Memory != 8<<30 {
			t.Errorf("node %d has %d bytes and huge pages %v", n.ID, n.Memory, n.HugePages)
		}
	}
	for _, bad := range []string{"1c, 2 x 1GiB pages/node, 8GiB/node", "1c, 8GiB/node, 8GiB/node", "1c, 8GiB/node, x pages/node", "1c, 8GiB/node, 1 x 1GB pages/node"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) has no error", bad)
		}
	}
}

// TestPresent: a machine of high ids, as the one of nri-plugins' tests (s8c4k), and lists that are wrong.
func TestPresent(t *testing.T) {
	m, err := ParsePresent("8s x 512c, 2GiB/node", "0-2,511,1535,4095")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Format(m.Online()); got != "0-2,511,1535,4095" {
		t.Errorf("CPUs %s", got)
	}
	var places [][2]int
	for _, c := range m.CPUs {
		places = append(places, [2]int{c.Package, c.Node})
	}
	if want := [][2]int{{0, 0}, {0, 0}, {0, 0}, {0, 0}, {2, 2}, {7, 7}}; !slices.Equal(places, want) || len(m.Nodes) != 3 {
		t.Errorf("packages and nodes %v, want %v; %d nodes", places, want, len(m.Nodes))
	}
	for present, want := range map[string]string{"4": "the description has only CPUs 0-3, and no CPU 4", "x": "present CPUs", "": ""} {
		if _, err := ParsePresent("4c", present); want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", present, err, want)
		}
	}
	if _, err := ParsePresent("8s x 1024c", "0"); err == nil {
		t.Error("8192 CPUs have no error")
	}
}
