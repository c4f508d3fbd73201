package cpumap

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// markBroken marks a CPU that one pod owns and another pod may use.
const markBroken = "!"

// tileColors are the colours of CPUs that no pod owns, as SGR codes.
var tileColors = map[string]string{
	markShared: "38;5;255;48;5;24", markReclaimed: "38;5;255;48;5;58", markBoth: "38;5;255;48;5;238", markBalloon: "38;5;255;48;5;60",
	markReserved: "38;5;250;48;5;234", markBroken: "1;38;5;231;48;5;160", markTooMany: "38;5;255;48;5;240",
}

// ownerColors are the colours of CPUs that a pod owns, by letter.
var ownerColors = []string{
	"1;38;5;231;48;5;161", "1;38;5;231;48;5;28", "1;38;5;16;48;5;214",
	"1;38;5;231;48;5;93", "1;38;5;16;48;5;44", "1;38;5;16;48;5;226",
}

// Use has the CPUs that the kernel lets a running container use.
type Use struct{ Pod, CPUs string }

// Tiles is a drawing of a machine with one tile for each CPU.
type Tiles struct {
	nodes  []api.NUMA
	widest int // id of a CPU
	who    Map
	load   map[int]int  // how many running containers may use a CPU
	broken map[int]bool // one pod owns the CPU, and another pod may use it
}

// NewTiles compares the owners of CPUs in the agent's report with the CPUs that the kernel lets containers use.
func NewTiles(c api.NodeCPUs, uses []Use) Tiles {
	t := Tiles{nodes: c.Nodes, who: New(c), load: map[int]int{}, broken: map[int]bool{}}
	for _, n := range c.Nodes {
		for _, id := range CPUs(n.CPUs) {
			t.widest = max(t.widest, id)
		}
	}
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
	for _, pkg := range byPackage(t.nodes) {
		title := fmt.Sprintf("socket %d", pkg[0].Package)
		if pkg[0].Package < 0 {
			title = "memory alone"
		}
		var nodes []term.Block
		for _, n := range pkg {
			inside := t.tiles(cores(n), width-8, c)
			if n.CPUs == "" {
				text := term.Cut(MemoryAlone(n), max(width-8, 8))
				inside = term.Block{Lines: []string{text}, Width: utf8.RuneCountInString(text)}
			}
			nodes = append(nodes, term.Box(fmt.Sprintf("node %d", n.ID), inside))
		}
		packages = append(packages, term.Box(title, term.Flow(nodes, width-4, 1)))
	}
	return term.Below(term.Flow(packages, width, 1), t.explain(width, c))
}

// tiles draws cores side by side, each thread as its id over its mark.
func (t Tiles) tiles(cores [][]int, width int, c term.Ink) term.Block {
	// A tile is as wide as the longest id, and wide enough to be visible.
	tile := max(3, len(fmt.Sprint(t.widest)))
	var columns []term.Block
	for _, core := range cores {
		b := term.Block{Width: tile}
		for _, id := range core {
			mark, color := t.of(id)
			number := fmt.Sprint(id)
			left := (tile - len(number) + 1) / 2
			b.Lines = append(b.Lines,
				c.Paint(color, term.Pad(strings.Repeat(" ", max(left, 0))+number, tile)),
				c.Paint(color, term.Pad(" "+mark+t.count(id, mark), tile)))
		}
		columns = append(columns, b)
	}
	// Long nodes get rows of equal length.
	perRow := max((min(width, 66)+1)/(tile+1), 1)
	if len(columns) > perRow {
		rows := (len(columns) + perRow - 1) / perRow
		perRow = (len(columns) + rows - 1) / rows
	}
	return term.Flow(columns, perRow*(tile+1)-1, 1)
}

// count returns how many containers may use a CPU that nobody owns.
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
		case strings.Contains(e.text, ", missing "): // CPUs that the picture cannot show
			owners = append(owners, item(e.mark, e.text))
		case e.pod != "":
			owners = append(owners, item(e.mark, e.pod+" alone"))
		case e.mark == markBoth, e.mark == markBalloon:
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
