package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/topology"
)

// Frame is what one look shows.
type Frame struct {
	Node     api.Node
	Busy     map[int]float64 // by CPU, 0 to 1
	Pressure []Pressure
	// History is how busy each row's CPUs were, oldest first, by the row's name.
	History map[string][]float64
	ByName  bool // rows by name, else the busiest first
	Paused  bool
	Trouble string // why the agent or /proc could not be asked
	Width   int    // columns; 100 where 0
	Height  int    // lines of the terminal; 0 where there is none
	Color   bool
}

// Row is a pod that owns CPUs, or a pool.
type Row struct {
	Name string
	Mark string
	CPUs []int
	// Containers sit in the pool; of an owner they are not counted.
	Containers string
}

// Rows are the owners of CPUs and the pools, as the agent tells them.
func Rows(n api.Node) []Row {
	var rows []Row
	for _, m := range status.Marks(n.CPUs) {
		if m.Pod != "" {
			rows = append(rows, Row{Name: m.Pod, Mark: m.Mark, CPUs: m.CPUs})
		}
	}
	pools := n.CPUs.Pools
	if len(pools) == 0 {
		pools = []api.Pool{{Name: "shared", CPUs: n.CPUs.Shared, Members: -1}, {Name: "reclaimed", CPUs: n.CPUs.Reclaimed, Members: -1}}
	}
	for _, pool := range pools {
		if ids := list(pool.CPUs); len(ids) > 0 {
			r := Row{Name: status.Clean(pool.Name) + " pool", CPUs: ids}
			if pool.Members >= 0 {
				r.Containers = strconv.Itoa(pool.Members)
			}
			rows = append(rows, r)
		}
	}
	if ids := list(n.CPUs.Reserved); len(ids) > 0 {
		rows = append(rows, Row{Name: "reserved", CPUs: ids})
	}
	return rows
}

// Share is how busy CPUs are together; ok is false where nothing is known of any.
func Share(busy map[int]float64, ids []int) (share float64, ok bool) {
	n := 0
	for _, id := range ids {
		if b, known := busy[id]; known {
			share += b
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	return share / float64(n), true
}

// String draws the frame. Lines are cut at the width.
func (f Frame) String() string {
	if f.Width == 0 {
		f.Width = 100
	}
	lines := f.head()
	lines = append(lines, "")
	lines = append(lines, f.cpus()...)
	lines = append(lines, "")
	lines = append(lines, f.rows()...)
	if f.Height == 0 { // nobody is there to press a key
		return strings.Join(lines, "\n")
	}
	if most := max(f.Height, 3); len(lines) > most-1 {
		lines = append(lines[:most-2], fmt.Sprintf("… %d more lines", len(lines)-most+2))
	}
	return strings.Join(append(lines, f.paint(dim, f.cut("q quit   space pause   s sort by name or use"))), "\n")
}

func (f Frame) head() []string {
	n := f.Node
	first := "trimtab " + status.Clean(n.Version)
	for _, a := range n.Attachments {
		first += "   " + status.Clean(a.Name+": "+a.State)
	}
	amiss := "everything decided is in force"
	if n.Unapplied+n.Problems > 0 {
		amiss = fmt.Sprintf("values not applied: %d, problems: %d", n.Unapplied, n.Problems)
	}
	first = f.cut(fmt.Sprintf("%s   %d containers, %s", first, len(n.Containers), amiss))
	if n.Unapplied+n.Problems > 0 {
		first = f.paint(red, first)
	}
	lines := []string{first}
	var waits []string
	for _, p := range f.Pressure {
		waits = append(waits, fmt.Sprintf("%s %s %.1f %%", p.Resource, p.Kind, p.Percent))
	}
	if len(waits) > 0 {
		lines = append(lines, f.cut("pressure, last 10 s   "+strings.Join(waits, "   ")))
	}
	if f.Paused {
		lines = append(lines, f.paint(yellow, f.cut("paused; space goes on")))
	}
	if f.Trouble != "" {
		lines = append(lines, f.paint(red, f.cut(status.Clean(f.Trouble))))
	}
	return lines
}

// cpus draws each NUMA node in pairs of lines: how busy its CPUs are, and who may use them.
func (f Frame) cpus() []string {
	marks := map[int]string{}
	for _, m := range status.Marks(f.Node.CPUs) {
		for _, id := range m.CPUs {
			marks[id] = m.Mark
		}
	}
	widest := 0
	for _, n := range f.Node.CPUs.Nodes {
		widest = max(widest, len(n.CPUs))
	}
	var lines []string
	for _, n := range f.Node.CPUs.Nodes {
		ids := list(n.CPUs)
		if len(ids) == 0 {
			continue
		}
		label := fmt.Sprintf("node %-2d %-*s  %s  ", n.ID, widest, n.CPUs, f.percent(ids))
		blank := strings.Repeat(" ", len([]rune(label)))
		for part := range slices.Chunk(ids, max(8, (f.Width-len(blank))*8/9/8*8)) {
			var bars, who strings.Builder
			for i, id := range part {
				if i > 0 && i%8 == 0 {
					bars.WriteByte(' ')
					who.WriteByte(' ')
				}
				bars.WriteString(f.bar(id))
				who.WriteString(cmp.Or(marks[id], " "))
			}
			lines = append(lines, label+bars.String(), blank+f.paint(dim, who.String()))
			label = blank
		}
	}
	return lines
}

const steps = "▁▂▃▄▅▆▇█"

// block is the bar of a share.
func block(share float64) string {
	all := []rune(steps)
	return string(all[min(len(all)-1, int(share*float64(len(all))))])
}

func (f Frame) bar(id int) string {
	share, known := f.Busy[id]
	if !known {
		return "?"
	}
	return f.paint(heat(share), block(share))
}

func (f Frame) percent(ids []int) string {
	share, ok := Share(f.Busy, ids)
	if !ok {
		return "    -"
	}
	return fmt.Sprintf("%3.0f %%", 100*share)
}

// rows is the table of owners and pools, with what they did lately.
func (f Frame) rows() []string {
	rows := Rows(f.Node)
	if f.ByName {
		slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	} else {
		slices.SortStableFunc(rows, func(a, b Row) int {
			x, _ := Share(f.Busy, a.CPUs)
			y, _ := Share(f.Busy, b.CPUs)
			return cmp.Compare(y, x)
		})
	}
	name, cpus := len("OWNER"), len("CPUS")
	for _, r := range rows {
		name, cpus = max(name, len([]rune(r.Name))), max(cpus, len(topology.FormatList(r.CPUs)))
	}
	name, cpus = min(name, f.Width/3), min(cpus, f.Width/3)
	lines := []string{f.paint(dim, f.cut(fmt.Sprintf("  %-*s  %-*s  CONTAINERS   BUSY  LATELY", name, "OWNER", cpus, "CPUS")))}
	for _, r := range rows {
		var lately strings.Builder
		for _, share := range f.History[r.Name] {
			lately.WriteString(block(share))
		}
		lines = append(lines, f.cut(fmt.Sprintf("%1s %-*s  %-*s  %10s  %s  %s", r.Mark, name, short(r.Name, name), cpus,
			short(topology.FormatList(r.CPUs), cpus), r.Containers, f.percent(r.CPUs), lately.String())))
	}
	return lines
}

// short cuts a text, which says so by its end.
func short(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns {
		return text
	}
	return string(runes[:columns-1]) + "…"
}

func (f Frame) cut(line string) string { return short(line, f.Width) }

// Colours of a terminal (ECMA-48).
const (
	dim    = "2"
	red    = "31"
	yellow = "33"
	green  = "32"
)

func heat(share float64) string {
	switch {
	case share >= 0.9:
		return red
	case share >= 0.6:
		return yellow
	}
	return green
}

func (f Frame) paint(color, text string) string {
	if !f.Color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func list(text string) []int {
	ids, err := topology.ParseList(text)
	if err != nil {
		return nil // what the agent sent is drawn as far as it can be read
	}
	return ids
}
