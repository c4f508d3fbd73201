package sim

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// seat is who a CPU belongs to, as the picture shows it.
type seat struct {
	mark  string // one character
	color string // SGR code of the tile
}

// legend is one explained mark.
type legend struct {
	seat
	text string
}

// picture is the node's CPUs with their owners.
type picture struct {
	machine *topology.Machine
	seats   map[int]seat // by kernel id
	load    map[int]int  // how many running containers may use a CPU
	legend  []legend
}

// The tiles of CPUs nobody owns alone, and one that two say they own.
var (
	sharedSeat    = seat{"s", "38;5;255;48;5;24"}
	reclaimedSeat = seat{"r", "38;5;255;48;5;58"}
	bothSeat      = seat{"·", "38;5;255;48;5;238"}
	systemSeat    = seat{"#", "38;5;250;48;5;234"}
	brokenSeat    = seat{"!", "1;38;5;231;48;5;160"}
)

// exclusiveColors are the tiles of CPUs a pod owns, by letter.
var exclusiveColors = []string{
	"1;38;5;231;48;5;161", "1;38;5;231;48;5;28", "1;38;5;16;48;5;214",
	"1;38;5;231;48;5;93", "1;38;5;16;48;5;44", "1;38;5;16;48;5;226",
}

// draw makes the picture of who has which CPU: grants and pools as the agent
// tells them, held against what the kernel lets containers use. A CPU that is
// granted to one pod and usable by another is marked as broken.
func draw(m *topology.Machine, told api.NodeCPUs, used map[scenario.Ref]string) picture {
	p := picture{machine: m, seats: map[int]seat{}, load: map[int]int{}}
	for _, cpus := range used {
		ids, _ := topology.ParseList(cpus)
		for _, id := range ids {
			p.load[id]++
		}
	}
	paint := func(list string, s seat) bool {
		ids, _ := topology.ParseList(list)
		for _, id := range ids {
			p.seats[id] = s
		}
		return len(ids) > 0
	}
	shared, _ := topology.ParseList(told.Shared)
	reclaimed, _ := topology.ParseList(told.Reclaimed)
	p.pools(shared, reclaimed)
	if paint(told.Reserved, systemSeat) {
		p.legend = append(p.legend, legend{systemSeat, "reserved"})
	}
	broken := false
	for _, pod := range owners(told.Grants) {
		n := len(p.letters())
		s := seat{string(rune('A' + n%26)), exclusiveColors[n%len(exclusiveColors)]}
		paint(pod.CPUs, s)
		p.legend = slices.Insert(p.legend, n, legend{s, pod.Pod + " alone"})
		for _, id := range intruders(pod, used) {
			p.seats[id], broken = brokenSeat, true
		}
	}
	if broken {
		p.legend = append(p.legend, legend{brokenSeat, "granted to one pod, usable by another"})
	}
	return p
}

func (p *picture) letters() []legend {
	return slices.DeleteFunc(slices.Clone(p.legend), func(l legend) bool { return l.mark < "A" || l.mark > "Z" })
}

func (p *picture) pools(shared, reclaimed []int) {
	counts := map[seat]int{}
	for _, id := range shared {
		p.seats[id] = sharedSeat
	}
	for _, id := range reclaimed {
		if p.seats[id] == sharedSeat {
			p.seats[id] = bothSeat
		} else {
			p.seats[id] = reclaimedSeat
		}
	}
	for _, s := range p.seats {
		counts[s]++
	}
	for _, l := range []legend{
		{bothSeat, "shared and reclaimed pool, and how many containers may run there"},
		{sharedSeat, "shared pool"}, {reclaimedSeat, "reclaimed pool"},
	} {
		if counts[l.seat] > 0 {
			p.legend = append(p.legend, l)
		}
	}
}

// owners joins the grants of a pod's containers, pods in order of first grant.
func owners(grants []api.Grant) []api.Grant {
	var pods []api.Grant
	for _, g := range grants {
		i := slices.IndexFunc(pods, func(o api.Grant) bool { return o.Pod == g.Pod })
		if i < 0 {
			pods = append(pods, g)
			continue
		}
		pods[i].CPUs += "," + g.CPUs
	}
	slices.SortFunc(pods, func(a, b api.Grant) int { return strings.Compare(a.Pod, b.Pod) })
	return pods
}

// intruders returns the CPUs of a pod that containers of others may use.
func intruders(pod api.Grant, used map[scenario.Ref]string) []int {
	own, _ := topology.ParseList(pod.CPUs)
	var found []int
	for ref, cpus := range used {
		if string(ref.Pod()) == pod.Pod {
			continue
		}
		ids, _ := topology.ParseList(cpus)
		for _, id := range own {
			if slices.Contains(ids, id) {
				found = append(found, id)
			}
		}
	}
	return found
}

// render draws packages and NUMA nodes as boxes, a column per core and a row of
// tiles per thread, at most width columns wide.
func (p picture) render(width int, c ink) block {
	var packages []block
	for _, pkg := range p.packages() {
		var nodes []block
		for _, n := range pkg.nodes {
			nodes = append(nodes, box(fmt.Sprintf("node %d", n.id), p.tiles(n.cores, width-8, c)))
		}
		packages = append(packages, box(fmt.Sprintf("socket %d", pkg.id), flow(nodes, width-4, 1)))
	}
	return below(flow(packages, width, 1), p.explain(width, c))
}

// flow puts blocks side by side and begins a new row where width is used up.
func flow(blocks []block, width, gap int) block {
	var rows []block
	for len(blocks) > 0 {
		n, w := 1, blocks[0].width
		for n < len(blocks) && w+gap+blocks[n].width <= width {
			w += gap + blocks[n].width
			n++
		}
		rows = append(rows, beside(gap, blocks[:n]...))
		blocks = blocks[n:]
	}
	return below(rows...)
}

type drawnNode struct {
	id    int
	cores [][]int // kernel ids of each core's threads
}

type drawnPackage struct {
	id    int
	nodes []drawnNode
}

// packages arranges the machine's CPUs as boxes.
func (p picture) packages() []drawnPackage {
	var out []drawnPackage
	at := map[[3]int][2]int{} // package, node, core -> place of the core
	for _, c := range p.machine.CPUs {
		pi := slices.IndexFunc(out, func(d drawnPackage) bool { return d.id == c.Package })
		if pi < 0 {
			out, pi = append(out, drawnPackage{id: c.Package}), len(out)
		}
		pkg := &out[pi]
		ni := slices.IndexFunc(pkg.nodes, func(n drawnNode) bool { return n.id == c.Node })
		if ni < 0 {
			pkg.nodes, ni = append(pkg.nodes, drawnNode{id: c.Node}), len(pkg.nodes)
		}
		n := &pkg.nodes[ni]
		place, seen := at[[3]int{c.Package, c.Node, c.Core}]
		if !seen {
			place = [2]int{ni, len(n.cores)}
			at[[3]int{c.Package, c.Node, c.Core}] = place
			n.cores = append(n.cores, nil)
		}
		n.cores[place[1]] = append(n.cores[place[1]], c.ID)
	}
	return out
}

// tiles draws cores side by side, each thread as its id over its mark.
func (p picture) tiles(cores [][]int, width int, c ink) block {
	// A tile is as wide as the longest id, and wide enough to be seen.
	tile := max(3, len(fmt.Sprint(p.machine.CPUs[len(p.machine.CPUs)-1].ID)))
	var columns []block
	for _, threads := range cores {
		b := block{width: tile}
		for _, id := range threads {
			s, ok := p.seats[id]
			if !ok {
				s = seat{" ", ""}
			}
			number := fmt.Sprint(id)
			left := (tile - len(number) + 1) / 2
			b.lines = append(b.lines,
				c.paint(s.color, pad(strings.Repeat(" ", max(left, 0))+number, tile)),
				c.paint(s.color, pad(" "+s.mark+p.count(id, s), tile)))
		}
		columns = append(columns, b)
	}
	// Long nodes in rows of equal length.
	perRow := max((min(width, 66)+1)/(tile+1), 1)
	if len(columns) > perRow {
		rows := (len(columns) + perRow - 1) / perRow
		perRow = (len(columns) + rows - 1) / rows
	}
	return flow(columns, perRow*(tile+1)-1, 1)
}

// count is how many containers may use a CPU that nobody owns.
func (p picture) count(id int, s seat) string {
	n := p.load[id]
	switch {
	case n == 0 || s.mark >= "A" && s.mark <= "Z" || s == brokenSeat:
		return ""
	case n > 9:
		return "+"
	}
	return fmt.Sprint(n)
}

func (p picture) explain(width int, c ink) block {
	var items []block
	for _, l := range p.legend {
		items = append(items, block{
			lines: []string{c.paint(l.color, " "+l.mark+" ") + " " + l.text},
			width: 4 + utf8.RuneCountInString(l.text),
		})
	}
	return flow(items, width, 2)
}
