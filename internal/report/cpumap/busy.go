package cpumap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// LoadLines draws each NUMA node in pairs of lines. The first line shows the load of each CPU, and the second line
// shows the marks of the CPUs. busy has the load by CPU id, from 0 to 1. If busy is empty, LoadLines draws only the
// marks.
func LoadLines(c api.NodeCPUs, busy map[int]float64, width int, ink term.Ink) []string {
	marks := New(c).marks
	widest := 0
	for _, n := range c.Nodes {
		widest = max(widest, len(n.CPUs))
	}
	var lines []string
	for _, n := range c.Nodes {
		ids := CPUs(n.CPUs)
		if len(ids) == 0 {
			lines = append(lines, term.Cut(fmt.Sprintf("node %-2d %-*s         %s", n.ID, widest, "-", MemoryOnlyText(n)), width))
			continue
		}
		label := fmt.Sprintf("node %-2d %-*s  %s  ", n.ID, widest, n.CPUs, averagePercent(busy, ids))
		blank := strings.Repeat(" ", len([]rune(label)))
		for part := range slices.Chunk(ids, max(8, (width-len(blank))*8/9/8*8)) {
			var bars, who strings.Builder
			for i, id := range part {
				if i > 0 && i%8 == 0 {
					bars.WriteByte(' ')
					who.WriteByte(' ')
				}
				bars.WriteString(loadBar(busy, id))
				who.WriteString(cmp.Or(marks[id], " "))
			}
			if len(busy) > 0 {
				lines, label = append(lines, label+bars.String()), blank
			}
			lines, label = append(lines, label+ink.Paint(term.Dim, who.String())), blank
		}
	}
	return lines
}

// barCharacters are the characters that Bar returns, from idle to busy.
const barCharacters = "▁▂▃▄▅▆▇█"

// Bar returns one character that shows a share from 0 to 1.
func Bar(share float64) string {
	all := []rune(barCharacters)
	return string(all[min(len(all)-1, int(share*float64(len(all))))])
}

// loadBar returns one character that shows the load of a CPU, or "?" if the load is unknown.
func loadBar(busy map[int]float64, id int) string {
	share, known := busy[id]
	if !known {
		return "?"
	}
	return Bar(share)
}

// averagePercent formats the mean load of a set of CPUs as a percentage. It leaves out CPUs whose load is unknown, and
// returns "-" if the load of no CPU is known.
func averagePercent(busy map[int]float64, ids []int) string {
	sum, n := 0.0, 0
	for _, id := range ids {
		if share, known := busy[id]; known {
			sum, n = sum+share, n+1
		}
	}
	if n == 0 {
		return "    -"
	}
	return fmt.Sprintf("%3.0f %%", 100*sum/float64(n))
}
