package cpumap

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// markConflict marks a CPU that one pod owns and another pod may use.
const markConflict = "!"

// tileColors are the colours of all marks that are not letters, as SGR codes of a terminal.
var tileColors = map[string]string{
	markShared: "38;5;255;48;5;24", markReclaimed: "38;5;255;48;5;58", markBoth: "38;5;255;48;5;238", markBalloon: "38;5;255;48;5;60",
	markReserved: "38;5;250;48;5;234", markConflict: "1;38;5;231;48;5;160", TooManyOwners: "38;5;255;48;5;240",
}

// ownerColors are the colours of CPUs that a pod owns, by the pod's letter. After the last colour, the first colour is
// used again.
var ownerColors = []string{
	"1;38;5;231;48;5;161", "1;38;5;231;48;5;28", "1;38;5;16;48;5;214",
	"1;38;5;231;48;5;93", "1;38;5;16;48;5;44", "1;38;5;16;48;5;226",
}

// ContainerCPUs has the CPUs that the kernel lets a running container use. Pod is the container's pod, as
// namespace/name.
type ContainerCPUs struct{ Pod, CPUs string }

// Tiles is a drawing of a machine with one tile for each CPU.
type Tiles struct {
	nodes      []api.NUMA
	highestID  int // the highest id of a CPU, which needs the most columns
	cpuMap     Map
	containers map[int]int  // by CPU id: how many running containers may use the CPU
	conflicts  map[int]bool // by CPU id: one pod owns the CPU, and the kernel lets another pod use it
}

// NewTiles returns the tiles of the CPUs in the agent's report c. uses has the CPUs of all running containers. From
// them, NewTiles finds conflicts: CPUs that one pod owns and that the kernel lets another pod use.
func NewTiles(c api.NodeCPUs, uses []ContainerCPUs) Tiles {
	t := Tiles{nodes: c.Nodes, cpuMap: New(c), containers: map[int]int{}, conflicts: map[int]bool{}}
	for _, n := range c.Nodes {
		for _, id := range CPUs(n.CPUs) {
			t.highestID = max(t.highestID, id)
		}
	}
	for _, u := range uses {
		for _, id := range CPUs(u.CPUs) {
			t.containers[id]++
			if owner := t.cpuMap.pods[id]; owner != "" && owner != term.Clean(u.Pod) {
				t.conflicts[id] = true
			}
		}
	}
	return t
}

// Block draws packages and NUMA nodes as boxes. In the box of a node, each core is a column of tiles, with one tile for
// each CPU of the core. The drawing is at most width columns wide.
func (t Tiles) Block(width int, c term.Ink) term.Block {
	var packages []term.Block
	for _, pkg := range byPackage(t.nodes) {
		var nodes []term.Block
		for _, n := range pkg {
			inside := t.drawTiles(cores(n), width-8, c)
			if n.CPUs == "" {
				text := term.Cut(MemoryOnlyText(n), max(width-8, 8))
				inside = term.Block{Lines: []string{text}, Width: utf8.RuneCountInString(text)}
			}
			nodes = append(nodes, term.Box(fmt.Sprintf("node %d", n.ID), inside))
		}
		packages = append(packages, term.Box(packageTitle(pkg), term.Flow(nodes, width-4, 1)))
	}
	return term.Below(term.Flow(packages, width, 1), t.drawLegend(width, c))
}

// drawTiles draws cores side by side. A tile has two lines: the id of the CPU, and below the id the CPU's mark.
func (t Tiles) drawTiles(cores [][]int, width int, c term.Ink) term.Block {
	// A tile is as wide as the longest id, and at least 3 columns wide.
	tile := max(3, len(fmt.Sprint(t.highestID)))
	var columns []term.Block
	for _, core := range cores {
		b := term.Block{Width: tile}
		for _, id := range core {
			mark, color := t.markOf(id)
			number := fmt.Sprint(id)
			left := (tile - len(number) + 1) / 2
			b.Lines = append(b.Lines,
				c.Paint(color, term.Pad(strings.Repeat(" ", max(left, 0))+number, tile)),
				c.Paint(color, term.Pad(" "+mark+t.containerCount(id, mark), tile)))
		}
		columns = append(columns, b)
	}
	// If the cores need several rows, the rows get about the same length.
	perRow := max((min(width, 66)+1)/(tile+1), 1)
	if len(columns) > perRow {
		rows := (len(columns) + perRow - 1) / perRow
		perRow = (len(columns) + rows - 1) / rows
	}
	return term.Flow(columns, perRow*(tile+1)-1, 1)
}

// containerCount returns how many running containers may use a CPU, as one character: "+" means more than 9. It returns
// "" if no container may use the CPU, and for a CPU that a pod owns.
func (t Tiles) containerCount(id int, mark string) string {
	n := t.containers[id]
	switch {
	case n == 0 || strings.Contains(letters+TooManyOwners+markConflict, mark):
		return ""
	case n > 9:
		return "+"
	}
	return fmt.Sprint(n)
}

// markOf returns the mark of a CPU, and its colour.
func (t Tiles) markOf(id int) (mark, color string) {
	mark = t.cpuMap.marks[id]
	switch {
	case t.conflicts[id]:
		mark = markConflict
	case mark == "", mark == markNone:
		return " ", ""
	}
	return mark, markColor(mark, tileColors, ownerColors)
}

// drawLegend draws the legend: first the pods that own CPUs, then the pools.
func (t Tiles) drawLegend(width int, c term.Ink) term.Block {
	var owners, others []term.Block
	item := func(mark, text string) term.Block {
		return term.Block{
			Lines: []string{c.Paint(markColor(mark, tileColors, ownerColors), " "+mark+" ") + " " + text},
			Width: 4 + utf8.RuneCountInString(text),
		}
	}
	for _, e := range t.cpuMap.legend {
		switch {
		case strings.Contains(e.text, ", missing "): // the text names CPUs that are possibly not in the drawing
			owners = append(owners, item(e.mark, e.text))
		case e.pod != "":
			owners = append(owners, item(e.mark, e.pod+" alone"))
		case e.mark == markBoth, e.mark == markBalloon:
			others = append(others, item(e.mark, e.text+", and how many containers may run there"))
		default:
			others = append(others, item(e.mark, e.text))
		}
	}
	if len(t.conflicts) > 0 {
		others = append(others, item(markConflict, "owned by one pod, but another pod may use it"))
	}
	return term.Flow(append(owners, others...), width, 2)
}
