package sim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// problemMark is the prefix of a remark that is a problem.
const problemMark = "! "

// view prints the steps of a scenario for users.
type view struct {
	out   io.Writer
	ink   term.Ink // colors the output, if it has colors
	width int      // the width of the output, in columns
	// problems has the different problems of all steps so far. Each key is a container's name followed by the remark.
	problems map[string]bool
}

// newView makes a view that prints to out; nil prints nothing.
func newView(out io.Writer, color bool, width int) *view {
	if out == nil {
		out = io.Discard
	}
	if width <= 0 {
		width = 100
	}
	return &view{out: out, ink: term.Ink{On: color}, width: width, problems: map[string]bool{}}
}

// printf prints a line.
func (v *view) printf(format string, args ...any) { fmt.Fprintf(v.out, format+"\n", args...) }

// printBlock prints the lines of a block, indented.
func (v *view) printBlock(b term.Block) {
	for _, l := range b.Lines {
		v.printf("   %s", strings.TrimRight(l, " "))
	}
}

// printTitle prints the name and the description of a scenario, and the size of its machine.
func (v *view) printTitle(s *scenario.Scenario, m *topology.Machine) {
	packages := map[int]bool{}
	for _, c := range m.CPUs {
		packages[c.Package] = true
	}
	v.printf("%s  %s", v.ink.Paint(term.Bold, s.Name), v.ink.Paint(term.Dim, fmt.Sprintf("on %s, %s, %s, cgroup %s (%s)",
		term.Count(len(packages), "socket"), term.Count(len(m.Nodes), "NUMA node"), term.Count(len(m.CPUs), "CPU"), s.Node.Cgroup, s.Node.Driver)))
	for _, l := range term.Wrap(s.About, v.width) {
		v.printf("%s", l)
	}
}

// stepResult has the results of one step.
type stepResult struct {
	number        int
	step          *scenario.Step
	containerRows []tableRow
	cpuTiles      cpumap.Tiles
	err           error    // the error with which the step's action was rejected; nil if it was not
	unmet         []string // a text for each unmet want
	wants         int      // the number of wants
}

// printStep prints one step: its name, the state of every container, the owners of CPUs, and the unmet wants.
func (v *view) printStep(s stepResult) {
	v.printf("\n%s %s", v.ink.Paint(term.BoldBlue, fmt.Sprintf("%2d", s.number)), v.ink.Paint(term.Bold, s.step.Name))
	if s.err != nil {
		for _, l := range term.Wrap("rejected: "+s.err.Error(), v.width-3) {
			v.printf("   %s", v.ink.Paint(term.BoldYellow, l))
		}
	}
	for _, r := range s.containerRows {
		for _, remark := range r.remarks {
			if strings.HasPrefix(remark, problemMark) {
				v.problems[r.cells[0].text+remark] = true
			}
		}
	}
	v.printf("")
	v.printState(s.containerRows, s.cpuTiles)
	for _, n := range s.unmet {
		v.printf("   %s %s", v.ink.Paint(term.BoldRed, "✗"), n)
	}
	if met := s.wants - len(s.unmet); len(s.unmet) == 0 && s.wants > 0 {
		v.printf("   %s %s", v.ink.Paint(term.Green, "✓"), v.ink.Paint(term.Dim, term.Count(met, "expectation")+" met"))
	}
}

// printState prints the table of containers and the drawing of the node's CPUs.
func (v *view) printState(rows []tableRow, p cpumap.Tiles) {
	if len(rows) > 0 {
		v.printBlock(layOutTable(columns, rows, v.width-3, v.ink))
		v.printf("")
	}
	v.printBlock(p.Block(v.width-3, v.ink))
}

// printSummary prints how many steps, wants and unmet wants the scenario had, and how long it took.
func (v *view) printSummary(steps, wants, unmet int, took time.Duration) {
	took = took.Round(time.Millisecond)
	if unmet == 0 && wants == 0 {
		sign, problems := "·", ""
		if n := len(v.problems); n > 0 {
			sign, problems = v.ink.Paint(term.BoldYellow, "!"), ", "+term.Count(n, "problem")
		}
		v.printf("\n%s played: %s%s; no step has an expectation (want), so nothing was compared; in %s", sign, term.Count(steps, "step"), problems, took)
		return
	}
	sign, text := v.ink.Paint(term.Green, "✓"), "all as expected"
	if unmet > 0 {
		sign, text = v.ink.Paint(term.BoldRed, "✗"), fmt.Sprintf("%d not as expected", unmet)
	}
	v.printf("\n%s %s: %s, %s, read back from the kernel's files and the OCI specs, in %s",
		sign, text, term.Count(steps, "step"), term.Count(wants, "expectation"), took)
}

// columns are the columns of the table of containers.
var columns = []column{
	{"container", 32}, {"class", 10}, {"CPUs", 24}, {"shares", 7}, {"weight", 7}, {"quota", 8}, {"memory", 9}, {"env added", 34},
}

// containerRows returns the table rows of all containers. It highlights the fields that differ from the earlier
// snapshot. If a container is new or has such fields, containerRows adds the reasons of the container's values.
func (p *player) containerRows(before snapshot) []tableRow {
	var rows []tableRow
	for _, c := range p.runtime.Containers() {
		now, err := p.runtime.State(c.Ref)
		if err != nil {
			continue
		}
		explained := p.explainContainer(c.Ref)
		earlier, known := before[c.Ref]
		r := tableRow{cells: containerCells(c, now, earlier, known)}
		r.cells[1].text = explained.Class
		changed := !known || slices.ContainsFunc(r.cells, func(f cell) bool { return f.changed })
		if changed && c.State != "stopped" {
			r.remarks = reasonLines(explained)
		}
		for _, q := range explained.Problems {
			r.remarks = append(r.remarks, problemMark+q.String())
		}
		rows = append(rows, r)
	}
	return rows
}

// containerCells returns a container's cells in the order of columns. It highlights the values that differ from the
// earlier state. If known is false, there is no earlier state, and it highlights nothing.
func containerCells(c ContainerInfo, now, earlier effective.State, known bool) []cell {
	cells := make([]cell, len(columns))
	cells[0].text = string(c.Ref)
	if c.State != "running" {
		cells[0].text += " (" + c.State + ")"
	}
	if c.State == "stopped" {
		return cells
	}
	newCell := func(text string, same bool) cell { return cell{text, known && !same} }
	cells[2] = newCell(now.CPUs, now.CPUs == earlier.CPUs)
	shares := 3
	if now.V2 {
		shares = 4
	}
	cells[shares] = newCell(strconv.FormatUint(now.Shares, 10), now.Shares == earlier.Shares)
	cells[5] = newCell(formatQuota(now), now.Quota == earlier.Quota && now.Period == earlier.Period)
	cells[6] = newCell(formatMemory(now.Memory), now.Memory == earlier.Memory)
	cells[7].text = strings.Join(addedEnv(now, c.Request), "\n")
	return cells
}

// addedEnv returns the environment variables that plugins added to the requested variables.
func addedEnv(now effective.State, request scenario.Container) []string {
	withoutPlugins := map[string]string{"PATH": now.Env["PATH"], "HOSTNAME": now.Env["HOSTNAME"]}
	for k, v := range request.Env {
		withoutPlugins[k] = v
	}
	return now.AddedEnv(withoutPlugins)
}

// explainContainer returns the agent's report about a container; empty if the agent does not know the container.
func (p *player) explainContainer(ref scenario.Ref) api.Container {
	namespace, pod, name := ref.Names()
	found, ok := p.agent.agent.Source().Explain(namespace, pod, name)
	if !ok || len(found) == 0 {
		return api.Container{}
	}
	return found[0]
}

// cpuTiles draws the owners and users of the node's CPUs.
func (p *player) cpuTiles() cpumap.Tiles {
	return cpumap.NewTiles(p.agent.agent.Source().Status().CPUs, p.runtime.usedCPUs())
}

// reasonLines returns the problems and reasons of a container's values. It returns a line for each value that is not
// applied, and a line for each source of values, such as an annotation. If no value has a reason, it adds a line with
// the reason for the container's CPU group.
func reasonLines(c api.Container) []string {
	var lines []string
	var sources []string
	reasons := map[string][]string{}
	for _, v := range c.Values {
		if !v.Applied {
			lines = append(lines, fmt.Sprintf(problemMark+"%s is not applied: %s", v.Field, v.Note))
		}
		text := cmp.Or(v.Why.Text, v.Why.Hook)
		if text == "" || slices.Contains(reasons[v.Why.Source], text) {
			continue
		}
		if !slices.Contains(sources, v.Why.Source) {
			sources = append(sources, v.Why.Source)
		}
		reasons[v.Why.Source] = append(reasons[v.Why.Source], text)
	}
	if len(sources) == 0 && c.CPUGroupWhy != "" {
		return append(lines, c.CPUGroupWhy)
	}
	for _, s := range sources {
		line := strings.Join(reasons[s], ", ")
		if s != "" {
			line += " ← " + s
		}
		lines = append(lines, line)
	}
	return lines
}

// formatQuota formats a container's CPU quota as a number of CPUs.
func formatQuota(s effective.State) string {
	if s.Quota == effective.Unlimited || s.Period <= 0 {
		return "none"
	}
	return term.CPUs(s.Quota * 1000 / s.Period)
}

// formatMemory formats an amount of memory.
func formatMemory(n int64) string {
	if n == effective.Unlimited {
		return "none"
	}
	return term.Bytes(n)
}
