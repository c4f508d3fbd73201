package numahints

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func t0(nodes ...int) Hint { return Hint{Nodes: MaskOf(nodes...), Preferred: true} }
func f0(nodes ...int) Hint { return Hint{Nodes: MaskOf(nodes...)} }

var (
	nilT = Hint{Any: true, Preferred: true}
	nilF = Hint{Any: true}
)

func res(name string, hints ...Hint) Resource {
	if hints == nil {
		hints = []Hint{}
	}
	return Resource{Name: name, Hints: hints}
}

// mergeRows are the rows of the merge table of Katalyst's and the kubelet's unit tests, by the names of our reference.
const mergeRows = "P1 P2 P3 P4 P5 P6 P7 P8 P10 P12 P14 P15 P16 P18 P20 P22"

// missing returns the rows of a table that no name starts with, and names that start with no row.
func missing(rows string, names []string) (out []string) {
	played := map[string]bool{}
	for _, name := range names {
		row, _, _ := strings.Cut(name, " ")
		played[row] = true
		if !slices.Contains(strings.Fields(rows), row) {
			out = append(out, "unknown "+row)
		}
	}
	for _, row := range strings.Fields(rows) {
		if !played[row] {
			out = append(out, row)
		}
	}
	return out
}

// TestMergeTable: tables of Katalyst's and the kubelet's unit tests, on 4 nodes (policy_test.go of each). A want with
// Any false and no nodes is a case that the table leaves out. A row that is missing fails.
func TestMergeTable(t *testing.T) {
	all := t0(0, 1, 2, 3)
	allF := f0(0, 1, 2, 3)
	none := Hint{}
	type row struct {
		name                      string
		in                        []Resource
		best, restricted, one     Hint
		admitRestricted, admitOne bool
		numeric                   []Hint // nil: refused
		skipNumeric               bool
	}
	rows := []row{
		{"P1 nothing", nil, all, all, nilT, true, true, []Hint{}, false},
		{"P2 one without hints", []Resource{{Name: "*"}, res("r", t0(0))}, t0(0), t0(0), t0(0), true, true, []Hint{nilT, t0(0)}, false},
		{"P3 nil list", []Resource{{Name: "r"}}, all, all, nilT, true, true, []Hint{nilT}, false},
		{"P3 nil T", []Resource{res("r", nilT)}, all, all, nilT, true, true, []Hint{nilT}, false},
		{"P4 empty list", []Resource{res("r")}, allF, allF, nilF, false, false, nil, false},
		{"P4 nil F", []Resource{res("r", nilF)}, allF, allF, nilF, false, false, nil, false},
		{"P5", []Resource{res("r1", t0(0)), res("r2", t0(0))}, t0(0), t0(0), t0(0), true, true, []Hint{t0(0), t0(0)}, false},
		{"P6", []Resource{res("r1", t0(0), t0(1)), res("r2", t0(1))}, t0(1), t0(1), t0(1), true, true, []Hint{t0(1), t0(1)}, false},
		{"P7", []Resource{res("r1", t0(0)), res("r2", t0(1))}, allF, allF, nilF, false, false, nil, false},
		{"P8", []Resource{res("r1", t0(0)), res("r2", f0(0))}, f0(0), f0(0), nilF, false, false, []Hint{t0(0), f0(0)}, false},
		{"P10", []Resource{res("r1", t0(1), f0(0, 1)), res("r2", t0(0), t0(1), f0(0, 1))}, t0(1), t0(1), t0(1), true, true, []Hint{t0(1), t0(1)}, false},
		{"P12", []Resource{res("r1", t0(0, 1)), res("r2", t0(0), t0(1), f0(0, 1))}, f0(0, 1), f0(0, 1), nilF, false, false, []Hint{t0(0, 1), t0(0)}, false},
		{"P14", []Resource{res("r1", f0(0, 1, 2, 3), f0(0, 1)), res("r2", f0(1, 2), f0(2, 3))}, f0(1, 2), f0(1, 2), nilF, false, false, nil, true},
		{"P15", []Resource{res("r", t0(0, 1))}, t0(0, 1), t0(0, 1), nilF, true, false, []Hint{t0(0, 1)}, false},
		{"P16", []Resource{res("cpu", t0(0, 1)), res("memory", t0(0), t0(1), f0(0, 1)), res("gpu", t0(0))}, none, none, none, false, false, []Hint{t0(0, 1), f0(0, 1), t0(0)}, false},
		{"P18", []Resource{res("cpu", f0(0, 1)), res("gpu", t0(0))}, none, none, none, false, false, nil, false},
		{"P20", []Resource{res("cpu", t0(0)), res("gpu", f0(0, 1), t0(0))}, none, none, none, false, false, []Hint{t0(0), t0(0)}, false},
		{"P22", []Resource{{Name: "*"}, {Name: "*"}, res("cpu", t0(0), t0(1)), res("memory", t0(0), t0(1))}, none, none, none, false, false, []Hint{nilT, nilT, t0(0), t0(0)}, false},
	}
	var names []string
	for _, tc := range rows {
		names = append(names, tc.name)
	}
	if lost := missing(mergeRows, names); len(lost) > 0 {
		t.Errorf("rows %v are not played", lost)
	}
	for _, tc := range rows {
		t.Run(tc.name, func(t *testing.T) {
			play := func(p Policy) Result {
				return Merge(4, tc.in, Options{Policy: p, AlignedResources: []string{"cpu", "memory"}})
			}
			if tc.best != none {
				if r := play(BestEffort); r.Hint() != tc.best || !r.Admitted {
					t.Errorf("best-effort: %+v, want %+v", r, tc.best)
				}
				if r := play(Restricted); r.Hint() != tc.restricted || r.Admitted != tc.admitRestricted {
					t.Errorf("restricted: %+v, want %+v", r, tc.restricted)
				}
				if r := play(SingleNode); r.Hint() != tc.one || r.Admitted != tc.admitOne {
					t.Errorf("single-numa-node: %+v, want %+v", r, tc.one)
				}
			}
			r := play(Numeric)
			if !tc.skipNumeric && (r.Admitted != (tc.numeric != nil) || r.Admitted && len(r.ResourceHints)+len(tc.numeric) > 0 && !cmp.Equal(r.ResourceHints, tc.numeric)) {
				t.Errorf("numeric: %+v, want %+v", r, tc.numeric)
			}
			if r := play(None); !r.Admitted || !r.Any {
				t.Errorf("none: %+v", r)
			}
		})
	}
}

// TestTarget: the table of bestNonPreferred.
func TestTarget(t *testing.T) {
	s := &search{nodeCount: 4, allNodes: AllNodes(4)}
	for _, tc := range []struct {
		want int
		in   []Resource
	}{
		{0, nil},
		{0, []Resource{res("a", f0())}},
		{1, []Resource{res("a", f0(0))}},
		{2, []Resource{res("a", f0(0, 1))}},
		{2, []Resource{res("a", f0(0, 1), f0(0, 1, 2))}},
		{3, []Resource{res("a", f0(0, 1), f0(0, 1, 2)), res("b", f0(0, 1, 2))}},
		{3, []Resource{res("a", f0(0, 1), f0(0, 1, 2)), res("b", f0(0, 1, 2), f0(0, 1, 2, 3))}},
	} {
		if got := s.targetSize(tc.in); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.in, got, tc.want)
		}
	}
}

// TestSingles: the filter of single-numa-node.
func TestSingles(t *testing.T) {
	s := &search{nodeCount: 4, allNodes: AllNodes(4)}
	for _, tc := range []struct {
		name     string
		in, want []Hint
	}{
		{"no preference", []Hint{nilT}, []Hint{nilT}},
		{"not available", []Hint{nilF}, nil},
		{"one node", []Hint{t0(0), f0(1)}, []Hint{t0(0)}},
		{"several nodes", []Hint{t0(0, 1), f0(0, 1), t0(2)}, []Hint{t0(2)}},
		{"nothing is left", []Hint{f0(0), t0(0, 1)}, nil},
	} {
		if got := s.singleNodeHints(Resource{Name: "r", Hints: tc.in}); !cmp.Equal(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	if h := s.applySingleNode([]Resource{{Name: "r", Hints: []Hint{f0(0)}}}); h.Preferred {
		t.Errorf("a resource with no hint left: %+v", h)
	}
}

// TestBetter: the table of compareHints. The winner is the candidate where that is true.
func TestBetter(t *testing.T) {
	s := &search{nodeCount: 4, allNodes: AllNodes(4)}
	p := func(h Hint) *Hint { return &h }
	for _, tc := range []struct {
		target  int
		current *Hint
		next    Hint
		want    bool
	}{
		{1, p(Hint{Preferred: true}), Hint{}, false},
		{1, nil, t0(0), true},
		{1, nil, f0(0), true},
		{1, p(f0(0)), t0(0), true},
		{1, p(t0(0)), f0(0), false},
		{1, p(t0(0)), t0(0), false},
		{1, p(t0(0, 1)), t0(0), true},
		{1, p(t0(0)), t0(0, 1), false},
		{1, p(f0(0, 1)), f0(0, 1), false},
		{1, p(f0(1, 2)), f0(0, 1), true},
		{1, p(f0(0, 1)), f0(1, 2), false},
		{2, p(f0(0, 1)), f0(0), false},
		{2, p(f0(1, 2)), f0(0, 1), true},
		{2, p(f0(0)), f0(0, 1, 2), false},
		{2, p(f0(0)), f0(0, 1), true},
		{3, p(f0(0)), f0(0, 1), true},
		{3, p(f0(0)), f0(1, 2), true},
		{4, p(f0(0, 1)), f0(1, 2, 3), true},
		{4, p(f0(1, 2, 3)), f0(0, 1), false},
		{4, p(f0(0, 1, 2)), f0(1, 2, 3), false},
		{4, p(f0(1, 2, 3)), f0(0, 1, 2), true},
	} {
		if got := s.isBetterHint(tc.target, tc.current, tc.next); got != tc.want {
			t.Errorf("target %d, %+v, %+v: %v", tc.target, tc.current, tc.next, got)
		}
	}
}

// TestCPUHints: rows of Katalyst's table of CPU hints that counts can say: 4 nodes of 4 CPUs, and 12 of 32. Katalyst
// also leaves out sets across sockets (H2), which the kubelet keeps. TestKatalystHints of package engine has all rows.
func TestCPUHints(t *testing.T) {
	same := func(n int, each uint64) []uint64 {
		out := make([]uint64, n)
		for i := range out {
			out[i] = each
		}
		return out
	}
	for _, tc := range []struct {
		name           string
		n              int
		need           uint64
		free, capacity []uint64
		want           []Hint
	}{
		{"H3", 4, 2, same(4, 4), same(4, 4), []Hint{t0(0), t0(1), t0(2), t0(3)}},
		{"H4", 12, 380, same(12, 32), same(12, 32), []Hint{{Nodes: AllNodes(12), Preferred: true}}},
		{"H14", 4, 3, []uint64{2, 4, 4, 4}, same(4, 4), []Hint{t0(1), t0(2), t0(3)}},
		{"H20", 4, 3, same(4, 4), same(4, 4), []Hint{t0(0), t0(1), t0(2), t0(3)}},
	} {
		c := &Counts{Need: tc.need, Free: tc.free, Capacity: tc.capacity}
		var got []Hint
		for _, h := range c.hintsOn(tc.n) {
			if h.Preferred {
				got = append(got, h)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.name, diff)
		}
	}
}

// TestNodeCount: Katalyst's helpers that count the NUMA nodes of a request for CPUs (in thousandths) and for memory.
// They also divide the request evenly among the nodes; here the nodes' own amounts count, so that no division is
// needed.
func TestNodeCount(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes []uint64
		need  uint64
		want  int // 0: it does not fit
	}{
		{"4 CPUs of 2 nodes, 1.5", []uint64{2000, 2000}, 1500, 1},
		{"8 CPUs of 4 nodes, 3", []uint64{2000, 2000, 2000, 2000}, 3000, 2},
		{"0.1 CPUs", []uint64{2000, 2000}, 100, 1},
		{"0 CPUs", []uint64{2000, 2000}, 0, 1},
		{"10 of 4 CPUs", []uint64{2000, 2000}, 10000, 0},
		{"5 CPUs of 3 nodes, 1", []uint64{2000, 2000, 1000}, 1000, 1},
		{"no node", nil, 1000, 0},
		{"50 bytes", []uint64{100, 100, 100, 100}, 50, 1},
		{"100 bytes", []uint64{100, 100, 100, 100}, 100, 1},
		{"150 bytes", []uint64{100, 100, 100, 100}, 150, 2},
		{"250 bytes", []uint64{100, 100, 100, 100}, 250, 3},
		{"400 bytes", []uint64{100, 100, 100, 100}, 400, 4},
		{"500 bytes", []uint64{100, 100, 100, 100}, 500, 0},
		{"0 bytes", []uint64{100, 100, 100, 100}, 0, 1},
		{"101 bytes of 2 nodes", []uint64{100, 100}, 101, 2},
		{"nodes without memory", []uint64{0, 0}, 1, 0},
	} {
		if got := smallestSetSize(tc.nodes, tc.need, len(tc.nodes)); got != tc.want {
			t.Errorf("%s: %d NUMA nodes, want %d", tc.name, got, tc.want)
		}
	}
}
