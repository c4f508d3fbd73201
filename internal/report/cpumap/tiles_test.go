package cpumap

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// drawn returns a block's text without padding.
func drawn(b term.Block) string {
	var s strings.Builder
	for _, l := range b.Lines {
		s.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	return s.String()
}

func nodesOf(m *topology.Machine) (nodes []api.NUMA) {
	for _, n := range m.Nodes {
		nodes = append(nodes, api.NUMAOf(m, n))
	}
	return nodes
}

// TestMemoryOnly: every drawing has a NUMA node without CPUs, with its memory.
func TestMemoryOnly(t *testing.T) {
	c := api.NodeCPUs{
		Online: "0-1", Shared: "0-1",
		Nodes: []api.NUMA{{ID: 0, CPUs: "0-1", Memory: 4 << 30}, {ID: 1, Package: -1, Memory: 64 << 30}, {ID: 2, Package: -1}},
	}
	var text, drawing bytes.Buffer
	New(c).Text(&text, c)
	if err := SVG(&drawing, nil, c); err != nil {
		t.Fatal(err)
	}
	boxes := drawn(NewTiles(c, nil).Block(80, term.Ink{}))
	busy := strings.Join(LoadLines(c, map[int]float64{0: 1}, 60, term.Ink{}), "\n")
	for name, picture := range map[string]string{"lines": text.String(), "boxes": boxes, "busy": busy} {
		if !strings.Contains(picture, "64 GiB of memory, no CPUs") || !strings.Contains(picture, "no CPUs and no memory") {
			t.Errorf("%s:\n%s", name, picture)
		}
	}
	if !strings.Contains(boxes, "─ memory only ─") || !strings.Contains(drawing.String(), "memory only") || !strings.Contains(drawing.String(), "node 1: no CPUs, 64.0 GiB") {
		t.Errorf("boxes:\n%s\ndrawing:\n%s", boxes, drawing.String())
	}
}

// TestLoadLinesUnknown: no line with loads is drawn if no CPU has a known load.
func TestLoadLinesUnknown(t *testing.T) {
	c := api.NodeCPUs{Online: "0-3", Shared: "1-3", Reserved: "0", Nodes: []api.NUMA{{ID: 0, CPUs: "0-3"}}}
	if got := strings.Join(LoadLines(c, nil, 60, term.Ink{}), "\n"); got != "node 0  0-3      -  #sss" {
		t.Errorf("no CPU is known: %q", got)
	}
	if got := strings.Join(LoadLines(c, map[int]float64{1: 0.5}, 60, term.Ink{}), "\n"); got != "node 0  0-3   50 %  ?▅??\n                    #sss" {
		t.Errorf("one CPU is known: %q", got)
	}
}

// TestLetters: an owner keeps its letter while others start and end, and a free letter is used again.
func TestLetters(t *testing.T) {
	var l Letters
	mark := func(pods ...string) (all string) {
		var grants []api.Grant
		for i, p := range pods {
			grants = append(grants, api.Grant{Pod: p, CPUs: fmt.Sprint(i)})
		}
		l.Mark(grants)
		for _, g := range grants {
			all += g.Pod + "=" + g.Mark + " "
		}
		for _, m := range Marks(api.NodeCPUs{Online: "0-9", Grants: grants}) {
			if m.Pod != "" && !strings.Contains(all, m.Pod+"="+m.Mark+" ") {
				t.Errorf("drawn as %s, of %s", m.Mark, all)
			}
		}
		return all
	}
	for _, step := range []struct {
		pods []string
		want string
	}{
		{[]string{"b", "d"}, "b=A d=B "},
		{[]string{"a", "b", "d", "a"}, "a=C b=A d=B a=C "},
		{[]string{"a", "d"}, "a=C d=B "},
		{[]string{"a", "c", "d"}, "a=C c=A d=B "},
		{nil, ""},
		{[]string{"d"}, "d=A "},
	} {
		if got := mark(step.pods...); got != step.want {
			t.Errorf("%v: %q, want %q", step.pods, got, step.want)
		}
	}
}

func TestTiles(t *testing.T) {
	m, err := describe.Parse("2s x 1n x 3c x 2t")
	if err != nil {
		t.Fatal(err)
	}
	told := api.NodeCPUs{
		Nodes: nodesOf(m), Reserved: "0,6", Shared: "1-5,7-11", Reclaimed: "3-5,9-11",
		Grants: []api.Grant{
			{Pod: "a/two", Container: "x", CPUs: "4"}, {Pod: "a/one", Container: "x", CPUs: "2,8"}, {Pod: "a/two", Container: "y", CPUs: "4-5"},
		},
	}
	used := []ContainerCPUs{{"a/one", "2,8"}, {"a/two", "4-5"}, {"a/web", "1,3,7,9-11"}, {"a/bad", "5"}}
	got := NewTiles(told, used).Block(60, term.Ink{})
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
	for _, text := range []string{"A  a/one alone", "B  a/two alone", "shared pool", "#  reserved", "!  owned by one pod, but another pod may use it"} {
		if !strings.Contains(drawn(got), text) {
			t.Errorf("the legend has no %q:\n%s", text, drawn(got))
		}
	}
	if strings.Contains(drawn(got), "\x1b") {
		t.Error("colour where none is wanted")
	}
	if colored := drawn(NewTiles(told, used).Block(60, term.Ink{On: true})); !strings.Contains(colored, "\x1b[") {
		t.Error("no colour")
	}
}

// TestTilesFit: every line is as wide as the block says and no wider than the terminal, on machines of all
// shapes.
func TestTilesFit(t *testing.T) {
	for _, machine := range []string{"1c", "128c", "2s x 64c x 2t", "8s x 2n x 32c x 2t", "2s x 4n x 8c x 2t", "64s x 1c"} {
		m, err := describe.Parse(machine)
		if err != nil {
			t.Fatal(err)
		}
		all := m.Format(m.Online())
		p := NewTiles(api.NodeCPUs{Nodes: nodesOf(m), Shared: all, Reclaimed: all}, nil)
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
