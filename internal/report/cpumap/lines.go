package cpumap

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
)

// perLine is how many CPUs one line shows, in groups.
const (
	perLine  = 64
	perGroup = 8
)

// Text draws one or more lines per NUMA node, and the legend.
func (p Map) Text(w io.Writer, c api.NodeCPUs) {
	widest := 0
	for _, n := range c.Nodes {
		widest = max(widest, len(n.CPUs))
	}
	for _, n := range c.Nodes {
		label := fmt.Sprintf("  node %-2d  %*s  ", n.ID, widest, n.CPUs)
		for line := range slices.Chunk(CPUs(n.CPUs), perLine) {
			fmt.Fprintln(w, label+p.line(line))
			label = strings.Repeat(" ", len(label))
		}
	}
	for _, o := range p.legend {
		fmt.Fprintf(w, "  %s %s\n", o.mark, o.text)
	}
}

func (p Map) line(ids []int) string {
	var groups []string
	for group := range slices.Chunk(ids, perGroup) {
		var b strings.Builder
		for _, id := range group {
			b.WriteString(p.marks[id])
		}
		groups = append(groups, b.String())
	}
	return strings.Join(groups, " ")
}
