package topology

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/test/clock"
)

func ids(t *rapid.T, name string) []int {
	return rapid.SliceOfDistinct(rapid.IntRange(0, MaxCPUs-1), rapid.ID).Draw(t, name)
}

// TestSetAgainstOracle compares our sets with the Kubernetes library's.
func TestSetAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := ids(t, "x"), ids(t, "y")
		a, b := SetOf(x...), SetOf(y...)
		p, q := cpuset.New(x...), cpuset.New(y...)
		for name, c := range map[string]struct {
			got  Set
			want cpuset.CPUSet
		}{
			"union": {a.Union(b), p.Union(q)}, "minus": {a.Minus(b), p.Difference(q)}, "and": {a.And(b), p.Intersection(q)},
		} {
			if !slices.Equal(c.got.Members(), c.want.List()) || c.got.Len() != c.want.Size() || c.got.Empty() != c.want.IsEmpty() {
				t.Errorf("%s of %v and %v: %v, want %v", name, x, y, c.got.Members(), c.want.List())
			}
		}
		if a.Contains(b) != q.IsSubsetOf(p) {
			t.Errorf("%v contains %v: %v", x, y, a.Contains(b))
		}
		if text := FormatList(a.Members()); text != p.String() {
			t.Errorf("%v is written %s, want %s", x, text, p)
		}
	})
}

func TestParseList(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, " \n": nil, "0": {0}, "3,1,2,1": {1, 2, 3}, "0-2, 8 ,10-11\n": {0, 1, 2, 8, 10, 11}, "007": {7}, "4095": {4095},
	} {
		if got, err := ParseList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{",", "1,", "-", "1-", "-1", "3-1", "a", "0x1", "1-2-3", "4096", "0-8:2/4", "1;2", "1 2", "٣"} {
		if got, err := ParseList(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// FuzzParseList checks that every accepted text gives the same list as the Kubernetes library, and is the
// same after printing and parsing.
func FuzzParseList(f *testing.F) {
	for _, s := range []string{"0-3,8", "1-2-3", "4095", "", "0-0"} {
		f.Add(s)
	}
	for _, part := range []string{"0-4095,", "7,", " 1 ,", "0-4095 ,,"} {
		f.Add(strings.TrimSuffix(strings.Repeat(part, 40_000), ","))
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		got, err := ParseList(text)
		if err != nil {
			return
		}
		again, err := ParseList(FormatList(got))
		if err != nil || !slices.Equal(got, again) {
			t.Fatalf("%q: %v, again %v (%v)", text, got, again, err)
		}
		if want, err := cpuset.Parse(FormatList(got)); err != nil || !slices.Equal(want.List(), append([]int{}, got...)) {
			t.Fatalf("%q: %v, the oracle says %v (%v)", text, got, want, err)
		}
	})
}

func TestMachineSparse(t *testing.T) {
	m, err := New([]CPU{{ID: 4000, Node: 7}, {ID: 3, Node: 2}, {ID: 5, Node: 7}}, map[int]uint64{2: 1 << 30, 9: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Format(m.Online()); got != "3,5,4000" {
		t.Errorf("online: %s", got)
	}
	set, err := m.ParseCPUs("5,4000")
	if n, ok := m.Node(7); err != nil || !ok || n.CPUs != set {
		t.Errorf("node 7: %v, %v", n, err)
	}
	if n, ok := m.Node(9); !ok || !n.CPUs.Empty() || n.Memory != 1<<20 {
		t.Errorf("memory-only node: %+v", n)
	}
	if _, err := m.ParseCPUs("3-5"); err == nil {
		t.Error("CPU 4 is offline and was accepted")
	}
	if got := m.Format(m.OnlineOf("0-100")); got != "3,5" {
		t.Errorf("online of 0-100: %s", got)
	}
	for _, bad := range [][]CPU{nil, {{ID: 1}, {ID: 1}}, make([]CPU, MaxCPUs+1)} {
		if _, err := New(bad, nil); err == nil {
			t.Errorf("a machine of %d CPUs was accepted", len(bad))
		}
	}
}
