package status

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// RenderExplain shows the decisions about containers. For each container, it shows whether the decisions are in force,
// then the facts on which they are based, and each value with its reason.
func RenderExplain(w io.Writer, list []api.Container, o Options) error {
	var b bytes.Buffer
	pod := ""
	for i, c := range list {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		values := c.Values
		if c.Pod != pod { // show the values of a pod once, with the first container of the pod
			values = withPodValues(c)
		}
		pod = c.Pod
		o.explainHead(&b, &c, values)
		o.explainFacts(&b, c.Facts)
		o.explainValues(&b, values, c.CPUGroupWhy)
		writeSpacedTable(&b, "  PROBLEM\tKEY\tVALUE\tREASON", c.Problems, func(p lifecycle.Problem) []string {
			return []string{"  " + p.Kind(), orDash(p.Key), orDash(p.Value), o.markFault(term.Clean(p.Sentence()))}
		})
	}
	return writeTrimmed(w, &b)
}

// withPodValues returns the values of a container, followed by the values of its pod.
func withPodValues(c api.Container) []api.Value {
	all := slices.Clone(c.Values)
	for _, v := range c.PodValues {
		v.Field = "pod " + v.Field
		all = append(all, v)
	}
	return all
}

// explainHead prints whether the decisions about a container are in force, and its state, class and CPUs.
func (o Options) explainHead(w io.Writer, c *api.Container, values []api.Value) {
	fmt.Fprintf(w, "%s: %s\n", ownerName(c.Pod, c.Name), o.verdict(c, values))
	t := newTableWriter(w)
	fmt.Fprintf(t, "  state\t%s\n", orDash(c.State))
	class := orDash(c.Class)
	if c.ClassFrom != "" {
		class += ", from " + term.Clean(c.ClassFrom)
		if slices.ContainsFunc(c.Problems, func(p lifecycle.Problem) bool { return p.Key == c.ClassFrom && (p.Unserved || p.Refused) }) {
			class += ": requested, and not served"
		}
	}
	fmt.Fprintf(t, "  class\t%s\n  QoS\t%s\n", class, orDash(c.QoS))
	flush(t)
	cpus := orDash(c.CPUs)
	if c.CPUGroup != "" {
		cpus += " (" + term.Clean(c.CPUGroup) + ")"
	}
	if c.CPUGroupWhy != "" {
		cpus += ": " + term.Clean(c.CPUGroupWhy)
	}
	o.printWrapped(w, "  CPUs   ", cpus, false)
	o.explainCPUClasses(w, c.CPUClasses)
	if c.Demotion != nil {
		o.printWrapped(w, "  memory   ", term.Clean(c.Demotion.Text()), false)
	}
}

// printWrapped prints a text after its label. It breaks the text into lines that fit the width. fault means that the
// text describes a fault, so printWrapped marks each line.
func (o Options) printWrapped(w io.Writer, label, text string, fault bool) {
	for _, line := range term.Wrap(text, o.textWidth(len(label))) {
		if fault {
			line = o.markFault(line)
		}
		fmt.Fprintln(w, label+line)
		label = strings.Repeat(" ", len([]rune(label)))
	}
}

// explainCPUClasses prints the CPU classes of the container's CPUs.
func (o Options) explainCPUClasses(w io.Writer, classes []api.ContainerCPUClass) {
	label := "  CPU class   "
	for _, c := range classes {
		text, fault := c.Text()
		o.printWrapped(w, label, term.Clean(text), fault)
		label = strings.Repeat(" ", len(label))
	}
}

// textWidth returns how many columns a text may have after an indentation of indent columns.
func (o Options) textWidth(indent int) int { return max(cmp.Or(o.Width, 100)-indent, 40) }

// cellWidth returns how many columns a value may have in a table. printUncut prints longer values below the table.
func (o Options) cellWidth() int { return max(cmp.Or(o.Width, 100)/3, 20) }

// printUncut prints the whole value below the table, if the value is too long for a cell of the table.
func (o Options) printUncut(w io.Writer, name, value string) {
	if len([]rune(value)) > o.cellWidth() {
		o.printWrapped(w, "    "+name+" = ", value, false)
	}
}

// verdict returns one sentence that says whether all values that are decided for a container are in force.
func (o Options) verdict(c *api.Container, values []api.Value) string {
	missing := api.NotApplied(values)
	errs := len(slices.DeleteFunc(slices.Clone(c.Problems), func(p lifecycle.Problem) bool { return p.Warning }))
	var parts []string
	if missing > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s not in force", missing, term.Count(len(values), "value")))
	}
	if errs > 0 {
		parts = append(parts, term.Count(errs, "request")+" not served")
	}
	if !c.ReleasedAt.IsZero() {
		text := api.ReleasedText(c.ReleasedAt) + ": no decision about it is in force, until the agent is restarted"
		if missing > 0 {
			text += fmt.Sprintf("; %d of %s could not be restored", missing, term.Count(len(values), "value"))
		}
		return o.markFault(text)
	}
	switch {
	case len(parts) > 0:
		return o.markFault(strings.Join(parts, ", "))
	case len(values) == 0:
		return "no value is decided for it: it runs as the runtime created it"
	case len(values) == 1:
		return "the value decided for it is in force"
	}
	return fmt.Sprintf("all %d values decided for it are in force", len(values))
}

// explainFacts shows the facts in a table, and long facts once more below the table.
func (o Options) explainFacts(w io.Writer, facts []api.Fact) {
	writeSpacedTable(w, "  FACT\tVALUE\tFROM", facts, func(f api.Fact) []string {
		from := orDash(string(f.From))
		if f.Note != "" {
			from += ": " + term.Clean(f.Note)
		}
		return []string{"  " + term.Clean(f.Name), term.Cut(orDash(o.factValue(f)), o.cellWidth()), from}
	})
	for _, f := range facts {
		o.printUncut(w, term.Clean(f.Name), orDash(o.factValue(f)))
	}
}

// explainValues shows the values in a table, and remarks on the values below the table. It leaves out the remark
// printedBefore, because the output already has it.
func (o Options) explainValues(w io.Writer, values []api.Value, printedBefore string) {
	writeSpacedTable(w, "  FIELD\tVALUE\tHOOK\tFROM\tCHANNEL\tIN FORCE", values, func(v api.Value) []string {
		force := "yes"
		if !v.Applied {
			force = o.markFault("NO")
		}
		return []string{"  " + term.Clean(v.Field), term.Cut(orDash(o.valueText(v, values)), o.cellWidth()), orDash(v.Why.Hook), orDash(v.Why.Source), orDash(v.Channel), force}
	})
	for _, v := range values {
		o.printUncut(w, term.Clean(v.Field), orDash(o.valueText(v, values)))
		list := remarks(v, printedBefore)
		if len(list) > 0 {
			o.printWrapped(w, "    ", term.Clean(v.Field)+": "+strings.Join(list, "; "), !v.Applied)
		}
	}
}

// remarks returns the remarks on a value that the value's row in the table does not show. It leaves out the remark
// printedBefore.
func remarks(v api.Value, printedBefore string) (list []string) {
	if v.Why.Text != "" && v.Why.Text != printedBefore {
		list = append(list, term.Clean(v.Why.Text))
	}
	switch note := term.Clean(v.Note); {
	case note == "":
	case v.Applied:
		list = append(list, note)
	default:
		list = append(list, "NOT in force: "+note)
	}
	return list
}

// factValue formats the value of a fact with a unit. If the option Wide is set, it returns the value unchanged.
func (o Options) factValue(f api.Fact) string {
	if o.Wide {
		return f.Value
	}
	_, resource, _ := strings.Cut(f.Name, " ")
	switch {
	case resource == lifecycle.ResourceCPU, strings.HasSuffix(resource, "batch-cpu"): // batch-cpu is also in thousandths of a CPU
		if milli, err := strconv.ParseInt(strings.TrimSuffix(f.Value, "m"), 10, 64); err == nil {
			return term.CPUs(milli)
		}
	case strings.HasSuffix(resource, "memory"), strings.HasPrefix(resource, "hugepages-"), resource == "ephemeral-storage":
		if n, err := strconv.ParseInt(f.Value, 10, 64); err == nil {
			return term.Bytes(n)
		}
	}
	return f.Value
}

// valueText formats a value with a unit, and a CPU quota as time per period. all has the other values of the container,
// such as the period. If the option Wide is set, valueText returns the value unchanged.
func (o Options) valueText(v api.Value, all []api.Value) string {
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if o.Wide || err != nil {
		return v.Value
	}
	prefix, field := "", v.Field
	if rest, of := strings.CutPrefix(field, "pod "); of {
		prefix, field = "pod ", rest
	}
	switch {
	case field == lifecycle.CPUQuota.String() && n > 0:
		period := int64(100_000) // the kernel's and the kubelet's default, in µs
		for _, other := range all {
			if p, err := strconv.ParseInt(other.Value, 10, 64); err == nil && other.Field == prefix+lifecycle.CPUPeriod.String() {
				period = p
			}
		}
		return term.Microseconds(n) + " of " + term.Microseconds(period)
	case field == lifecycle.CPUPeriod.String():
		return term.Microseconds(n)
	case field == lifecycle.CPUQuota.String(), n == -1 && isBytesField(field):
		return "max"
	case isBytesField(field):
		return term.Bytes(n)
	}
	return v.Value
}

// isBytesField reports whether a field is an amount of memory. The field may have a key, such as a huge page size.
func isBytesField(field string) bool {
	name, _, _ := strings.Cut(field, " ")
	return name == lifecycle.MemoryLimit.String() || name == lifecycle.Hugepages.String()
}
