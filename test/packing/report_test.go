package packing

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// table is printed after all benchmarks.
type table struct{ rows [][]string }

var results table

var head = []string{
	"machine", "full %", "rules", "owners", "resized", "refused", "socket", "node", "device", "memory", "kind", "L3", "L3 %", "core", "distance", "nearest", "pool moves", "CPUs",
}

const notes = `Sums of three histories. owners and resized: choices that were compared with all fits there were. refused: owners and
resizes that got nothing although enough CPUs were free. socket to core: choices with an avoidable straddle, or a card or
memory that is farther than it had to be: a fit was better in this and no worse in anything outside of it. L3 %: of all
choices. distance: of all memory from its owner's nearest CPU; nearest: of the best such fits. pool moves: how often a shared
pool that nobody came to or left lost CPUs; CPUs: how many.
`

func (t *table) row(machine string, full int, rules string, s score) {
	cells := []any{machine, full, rules, s.owners, s.resized, s.refused}
	for c := range criteria {
		cells = append(cells, s.avoidable[c])
		if c == caches {
			cells = append(cells, fmt.Sprintf("%.1f", 100*float64(s.avoidable[c])/float64(max(1, s.owners+s.resized))))
		}
	}
	for _, cost := range []int{s.far, s.nearest} {
		cells = append(cells, fmt.Sprintf("%.2f", 10+float64(cost)/float64(max(1, s.mebi))))
	}
	cells = append(cells, s.moves, s.lost)
	var out []string
	for _, c := range cells {
		out = append(out, fmt.Sprint(c))
	}
	t.rows = append(t.rows, out)
}

// String returns the table, or "" if nothing was played.
func (t *table) String() string {
	if len(t.rows) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintln(&b)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range append([][]string{head}, t.rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	_ = w.Flush()
	for _, s := range shapes {
		fmt.Fprintf(&b, "%s: %s\n", s.name, s.about)
	}
	return b.String() + notes
}

func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Print(results.String())
	os.Exit(code)
}
