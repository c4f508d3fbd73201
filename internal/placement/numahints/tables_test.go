package numahints

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func t0(nodes ...int) Hint { return Hint{Nodes: Nodes(nodes...), Preferred: true} }
func f0(nodes ...int) Hint { return Hint{Nodes: Nodes(nodes...)} }

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

// TestMergeTable: tables of Katalyst's and the kubelet's unit tests, on 4 nodes (policy_test.go of each, cases by the
// names of our reference). A want with Any false and no nodes is a case that the table leaves out.
func TestMergeTable(t *testing.T) {
	all := t0(0, 1, 2, 3)
	allF := f0(0, 1, 2, 3)
	none := Hint{}
	for _, tc := range []struct {
		name                      string
		in                        []Resource
		best, restricted, one     Hint
		admitRestricted, admitOne bool
		numeric                   []Hint // nil: refused
		skipNumeric               bool
	}{
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
		{"P15", []Resource{res("r", t0(0, 1))}, t0(0, 1), t0(0, 1), nilF, true, false, []Hint{t0(0, 1)}, false},
		{"P16", []Resource{res("cpu", t0(0, 1)), res("memory", t0(0), t0(1), f0(0, 1)), res("gpu", t0(0))}, none, none, none, false, false, []Hint{t0(0, 1), f0(0, 1), t0(0)}, false},
		{"P18", []Resource{res("cpu", f0(0, 1)), res("gpu", t0(0))}, none, none, none, false, false, nil, false},
		{"P20", []Resource{res("cpu", t0(0)), res("gpu", f0(0, 1), t0(0))}, none, none, none, false, false, []Hint{t0(0), t0(0)}, false},
		{"P22", []Resource{{Name: "*"}, {Name: "*"}, res("cpu", t0(0), t0(1)), res("memory", t0(0), t0(1))}, none, none, none, false, false, []Hint{nilT, nilT, t0(0), t0(0)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			play := func(p Policy) Result { return Merge(4, tc.in, Options{Policy: p, Align: []string{"cpu", "memory"}}) }
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
			if r.Admitted != (tc.numeric != nil) || r.Admitted && len(r.Each)+len(tc.numeric) > 0 && !cmp.Equal(r.Each, tc.numeric) {
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
	s := &search{n: 4, all: All(4)}
	for _, tc := range []struct {
		want int
		in   []Resource
	}{
		{0, nil},
		{1, []Resource{res("a", f0(0))}},
		{2, []Resource{res("a", f0(0, 1))}},
		{2, []Resource{res("a", f0(0, 1), f0(0, 1, 2))}},
		{3, []Resource{res("a", f0(0, 1), f0(0, 1, 2)), res("b", f0(0, 1, 2))}},
		{3, []Resource{res("a", f0(0, 1), f0(0, 1, 2)), res("b", f0(0, 1, 2), f0(0, 1, 2, 3))}},
	} {
		if got := s.target(tc.in); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.in, got, tc.want)
		}
	}
}

// TestBetter: the table of compareHints. The winner is the candidate where that is true.
func TestBetter(t *testing.T) {
	s := &search{n: 4, all: All(4)}
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
		if got := s.better(tc.target, tc.current, tc.next); got != tc.want {
			t.Errorf("target %d, %+v, %+v: %v", tc.target, tc.current, tc.next, got)
		}
	}
}

// TestCPUHints: rows of Katalyst's table of CPU hints that counts can say: 4 nodes of 4 CPUs, and 12 of 32. Katalyst
// also leaves out sets across sockets (H2), which the kubelet keeps, and reads hints out of annotations, which package
// intent does.
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
		{"H4", 12, 380, same(12, 32), same(12, 32), []Hint{{Nodes: All(12), Preferred: true}}},
		{"H14", 4, 3, []uint64{2, 4, 4, 4}, same(4, 4), []Hint{t0(1), t0(2), t0(3)}},
		{"H20", 4, 3, same(4, 4), same(4, 4), []Hint{t0(0), t0(1), t0(2), t0(3)}},
	} {
		c := &Counts{Need: tc.need, Free: tc.free, Capacity: tc.capacity}
		var got []Hint
		for _, h := range c.expand(tc.n) {
			if h.Preferred {
				got = append(got, h)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.name, diff)
		}
	}
}
