package keeper

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestLines compares lines of the journal with the library's encoding.
func TestLines(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching("[ -~]{0,20}"))
	maybe := rapid.Ptr(text, true)
	rapid.Check(t, func(r *rapid.T) {
		o := origin{
			Owner: text.Draw(r, "owner"), Dir: text.Draw(r, "dir"), Parent: rapid.Bool().Draw(r, "parent"),
			Field: rapid.SampledFrom([]lifecycle.Field{lifecycle.CPUShares, lifecycle.Unified, lifecycle.CPUSetCPUs}).Draw(r, "field"),
			Key:   text.Draw(r, "key"), AgentText: text.Draw(r, "ours"),
			TextRemoved: rapid.Bool().Draw(r, "gone"), history: history{
				LastText: text.Draw(r, "was"), Original: maybe.Draw(r, "original"), Requested: maybe.Draw(r, "asked"), RequestedValue: text.Draw(r, "askedFor"),
				RuntimeMayHaveWritten: rapid.Bool().Draw(r, "carried"), Weight: text.Draw(r, "weight"),
			},
		}
		want, err := json.Marshal(o)
		if err != nil {
			r.Fatal(err)
		}
		if got := o.appendJSON([]byte("before")); string(got) != "before"+string(want) {
			r.Errorf("%s, want %s", got, want)
		}
	})
}

// TestLongLines: a line of any length is read, and so are those after it.
func TestLongLines(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a", "p/b")
	long := strings.Repeat("x", 300<<10)
	lines := `{"owner":"` + long + `","dir":"p/a","field":"cpu.weight","ours":"200","original":"100"}` + "\n\n" +
		`{"owner":"b","dir":"p/b","field":"cpu.weight","ours":"200","original":"100"}`
	lines = strings.ReplaceAll(lines, "cpu.weight", lifecycle.CPUShares.String())
	if err := r.Originals.Load(nowhere{}, []byte(lines)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"p/a", "p/b"} {
		must(r.fake.WriteFile(dir+"/cpu.weight", []byte("200")))
	}
	out := r.ReleaseAll()
	for _, dir := range []string{"p/a", "p/b"} {
		if got, err := r.tree.Read(dir, lifecycle.CPUShares, ""); err != nil || got != "100" {
			t.Errorf("%s has %q, %v, want 100", dir, got, err)
		}
	}
	if t.Failed() {
		t.Logf("%d outcomes", len(out))
	}
}

// TestOtherTree: a keeper with another tree than the one in its journal loses nothing: it neither takes the
// cgroups for removed nor reports that everything was restored.
func TestOtherTree(t *testing.T) {
	for _, tree := range []struct {
		name  string
		dirs  []string
		knows int
	}{
		{"another tree", []string{"q/a"}, 2},
		{"the tree, and one cgroup gone", []string{"p/a"}, 1},
	} {
		r := newRig(t, cgroup.V2, tree.dirs...)
		var lines string
		for _, dir := range []string{"p/a", "p/b"} {
			lines += `{"owner":"` + dir + `","dir":"` + dir + `","field":"` + lifecycle.CPUShares.String() + `","ours":"200","original":"100"}` + "\n"
		}
		if err := r.Originals.Load(nowhere{}, []byte(lines)); err != nil {
			t.Fatal(err)
		}
		if len(r.Originals.leftovers) != tree.knows {
			t.Errorf("%s: %d of 2 are remembered, want %d", tree.name, len(r.Originals.leftovers), tree.knows)
		}
		if tree.knows == 1 {
			continue
		}
		out := r.ReleaseAll()
		if len(out) != 2 || out[0].State != Ceded || !errors.Is(out[0].Err, ErrOtherTree) || len(r.Originals.leftovers) != 2 {
			t.Errorf("%s: released %+v, %d are remembered", tree.name, out, len(r.Originals.leftovers))
		}
	}
}
