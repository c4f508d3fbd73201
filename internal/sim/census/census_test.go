package census

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

type leaf struct{ list []int }

type tree struct {
	kept   map[string]*leaf
	same   *leaf
	any    any
	up     *tree
	arr    [2]map[int]bool
	hidden struct{ in map[int][]string }
}

// TestOf counts maps and slices behind pointers, interfaces and structs, each once, and ends in spite of a cycle.
func TestOf(t *testing.T) {
	one := &leaf{list: []int{1, 2, 3}}
	v := &tree{kept: map[string]*leaf{"a": one, "b": {list: []int{4}}}, same: one, any: map[string]int{"x": 1}}
	v.up = v
	v.arr[1] = map[int]bool{1: true, 2: true}
	v.hidden.in = map[int][]string{7: {"a", "b"}}
	got := Of(nil, v)
	want := Count{
		"census.tree.kept": 2, "census.leaf.list": 4, "census.tree.any": 1, "census.tree.arr[]": 2,
		"census.tree.hidden.in": 1, "census.tree.hidden.in[]": 2,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	v.kept["c"] = nil
	if d := cmp.Diff([]string{"census.tree.kept"}, Of(nil, v).Growth(got)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Count{}, Of([]string{"*census.tree"}, v)); d != "" {
		t.Error(d)
	}
}
