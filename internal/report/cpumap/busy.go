package cpumap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Share is how busy a set of CPUs is on average. ok is false if nothing is known about any of them.
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

// Busy draws each NUMA node in pairs of lines: how busy its CPUs are (0 to 1), and who may use them. If nothing is known
// of any CPU, it draws only the second line of each pair.
func Busy(c api.NodeCPUs, busy map[int]float64, width int, ink term.Ink) []string {
	marks := map[int]string{}
	for _, m := range Marks(c) {
		for _, id := range m.CPUs {
			marks[id] = m.Mark
		}
	}
	widest := 0
	for _, n := range c.Nodes {
		widest = max(widest, len(n.CPUs))
	}
	var lines []string
	for _, n := range c.Nodes {
		ids := CPUs(n.CPUs)
		if len(ids) == 0 {
			lines = append(lines, term.Cut(fmt.Sprintf("node %-2d %-*s         %s", n.ID, widest, "-", MemoryAlone(n)), width))
			continue
		}
		label := fmt.Sprintf("node %-2d %-*s  %s  ", n.ID, widest, n.CPUs, Percent(busy, ids))
		blank := strings.Repeat(" ", len([]rune(label)))
		for part := range slices.Chunk(ids, max(8, (width-len(blank))*8/9/8*8)) {
			var bars, who strings.Builder
			for i, id := range part {
				if i > 0 && i%8 == 0 {
					bars.WriteByte(' ')
					who.WriteByte(' ')
				}
				bars.WriteString(bar(busy, id))
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

const steps = "▁▂▃▄▅▆▇█"

// Bar shows a share as one character.
func Bar(share float64) string {
	all := []rune(steps)
	return string(all[min(len(all)-1, int(share*float64(len(all))))])
}

func bar(busy map[int]float64, id int) string {
	share, known := busy[id]
	if !known {
		return "?"
	}
	return Bar(share)
}

// Percent formats how busy a set of CPUs is on average.
func Percent(busy map[int]float64, ids []int) string {
	share, ok := Share(busy, ids)
	if !ok {
		return "    -"
	}
	return fmt.Sprintf("%3.0f %%", 100*share)
}
