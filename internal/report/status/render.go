package status

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Options are the options of the output.
type Options struct {
	Color bool      // the output has colours
	Now   time.Time // the present time, from which ages are computed
	// Namespace and Class limit the table of containers to one namespace and one class; "" means all.
	Namespace, Class string
	// Matches reports whether a pod with these labels is in the table of containers; nil means all.
	Matches func(labels map[string]string) bool
	// Wide shows values as the kernel and the API have them, without units.
	Wide bool
	// Width is the maximum width of lines of text, in columns; 0 means 100.
	Width int
}

// isShown reports whether the table of containers shows a container.
func (o Options) isShown(c api.Container) bool {
	return (o.Namespace == "" || strings.HasPrefix(c.Pod, o.Namespace+"/")) && (o.Class == "" || c.Class == o.Class) &&
		(o.Matches == nil || o.Matches(c.Labels))
}

// RenderStatus shows the state of a node.
func RenderStatus(w io.Writer, n api.Node, o Options) error {
	var b bytes.Buffer
	head := newTableWriter(&b)
	fmt.Fprintf(head, "trimtab\t%s, up %s\n", term.Clean(n.Version), term.Age(o.Now.Sub(n.Started)))
	fmt.Fprintf(head, "configuration\t%s, generation %d\n", cmp.Or(term.Clean(n.ConfigFile), "defaults, no file"), n.ConfigGen)
	label := ""
	for _, l := range n.Lines(o.Now) {
		first, text := l.Label, term.Clean(l.Text)
		if first == label {
			first = ""
		}
		if label = l.Label; l.Severity != api.Info {
			text = o.markFault(text)
		}
		fmt.Fprintf(head, "%s\t%s\n", term.Clean(first), text)
	}
	trouble := o.summary(n)
	if n.Observed != nil || n.Released && n.Unapplied == 0 {
		trouble = term.Count(n.Problems, "problem")
	}
	fmt.Fprintf(head, "containers\t%d, %s\n", len(n.Containers), trouble)
	flush(head)
	fmt.Fprint(&b, "\nCPUs\n")
	o.drawCPUs(&b, n)
	writePoolTable(&b, n.CPUs.Pools)
	writeContainerTable(&b, n, o)
	return writeTrimmed(w, &b)
}

// maxBoxedCPUs is the largest number of CPUs for which drawCPUs draws boxes of sockets, NUMA nodes and cores. Boxes of
// more CPUs do not fit on a screen, so drawCPUs then draws lines.
const maxBoxedCPUs = 128

// drawCPUs draws who may use each CPU. If it draws boxes, it also shows how many running containers may use each CPU
// that no pod owns.
func (o Options) drawCPUs(w io.Writer, n api.Node) {
	cpus := n.CPUs
	if len(cpumap.CPUs(cpus.Online)) > maxBoxedCPUs || len(cpus.Nodes) == 0 {
		cpumap.New(cpus).Text(w, cpus)
		return
	}
	var uses []cpumap.ContainerCPUs
	for _, c := range n.Containers {
		if c.State == "running" {
			uses = append(uses, cpumap.ContainerCPUs{Pod: c.Pod, CPUs: c.CPUs})
		}
	}
	for _, line := range cpumap.NewTiles(cpus, uses).Block(max(cmp.Or(o.Width, 100)-2, 40), term.Ink{On: o.Color}).Lines {
		fmt.Fprintln(w, "  "+line)
	}
}

// summary returns a text that says whether all decided values of a node are in force.
func (o Options) summary(n api.Node) string {
	switch {
	case n.Unapplied+n.Problems > 0:
		return o.markFault(fmt.Sprintf("%s not applied, %s; trimtab explain NAMESPACE/POD says why",
			term.Count(n.Unapplied, "value"), term.Count(n.Problems, "problem")))
	case !n.Connected() && n.Standby == "":
		return o.markFault("no runtime is attached: new containers start without values")
	}
	return "all decided values are in force"
}

// writePoolTable writes a table of the pools.
func writePoolTable(w io.Writer, list []api.Pool) {
	writeSpacedTable(w, "POOL\tCLASS\tSIZE\tCPUS\tCONTAINERS", list, func(p api.Pool) []string {
		return []string{term.Clean(p.Name), orDash(p.Class), cpuCount(p.CPUs), orDash(p.CPUs), fmt.Sprint(p.Members)}
	})
}

// cpuCount formats the number of CPUs in a kernel list of CPUs.
func cpuCount(list string) string { return term.CPUs(1000 * int64(len(cpumap.CPUs(list)))) }

// limitCells returns the cells with the CPU and memory limits of a container. They have units unless Wide is set.
func (o Options) limitCells(c api.Container) []string {
	switch l := c.Limits; {
	case l == nil:
		return []string{"-", "-"}
	case o.Wide:
		return []string{fmt.Sprint(l.CPUQuota, " ", l.CPUPeriod), fmt.Sprint(l.Memory)}
	default:
		cpu, memory := "max", "max"
		if l.CPUQuota > 0 {
			cpu = term.CPUs(l.CPUQuota * 1000 / max(l.CPUPeriod, 1))
		}
		if l.Memory > 0 {
			memory = term.Bytes(l.Memory)
		}
		return []string{cpu, memory}
	}
}

// writeContainerTable writes a table of the containers that the options select.
func writeContainerTable(w io.Writer, n api.Node, o Options) {
	all := n.Containers
	list := slices.DeleteFunc(slices.Clone(all), func(c api.Container) bool { return !o.isShown(c) })
	slices.SortStableFunc(list, func(a, b api.Container) int { return cmp.Compare(a.Pod, b.Pod) })
	if len(list) < len(all) {
		fmt.Fprintf(w, "\n%d of %d containers are shown\n", len(list), len(all))
	}
	head := "POD\tCONTAINER\tSTATE\tCLASS\tCPU GROUP\tCPUS\tLIMIT\tMEMORY\tVALUES\tPROBLEMS"
	if o.Wide {
		head += "\tQOS\tID\tWHY"
	}
	writeSpacedTable(w, head, list, func(c api.Container) []string {
		all := slices.Concat(c.Values, c.PodValues)
		values := fmt.Sprintf("%d/%d", len(all)-api.NotApplied(all), len(all))
		if n.Released {
			values = "-"
		}
		problems := "-"
		if len(c.Problems) > 0 {
			problems = o.markFault(fmt.Sprint(len(c.Problems)))
		}
		row := []string{term.Clean(c.Pod), orDash(c.Name), orDash(c.State), orDash(c.Class), orDash(c.CPUGroup), orDash(c.CPUs)}
		row = append(append(row, o.limitCells(c)...), values, problems)
		if o.Wide {
			row = append(row, orDash(c.QoS), orDash(c.ID), orDash(c.CPUGroupWhy))
		}
		return row
	})
}

// RenderEvent shows one event: a line for the event itself, and an indented line for each decision.
func RenderEvent(w io.Writer, e api.Event, o Options) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s #%d %s", e.Time.Format("15:04:05.000"), e.Seq, term.Clean(e.Kind))
	if e.Pod != "" {
		b.WriteString(" " + ownerName(e.Pod, e.Container))
	}
	fmt.Fprintf(&b, " via %s in %s\n", orDash(e.From), e.Took.Round(time.Microsecond))
	for _, v := range e.Values {
		state := ""
		if v.Note != "" {
			state = ", " + term.Clean(v.Note)
		}
		if !v.Applied {
			state = o.markFault("NO" + state)
		}
		fmt.Fprintf(&b, "    %s = %s  [%s, %s] %s\n", term.Clean(v.Field), term.Clean(v.Value), orDash(v.Why.HookAndSource()), orDash(v.Channel), state)
	}
	for _, c := range e.Changed {
		fmt.Fprintf(&b, "    others: %s\n", term.Clean(c))
	}
	for _, p := range e.Problems {
		kind := p.Kind()
		if kind == "error" {
			kind = "problem"
		}
		text := kind + ": " + term.Clean(p.String())
		if !p.Warning {
			text = o.markFault(text)
		}
		fmt.Fprintf(&b, "    %s\n", text)
	}
	if e.DecidedBefore {
		fmt.Fprintln(&b, "    already decided: another attachment reported this creation before")
	}
	if e.Rejected != "" {
		fmt.Fprintf(&b, "    %s\n", o.markFault("REJECTED: "+term.Clean(e.Rejected)))
	}
	return writeTrimmed(w, &b)
}

// markFault colours the text of a fault, if the output has colours.
func (o Options) markFault(s string) string { return term.Ink{On: o.Color}.Paint(term.BoldRed, s) }

// newTableWriter returns a writer of a table to w. Tabs separate the cells of a row.
func newTableWriter(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// flush writes a table into its buffer. This cannot fail, because a write to a buffer cannot fail.
func flush(t *tabwriter.Writer) { _ = t.Flush() }

// writeSpacedTable writes an empty line, and then a table with a row for each element of list. It writes nothing for an
// empty list.
func writeSpacedTable[T any](w io.Writer, head string, list []T, row func(T) []string) {
	if len(list) > 0 {
		fmt.Fprintln(w)
	}
	writeTable(w, head, list, row)
}

// writeTable writes a table with a row for each element of list. It writes nothing for an empty list.
func writeTable[T any](w io.Writer, head string, list []T, row func(T) []string) {
	if len(list) == 0 {
		return
	}
	t := newTableWriter(w)
	fmt.Fprintln(t, head)
	for _, item := range list {
		fmt.Fprintln(t, strings.Join(row(item), "\t"))
	}
	flush(t)
}

// writeTrimmed writes the lines in b to w, without the spaces at the end of each line.
func writeTrimmed(w io.Writer, b *bytes.Buffer) error {
	var out bytes.Buffer
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// orDash returns s without control characters, or "-" if s is empty.
func orDash(s string) string { return cmp.Or(term.Clean(s), "-") }
