package cpumap

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
)

// markBroken is that of a CPU which is granted to one pod and usable by another.
const markBroken = "!"

// tileColors are the tiles of CPUs that no pod owns alone, as SGR codes.
var tileColors = map[string]string{
	markShared: "38;5;255;48;5;24", markReclaimed: "38;5;255;48;5;58", markBoth: "38;5;255;48;5;238",
	markReserved: "38;5;250;48;5;234", markBroken: "1;38;5;231;48;5;160", markTooMany: "38;5;255;48;5;240",
}

// ownerColors are the tiles of CPUs a pod owns, by letter.
var ownerColors = []string{
	"1;38;5;231;48;5;161", "1;38;5;231;48;5;28", "1;38;5;16;48;5;214",
	"1;38;5;231;48;5;93", "1;38;5;16;48;5;44", "1;38;5;16;48;5;226",
}

// Use is which CPUs the kernel lets a running container use.
type Use struct{ Pod, CPUs string }

// Tiles is a drawing of the CPUs of a machine, a tile each.
type Tiles struct {
	machine *topology.Machine
	who     Map
	load    map[int]int  // how many running containers may use a CPU
	broken  map[int]bool // granted to one pod, usable by another
}

// NewTiles holds who has which CPU, as the agent says, against what the kernel
// lets containers use.
func NewTiles(m *topology.Machine, c api.NodeCPUs, uses []Use) Tiles {
	t := Tiles{machine: m, who: New(c), load: map[int]int{}, broken: map[int]bool{}}
	for _, u := range uses {
		for _, id := range CPUs(u.CPUs) {
			t.load[id]++
			if owner := t.who.pods[id]; owner != "" && owner != term.Clean(u.Pod) {
				t.broken[id] = true
			}
		}
	}
	return t
}

// Block draws packages and NUMA nodes as boxes, a column per core and a row of
// tiles per thread, at most width columns wide.
func (t Tiles) Block(width int, c term.Ink) term.Block {
	var packages []term.Block
	for _, pkg := range t.packages() {
		var nodes []term.Block
		for _, n := range pkg.parts {
			nodes = append(nodes, term.Box(fmt.Sprintf("node %d", n.id), t.tiles(n.parts, width-8, c)))
		}
		packages = append(packages, term.Box(fmt.Sprintf("socket %d", pkg.id), term.Flow(nodes, width-4, 1)))
	}
	return term.Below(term.Flow(packages, width, 1), t.explain(width, c))
}

// group is a part of the machine: packages, nodes in them, cores in these.
type group struct {
	id      int
	parts   []group
	threads []int // of a core, by kernel id
}

// part is the part of an id, made where there is none.
func (g *group) part(id int) *group {
	at := slices.IndexFunc(g.parts, func(p group) bool { return p.id == id })
	if at < 0 {
		at, g.parts = len(g.parts), append(g.parts, group{id: id})
	}
	return &g.parts[at]
}

// packages arranges the machine's CPUs as boxes.
func (t Tiles) packages() []group {
	var all group
	for _, c := range t.machine.CPUs {
		core := all.part(c.Package).part(c.Node).part(c.Core)
		core.threads = append(core.threads, c.ID)
	}
	return all.parts
}

// tiles draws cores side by side, each thread as its id over its mark.
func (t Tiles) tiles(cores []group, width int, c term.Ink) term.Block {
	// A tile is as wide as the longest id, and wide enough to be seen.
	tile := max(3, len(fmt.Sprint(t.machine.CPUs[len(t.machine.CPUs)-1].ID)))
	var columns []term.Block
	for _, core := range cores {
		b := term.Block{Width: tile}
		for _, id := range core.threads {
			mark, color := t.of(id)
			number := fmt.Sprint(id)
			left := (tile - len(number) + 1) / 2
			b.Lines = append(b.Lines,
				c.Paint(color, term.Pad(strings.Repeat(" ", max(left, 0))+number, tile)),
				c.Paint(color, term.Pad(" "+mark+t.count(id, mark), tile)))
		}
		columns = append(columns, b)
	}
	// Long nodes in rows of equal length.
	perRow := max((min(width, 66)+1)/(tile+1), 1)
	if len(columns) > perRow {
		rows := (len(columns) + perRow - 1) / perRow
		perRow = (len(columns) + rows - 1) / rows
	}
	return term.Flow(columns, perRow*(tile+1)-1, 1)
}

// count is how many containers may use a CPU that nobody owns.
func (t Tiles) count(id int, mark string) string {
	n := t.load[id]
	switch {
	case n == 0 || strings.Contains(letters+markTooMany+markBroken, mark):
		return ""
	case n > 9:
		return "+"
	}
	return fmt.Sprint(n)
}

// of returns a CPU's mark and its colour.
func (t Tiles) of(id int) (mark, color string) {
	mark = t.who.marks[id]
	switch {
	case t.broken[id]:
		mark = markBroken
	case mark == "", mark == markNone:
		return " ", ""
	}
	return mark, tileColor(mark)
}

func tileColor(mark string) string {
	if color, pool := tileColors[mark]; pool {
		return color
	}
	return ownerColors[strings.Index(letters, mark)%len(ownerColors)]
}

// explain writes the legend: owners, then pools.
func (t Tiles) explain(width int, c term.Ink) term.Block {
	var owners, others []term.Block
	item := func(mark, text string) term.Block {
		return term.Block{
			Lines: []string{c.Paint(tileColor(mark), " "+mark+" ") + " " + text},
			Width: 4 + utf8.RuneCountInString(text),
		}
	}
	for _, e := range t.who.legend {
		switch {
		case e.pod != "":
			owners = append(owners, item(e.mark, e.pod+" alone"))
		case e.mark == markBoth:
			others = append(others, item(e.mark, e.text+", and how many containers may run there"))
		default:
			others = append(others, item(e.mark, e.text))
		}
	}
	if len(t.broken) > 0 {
		others = append(others, item(markBroken, "granted to one pod, usable by another"))
	}
	return term.Flow(append(owners, others...), width, 2)
}
