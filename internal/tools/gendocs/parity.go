package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// titles has the attachments' names for users; others have their name in the code.
var titles = map[string]string{"nri": "NRI", "bypass": "bypass", "cri": "CRI proxy", "hooks": "hook server"}

// inTable has short names of the ways for the table of fields.
var inTable = map[parity.Way]string{
	parity.Created: "creation", parity.Kernel: "before", parity.Late: "after", parity.Never: "no",
}

func parityPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + `# The same through every attachment

For people who choose a value of ` + "`attach`" + `: which values come later, or never, with which attachment.

The same scenario has the same effect with every attachment, except for what this page lists. The tables are made from what
hooks and attachments declare. ` + "`test/conformance`" + ` plays every scenario of ` + "`test/scenarios`" + ` through the engine alone and through
each attachment, with cgroup versions 1 and 2. After each step, decisions and effective state of every container and pod must be
equal. A value that the table calls carried must be in force, and one that it calls not carried must be reported with its
reason.

`)
	for _, w := range []struct {
		way  parity.Way
		text string
	}{
		{parity.Created, "the runtime sets it when it creates the container"},
		{parity.Kernel, "Trimtab writes it to the kernel before the container's first instruction"},
		{parity.Late, "Trimtab writes it to the kernel as soon as there is a cgroup; the container may run already " +
			"([benchmarks-attachments.md](benchmarks-attachments.md) has how long)"},
		{parity.Never, "not in force; `trimtab explain` says why"},
	} {
		b.WriteString(item("**" + inTable[w.way] + "**: " + w.text))
	}
	b.WriteString("\n## Fields\n\n| field | of the | set by |")
	rule := "\n|---|---|---|"
	for _, a := range parity.Attachments() {
		b.WriteString(" " + title(a) + " |")
		rule += "---|"
	}
	b.WriteString(rule + "\n")
	for _, r := range parity.Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |", r.Field, r.Scope, strings.Join(r.Hooks, ", "))
		for _, c := range r.Cells {
			fmt.Fprintf(&b, " %s |", inTable[c.Way])
		}
		b.WriteString("\n")
	}
	b.WriteString(`
A field that no hook of this release sets is not in the table. Older runtimes may carry less; what a node's runtime does not
carry is reported in the same way ([fields.md](fields.md)).

## Exceptions
`)
	for i, a := range parity.Attachments() {
		if text := limits(i, a); text != "" {
			b.WriteString("\n### " + upper(title(a)) + "\n\n" + text)
		}
	}
	b.WriteString(notTaken())
	return b.String(), nil
}

// limits lists the values that one attachment cannot carry, and why.
func limits(at int, a parity.Attachment) string {
	var b strings.Builder
	var reasons []string
	without := map[string][]string{}
	for _, r := range parity.Table() {
		if c := r.Cells[at]; c.Way == parity.Never {
			if without[c.Why] == nil {
				reasons = append(reasons, c.Why)
			}
			without[c.Why] = append(without[c.Why], fmt.Sprintf("`%s` of the %s", r.Field, r.Scope))
		}
	}
	for _, why := range reasons {
		b.WriteString(item("Never: " + strings.Join(without[why], ", ") + ". Reason: " + why))
	}
	if late := lateFields(at); late != "" {
		b.WriteString(item("In force only after the start: " + late))
	}
	for _, l := range a.Limits {
		b.WriteString(item("**" + l.Name + "**: " + l.Text))
	}
	return b.String()
}

// notTaken lists the values that runtimes refuse or drop.
func notTaken() string {
	var b strings.Builder
	b.WriteString(`
## What runtimes do not take

Some runtimes refuse a value, which fails the whole request and would stop the pod. Others drop a value and report nothing.
Trimtab does not send such values. Where the kernel has a file for the field, Trimtab writes the value there and nowhere else,
and ` + "`trimtab explain`" + ` says "in the kernel alone" and why; elsewhere it reports the value as not in force. It reads the runtime's
name and release from the runtime itself. The conformance tests play every scenario beside runtimes that refuse like the real
ones.

`)
	for _, r := range runtimes.Rules() {
		var ways, calls []string
		for _, w := range r.Ways {
			ways = append(ways, w.String())
		}
		for _, c := range r.Calls {
			calls = append(calls, c.String())
		}
		b.WriteString(item(fmt.Sprintf("**%s** (releases: %s) %s `%s` by %s, with %s. Source: %s", r.Runtime, r.Releases(),
			r.Says(), r.Field, strings.Join(ways, " or "), strings.Join(calls, ", "), sentence(r.Source))))
	}
	return b.String()
}

// lateFields lists the fields that an attachment sets only after the start.
func lateFields(at int) string {
	var fields []string
	for _, r := range parity.Table() {
		if r.Cells[at].Way == parity.Late && r.Scope == lifecycle.OfContainer {
			fields = append(fields, "`"+r.Field.String()+"`")
		}
	}
	return strings.Join(fields, ", ")
}

func title(a parity.Attachment) string {
	if t := titles[a.Name]; t != "" {
		return t
	}
	return a.Name
}
