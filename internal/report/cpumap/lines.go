package cpumap

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
)

const (
	cpusPerLine  = 64 // CPUs in a line
	cpusPerGroup = 8  // CPUs between two spaces
)

// Text draws one or more lines of marks for each NUMA node, and the legend.
func (p Map) Text(w io.Writer, c api.NodeCPUs) {
	widest := 0
	for _, n := range c.Nodes {
		widest = max(widest, len(n.CPUs))
	}
	for _, n := range c.Nodes {
		if n.CPUs == "" {
			fmt.Fprintf(w, "  node %-2d  %*s  %s\n", n.ID, widest, "-", MemoryOnlyText(n))
			continue
		}
		label := fmt.Sprintf("  node %-2d  %*s  ", n.ID, widest, n.CPUs)
		for line := range slices.Chunk(CPUs(n.CPUs), cpusPerLine) {
			fmt.Fprintln(w, label+p.line(line))
			label = strings.Repeat(" ", len(label))
		}
	}
	for _, o := range p.legend {
		text := o.text
		if o.pod == "" { // the text of a pod's entry already has the CPUs
			text += ": " + topology.FormatList(p.cpusWith(o.mark))
		}
		fmt.Fprintf(w, "  %s %s\n", o.mark, text)
	}
}

// cpusWith returns the CPUs that have a mark, in ascending order.
func (p Map) cpusWith(mark string) (ids []int) {
	for id, m := range p.marks {
		if m == mark {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// MemoryOnlyText describes a NUMA node that has no CPUs, such as CXL memory.
func MemoryOnlyText(n api.NUMA) string {
	if n.Memory == 0 {
		return "no CPUs and no memory"
	}
	return term.Bytes(int64(min(n.Memory, math.MaxInt64))) + " of memory, no CPUs"
}

// line returns the marks of CPUs, with a space between groups of cpusPerGroup marks.
func (p Map) line(ids []int) string {
	var groups []string
	for group := range slices.Chunk(ids, cpusPerGroup) {
		var b strings.Builder
		for _, id := range group {
			b.WriteString(p.marks[id])
		}
		groups = append(groups, b.String())
	}
	return strings.Join(groups, " ")
}
