package cpumap

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// drawn is a block's text without the blanks that fill it up.
func drawn(b term.Block) string {
	var s strings.Builder
	for _, l := range b.Lines {
		s.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	return s.String()
}

func TestTiles(t *testing.T) {
	m, err := describe.Parse("2s x 1n x 3c x 2t")
	if err != nil {
		t.Fatal(err)
	}
	told := api.NodeCPUs{
		Reserved: "0,6", Shared: "1-5,7-11", Reclaimed: "3-5,9-11",
		Grants: []api.Grant{
			{Pod: "a/two", Container: "x", CPUs: "4"}, {Pod: "a/one", Container: "x", CPUs: "2,8"}, {Pod: "a/two", Container: "y", CPUs: "4-5"},
		},
	}
	used := []Use{{"a/one", "2,8"}, {"a/two", "4-5"}, {"a/web", "1,3,7,9-11"}, {"a/bad", "5"}}
	got := NewTiles(m, told, used).Block(60, term.Ink{})
	want := `╭─ socket 0 ──────╮ ╭─ socket 1 ──────╮
│ ╭─ node 0 ────╮ │ │ ╭─ node 1 ────╮ │
│ │  0   1   2  │ │ │ │  3   4   5  │ │
│ │  #   s1  A  │ │ │ │  ·1  B   !  │ │
│ │  6   7   8  │ │ │ │  9   10  11 │ │
│ │  #   s1  A  │ │ │ │  ·1  ·1  ·1 │ │
│ ╰─────────────╯ │ │ ╰─────────────╯ │
╰─────────────────╯ ╰─────────────────╯
`
	if d := cmp.Diff(want, drawn(term.Block{Lines: got.Lines[:8]})); d != "" {
		t.Error(d)
	}
	for _, text := range []string{"A  a/one alone", "B  a/two alone", "shared pool", "#  reserved", "!  granted to one pod, usable by another"} {
		if !strings.Contains(drawn(got), text) {
			t.Errorf("the legend has no %q:\n%s", text, drawn(got))
		}
	}
	if strings.Contains(drawn(got), "\x1b") {
		t.Error("colour where none is wanted")
	}
	if colored := drawn(NewTiles(m, told, used).Block(60, term.Ink{On: true})); !strings.Contains(colored, "\x1b[") {
		t.Error("no colour")
	}
}

// TestTilesFit sees to it that every line is as wide as the block says and
// no wider than the terminal, on machines of all shapes.
func TestTilesFit(t *testing.T) {
	for _, machine := range []string{"1c", "128c", "2s x 64c x 2t", "8s x 2n x 32c x 2t", "2s x 4n x 8c x 2t", "64s x 1c"} {
		m, err := describe.Parse(machine)
		if err != nil {
			t.Fatal(err)
		}
		all := m.Format(m.Online())
		p := NewTiles(m, api.NodeCPUs{Shared: all, Reclaimed: all}, nil)
		for _, width := range []int{80, 100, 200} {
			b := p.Block(width, term.Ink{})
			for _, l := range b.Lines {
				if n := utf8.RuneCountInString(l); n != b.Width || n > width {
					t.Fatalf("%s at %d: a line of %d in a block of %d:\n%s", machine, width, n, b.Width, drawn(b))
				}
			}
			for _, c := range m.CPUs {
				if !strings.Contains(drawn(b), fmt.Sprintf(" %d", c.ID)) {
					t.Fatalf("%s: CPU %d is not drawn", machine, c.ID)
				}
			}
		}
	}
}
