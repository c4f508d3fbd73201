package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/report/usage"
	"github.com/trimtab/trimtab/internal/topology"
)

// Frame is what the screen shows for one sample.
type Frame struct {
	Node     api.Node
	Busy     map[int]float64  // share of time that each CPU was busy, by id, 0 to 1
	Pressure []usage.Pressure // the node's pressure stall information
	// Used is the CPU time that each container has used since the last sample, by container id. It leaves out
	// containers that were not in the last sample.
	Used map[string]ContainerUsage
	// History has the share of each row (Row.share) in the last samples, by the name of the row. Each list begins with
	// the oldest sample.
	History     map[string][]float64
	ByName      bool   // sort rows by name; otherwise the busiest row is first
	Paused      bool   // the user has paused the view
	SampleError string // why the last sample failed; "" if it succeeded
	Width       int    // columns; 0 means 100
	Height      int    // lines of the terminal; 0 without a terminal
	Color       bool   // draw with colours
}

// Row is a row of the table above the containers: a pod that owns CPUs, a pool, or the reserved CPUs.
type Row struct {
	Name string
	Mark string // the character that stands for a pod's CPUs in the CPU map; "" for a pool
	CPUs []int
	// Containers is the number of containers in a pool. It is empty if the row is no pool, or if the number is unknown.
	Containers string
	// Used is the mean number of CPUs that the row's containers have used; -1 if this number is unknown.
	Used float64
}

// share returns the number of CPUs that the row's containers have used, divided by the number of the row's CPUs. It is
// above 1 if the containers also used other CPUs: before the last change of the row's CPUs, or because the containers'
// cpuset is not in force. The second result is false if the share is unknown.
func (r Row) share() (float64, bool) {
	if r.Used < 0 || len(r.CPUs) == 0 {
		return 0, false
	}
	return r.Used / float64(len(r.CPUs)), true
}

// shareText formats the share as a percentage, or as "-" if it is unknown or above 1.05. A share between 1 and 1.05
// counts as 1: the agent reads the containers' counters one after another, so a share is not exact.
func (r Row) shareText() string {
	share, ok := r.share()
	if !ok || share > 1.05 {
		return "     -"
	}
	return fmt.Sprintf("%4.0f %%", 100*min(share, 1))
}

// Rows returns a row for each pod that owns CPUs, for each pool, and for the reserved CPUs.
func Rows(n api.Node, used map[string]ContainerUsage) []Row {
	var rows []Row
	for _, m := range cpumap.Marks(n.CPUs) {
		if m.Pod != "" {
			rows = append(rows, Row{Name: m.Pod, Mark: m.Mark, CPUs: m.CPUs, Used: sumCPUs(used, func(u ContainerUsage) bool { return u.Pool == "" && term.Clean(u.Pod) == m.Pod })})
		}
	}
	pools := n.CPUs.Pools
	if len(pools) == 0 {
		pools = []api.Pool{{Name: "shared", CPUs: n.CPUs.Shared, Members: -1}, {Name: "reclaimed", CPUs: n.CPUs.Reclaimed, Members: -1}}
	}
	for _, pool := range pools {
		if ids := cpumap.CPUs(pool.CPUs); len(ids) > 0 {
			r := Row{Name: term.Clean(pool.Name) + " pool", CPUs: ids, Used: sumCPUs(used, func(u ContainerUsage) bool { return u.Pool == pool.Name })}
			if pool.Members >= 0 {
				r.Containers = strconv.Itoa(pool.Members)
			}
			if pool.Members == 0 && used != nil {
				r.Used = 0
			}
			rows = append(rows, r)
		}
	}
	if ids := cpumap.CPUs(n.CPUs.Reserved); len(ids) > 0 {
		rows = append(rows, Row{Name: "reserved", CPUs: ids, Used: -1})
	}
	return rows
}

// sumCPUs adds up the mean numbers of CPUs (ContainerUsage.CPUs) of all containers for which matches returns true. It
// returns -1 if there is no such container.
func sumCPUs(used map[string]ContainerUsage, matches func(ContainerUsage) bool) float64 {
	total, known := 0.0, false
	for _, u := range used {
		if matches(u) {
			total, known = total+u.CPUs, true
		}
	}
	if !known {
		return -1
	}
	return total
}

// String draws the frame. It cuts lines that are longer than the width.
func (f Frame) String() string {
	if f.Width == 0 {
		f.Width = 100
	}
	lines := f.header()
	lines = append(lines, "")
	lines = append(lines, cpumap.LoadLines(f.Node.CPUs, f.Busy, f.Width, term.Ink{On: f.Color})...)
	lines = append(lines, "")
	lines = append(lines, f.ownerLines()...)
	lines = append(lines, f.containerLines()...)
	if f.Height == 0 { // the output is not a terminal, so there are no keys to press
		return strings.Join(lines, "\n")
	}
	if most := max(f.Height, 3); len(lines) > most-1 {
		lines = append(lines[:most-2], fmt.Sprintf("… %d more lines", len(lines)-most+2))
	}
	return strings.Join(append(lines, f.paint(term.Dim, f.cut("q quit   space pause   s sort by name or use"))), "\n")
}

// header returns the lines above the CPU map: the agent's version and state, the pressure, and messages.
func (f Frame) header() []string {
	n := f.Node
	first := "trimtab " + term.Clean(n.Version)
	for _, a := range n.Attachments {
		first += "   " + term.Clean(a.Name+": "+a.State)
	}
	amiss := "all decided values are in force"
	switch {
	case n.Unapplied+n.Problems > 0:
		amiss = fmt.Sprintf("values not applied: %d, problems: %d", n.Unapplied, n.Problems)
	case n.Released:
		amiss = "released " + n.ReleasedAt.Format("15:04:05") + ", the agent decides nothing"
	case !n.Connected() && n.Standby == "":
		amiss = "the agent is not attached to a runtime"
	}
	first = f.cut(fmt.Sprintf("%s   %d containers, %s", first, len(n.Containers), amiss))
	if n.Unapplied+n.Problems > 0 {
		first = f.paint(term.Red, first)
	}
	lines := []string{first}
	var waits []string
	for _, p := range f.Pressure {
		waits = append(waits, p.String())
	}
	if len(waits) > 0 {
		lines = append(lines, f.cut("pressure, last 10 s   "+strings.Join(waits, "   ")))
	}
	if n.Simulated {
		lines = append(lines, f.cut("a simulated node: nothing runs on its CPUs, so their use is not shown"))
	}
	if f.Paused {
		lines = append(lines, f.paint(term.Yellow, f.cut("paused; press space to continue")))
	}
	if f.SampleError != "" {
		lines = append(lines, f.paint(term.Red, f.cut(term.Clean(f.SampleError))))
	}
	return lines
}

// ownerLines returns the lines of the table of pods that own CPUs, and of pools. Each line shows how many CPUs the
// containers of the pod or pool used between the last two samples, and their share in the samples before.
func (f Frame) ownerLines() []string {
	rows := Rows(f.Node, f.Used)
	slices.SortStableFunc(rows, func(a, b Row) int {
		if f.ByName {
			return cmp.Compare(a.Name, b.Name)
		}
		return cmp.Compare(b.Used, a.Used)
	})
	name, cpus := len("OWNER"), len("CPUS")
	for _, r := range rows {
		name, cpus = max(name, len([]rune(r.Name))), max(cpus, len(topology.FormatList(r.CPUs)))
	}
	name, cpus = min(name, f.Width/3), min(cpus, f.Width/3)
	lines := []string{f.paint(term.Dim, f.cut(fmt.Sprintf("  %-*s  %-*s  CONTAINERS      USED        HISTORY", name, "OWNER", cpus, "CPUS")))}
	for _, r := range rows {
		var lately strings.Builder
		for _, share := range f.History[r.Name] {
			lately.WriteString(cpumap.Bar(min(share, 1)))
		}
		lines = append(lines, f.cut(strings.TrimRight(fmt.Sprintf("%1s %-*s  %-*s  %10s  %8s %s  %s", r.Mark, name, term.Cut(r.Name, name), cpus,
			term.Cut(topology.FormatList(r.CPUs), cpus), r.Containers, numberText("%.2f CPU", r.Used), r.shareText(), lately.String()), " ")))
	}
	return lines
}

// cut cuts a line that is longer than the width.
func (f Frame) cut(line string) string { return term.Cut(line, f.Width) }

// paint adds a colour to a text, if the frame has colours.
func (f Frame) paint(color, text string) string { return term.Ink{On: f.Color}.Paint(color, text) }
