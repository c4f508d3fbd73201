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

// RenderExplain shows the decisions about containers and what they have: the verdict first, then the facts behind
// it, and each value with its reason.
func RenderExplain(w io.Writer, list []api.Container, o Options) error {
	var b bytes.Buffer
	pod := ""
	for i, c := range list {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		values := c.Values
		if c.Pod != pod { // show the pod's own values once, with its first container
			for _, v := range c.PodValues {
				v.Field = "pod " + v.Field
				values = append(values[:len(values):len(values)], v)
			}
		}
		pod = c.Pod
		o.explainHead(&b, &c, values)
		o.explainFacts(&b, c.Facts)
		o.explainValues(&b, values, c.SeatWhy)
		explainProblems(&b, c.Problems, o)
	}
	return send(w, &b)
}

// explainHead prints the verdict: what the container requests, what it has, and what it lacks.
func (o Options) explainHead(w io.Writer, c *api.Container, values []api.Value) {
	fmt.Fprintf(w, "%s: %s\n", named(c.Pod, c.Name), o.outcome(c, values))
	t := table(w)
	fmt.Fprintf(t, "  state\t%s\n", dash(c.State))
	class := dash(c.Class)
	if c.ClassFrom != "" {
		class += ", from " + term.Clean(c.ClassFrom)
		if slices.ContainsFunc(c.Problems, func(p lifecycle.Problem) bool { return p.Key == c.ClassFrom && (p.Unserved || p.Refused) }) {
			class += ": requested, and not served"
		}
	}
	fmt.Fprintf(t, "  class\t%s\n  QoS\t%s\n", class, dash(c.QoS))
	flush(t)
	seat := dash(c.CPUs)
	if c.CPUGroup != "" {
		seat += " (" + term.Clean(c.CPUGroup) + ")"
	}
	if c.SeatWhy != "" {
		seat += ": " + term.Clean(c.SeatWhy)
	}
	label := "  CPUs   "
	for _, line := range term.Wrap(seat, o.prose(len(label))) {
		fmt.Fprintln(w, label+line)
		label = strings.Repeat(" ", len(label))
	}
}

// prose is how many columns a text has after an indentation.
func (o Options) prose(indent int) int { return max(cmp.Or(o.Width, 100)-indent, 40) }

// cell is how many columns a value has in a table. A longer one, such as a list of CPUs, is printed whole below.
func (o Options) cell() int { return max(cmp.Or(o.Width, 100)/3, 20) }

// whole prints a value that its table had to cut.
func (o Options) whole(w io.Writer, name, value string) {
	if len([]rune(value)) <= o.cell() {
		return
	}
	for i, line := range term.Wrap(value, o.prose(4+len(name)+3)) {
		label := name + " = "
		if i > 0 {
			label = strings.Repeat(" ", len([]rune(label)))
		}
		fmt.Fprintf(w, "    %s%s\n", label, line)
	}
}

// outcome says in one sentence whether the container has all decided values.
func (o Options) outcome(c *api.Container, values []api.Value) string {
	missing := 0
	for _, v := range values {
		if !v.Applied {
			missing++
		}
	}
	errs := len(slices.DeleteFunc(slices.Clone(c.Problems), func(p lifecycle.Problem) bool { return p.Warning }))
	var parts []string
	if missing > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s not in force", missing, term.Count(len(values), "value")))
	}
	if errs > 0 {
		parts = append(parts, term.Count(errs, "request")+" not served")
	}
	if !c.ReleasedAt.IsZero() {
		said := api.ReleasedSince(c.ReleasedAt) + ": no decision about it is in force, until the agent is restarted"
		if missing > 0 {
			said += fmt.Sprintf("; %d of %s could not be restored", missing, term.Count(len(values), "value"))
		}
		return o.alarm(said)
	}
	switch {
	case len(parts) > 0:
		return o.alarm(strings.Join(parts, ", "))
	case len(values) == 0:
		return "no value is decided for it: it runs as the runtime created it"
	case len(values) == 1:
		return "the value decided for it is in force"
	}
	return fmt.Sprintf("all %d values decided for it are in force", len(values))
}

func (o Options) explainFacts(w io.Writer, facts []api.Fact) {
	rows(w, "  FACT\tVALUE\tFROM", facts, func(f api.Fact) []string {
		from := dash(string(f.From))
		if f.Note != "" {
			from += ": " + term.Clean(f.Note)
		}
		return []string{"  " + term.Clean(f.Name), term.Cut(dash(o.factValue(f)), o.cell()), from}
	})
	for _, f := range facts {
		o.whole(w, term.Clean(f.Name), dash(o.factValue(f)))
	}
}

// explainValues shows the values in a table, and further remarks on each below it. known is a reason that is
// printed above already.
func (o Options) explainValues(w io.Writer, values []api.Value, known string) {
	rows(w, "  FIELD\tVALUE\tHOOK\tFROM\tCHANNEL\tIN FORCE", values, func(v api.Value) []string {
		force := "yes"
		if !v.Applied {
			force = o.alarm("NO")
		}
		return []string{"  " + term.Clean(v.Field), term.Cut(dash(o.valueText(v, values)), o.cell()), dash(v.Why.Hook), dash(v.Why.Source), dash(v.Channel), force}
	})
	for _, v := range values {
		o.whole(w, term.Clean(v.Field), dash(o.valueText(v, values)))
		said := remarks(v, known)
		if len(said) == 0 {
			continue
		}
		for _, line := range term.Wrap(term.Clean(v.Field)+": "+strings.Join(said, "; "), o.prose(4)) {
			if !v.Applied {
				line = o.alarm(line)
			}
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
}

// remarks returns the remarks on a value that its row does not have, without the known reason.
func remarks(v api.Value, known string) (said []string) {
	if v.Why.Text != "" && v.Why.Text != known {
		said = append(said, term.Clean(v.Why.Text))
	}
	note := term.Clean(v.Note)
	switch {
	case note == "":
	case v.Applied:
		said = append(said, note)
	default:
		said = append(said, "NOT in force: "+note)
	}
	return said
}

// factValue is a fact with a unit for people.
func (o Options) factValue(f api.Fact) string {
	if o.Wide {
		return f.Value
	}
	_, resource, _ := strings.Cut(f.Name, " ")
	switch {
	case resource == lifecycle.ResourceCPU, strings.HasSuffix(resource, "batch-cpu"): // in thousandths, too
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

// valueText is a value with a unit for people: a quota as time of the period.
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
	case field == lifecycle.CPUQuota.String(), n == -1 && bytesField(field):
		return "max"
	case bytesField(field):
		return term.Bytes(n)
	}
	return v.Value
}

// bytesField reports whether a field, perhaps with a key, is an amount of memory.
func bytesField(field string) bool {
	name, _, _ := strings.Cut(field, " ")
	return name == lifecycle.MemoryLimit.String() || name == lifecycle.Hugepages.String()
}

// applied says whether a value is in force, for one line.
func (o Options) applied(v api.Value) string {
	s := "yes"
	if v.Note != "" {
		s = "yes, " + term.Clean(v.Note)
	}
	if v.Applied {
		return s
	}
	return o.alarm(strings.Replace(s, "yes", "NO", 1))
}

func explainProblems(w io.Writer, problems []lifecycle.Problem, o Options) {
	rows(w, "  PROBLEM\tKEY\tVALUE\tREASON", problems, func(p lifecycle.Problem) []string {
		return []string{"  " + p.Kind(), dash(p.Key), dash(p.Value), o.alarm(term.Clean(p.Sentence()))}
	})
}
