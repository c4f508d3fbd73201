package sim

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// drawn is a block's text without the blanks that fill it up.
func drawn(b block) string {
	var s strings.Builder
	for _, l := range b.lines {
		s.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	return s.String()
}

func TestPicture(t *testing.T) {
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
	used := map[scenario.Ref]string{"a/one/x": "2,8", "a/two/x": "4-5", "a/web/x": "1,3,7,9-11", "a/bad/x": "5"}
	got := draw(m, told, used).render(60, ink{})
	want := `╭─ socket 0 ──────╮ ╭─ socket 1 ──────╮
│ ╭─ node 0 ────╮ │ │ ╭─ node 1 ────╮ │
│ │  0   1   2  │ │ │ │  3   4   5  │ │
│ │  #   s1  A  │ │ │ │  ·1  B   !  │ │
│ │  6   7   8  │ │ │ │  9   10  11 │ │
│ │  #   s1  A  │ │ │ │  ·1  ·1  ·1 │ │
│ ╰─────────────╯ │ │ ╰─────────────╯ │
╰─────────────────╯ ╰─────────────────╯
`
	if d := cmp.Diff(want, drawn(block{lines: got.lines[:8]})); d != "" {
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
	if colored := drawn(draw(m, told, used).render(60, ink{true})); !strings.Contains(colored, "\x1b[") {
		t.Error("no colour")
	}
}

// TestPictureFits sees to it that every line is as wide as the block says and
// no wider than the terminal, on machines of all shapes.
func TestPictureFits(t *testing.T) {
	for _, machine := range []string{"1c", "128c", "2s x 64c x 2t", "8s x 2n x 32c x 2t", "2s x 4n x 8c x 2t", "64s x 1c"} {
		m, err := describe.Parse(machine)
		if err != nil {
			t.Fatal(err)
		}
		all := m.Format(m.Online())
		p := draw(m, api.NodeCPUs{Shared: all, Reclaimed: all}, nil)
		for _, width := range []int{80, 100, 200} {
			b := p.render(width, ink{})
			for _, l := range b.lines {
				if n := utf8.RuneCountInString(l); n != b.width || n > width {
					t.Fatalf("%s at %d: a line of %d in a block of %d:\n%s", machine, width, n, b.width, drawn(b))
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

func TestTable(t *testing.T) {
	rows := []record{
		{cells: []cell{{text: "a"}, {}, {text: "0-3,8-11", changed: true}}, remarks: []string{"for a reason that is longer than the line", "! odd"}},
		{cells: []cell{{text: "b"}, {}, {text: "0"}}},
	}
	got := drawn(table([]column{{"name", 10}, {"never", 10}, {"CPUs", 6}}, rows, 28, ink{}))
	want := `name  CPUs
────  ──────
a     0-3,
      8-11*
  └ for a reason that is
    longer than the line
  └ ! odd
b     0
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":                   {""},
		"0-3,8-11,16-19":     {"0-3,8-11,", "16-19"},
		"one two three":      {"one two", "three"},
		"abcdefghijklmnop":   {"abcdefghij", "klmnop"},
		"a\nb":               {"a", "b"},
		"exactlyten":         {"exactlyten"},
		"ünïcödé wörds here": {"ünïcödé", "wörds here"},
	} {
		if d := cmp.Diff(want, wrap(text, 10)); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestWhy(t *testing.T) {
	reason := func(source, text string) lifecycle.Reason {
		return lifecycle.Reason{Hook: "h", Source: source, Text: text}
	}
	got := why(api.Container{Values: []api.Value{
		{Field: "cpuset.cpus", Applied: true, Why: reason("x/status", "assigned")},
		{Field: "cpu.quota", Applied: true, Why: reason("x/status", "not throttled")},
		{Field: "cpu.shares", Applied: true, Why: reason("x/spec", "request")},
		{Field: "memory.limit", Note: "the kernel said no", Why: reason("x/spec", "request")},
	}})
	want := []string{
		"! memory.limit is not applied: the kernel said no",
		"assigned, not throttled ← x/status", "request ← x/spec",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"by itself"}, why(api.Container{SeatWhy: "by itself"})); d != "" {
		t.Error(d)
	}
}

func TestAmounts(t *testing.T) {
	for n, want := range map[int64]string{-1: "none", 1: "1", 1 << 30: "1 GiB", 3 << 29: "1536 MiB", 1025: "1025", 2 << 40: "2 TiB"} {
		if got := amount(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
