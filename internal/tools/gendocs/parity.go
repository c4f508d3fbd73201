package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// titles are what people call the attachments; one that is not here is called
// as its code calls it.
var titles = map[string]string{"nri": "NRI", "bypass": "bypass", "cri": "CRI proxy", "hooks": "hook server"}

func parityPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + `# The same through every attachment

Whichever way Trimtab sits at the runtime, the same scenario comes to the same effective state, but for what this page lists.
The tables are made from what hooks and attachments declare, and ` + "`test/conformance`" + ` plays every scenario of ` + "`test/scenarios`" + `
through the engine alone and through each attachment, with cgroup versions 1 and 2: decisions and effective state of every
container and pod must be equal after each step, a value that the table calls carried must be in force, and one that it calls
not carried must be reported with its reason.

| | |
|---|---|
`)
	for _, w := range []struct {
		way  parity.Way
		text string
	}{
		{parity.Created, "given with the creation of the container, by the runtime"},
		{parity.Held, "written to the kernel by Trimtab before the first instruction"},
		{parity.Late, "written to the kernel by Trimtab as soon as there is a cgroup; the container may run by then ([benchmarks-attachments.md](benchmarks-attachments.md) has how long)"},
		{parity.Never, "not in force; `trimtab explain` says why"},
	} {
		fmt.Fprintf(&b, "| **%s** | %s |\n", w.way, w.text)
	}
	b.WriteString("\n## Fields\n\n| field | of the | set by | engine |")
	rule := "\n|---|---|---|---|"
	for _, a := range parity.Attachments() {
		b.WriteString(" " + title(a) + " |")
		rule += "---|"
	}
	b.WriteString(rule + "\n")
	for _, r := range parity.Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | decided |", r.Field, r.Scope, strings.Join(r.Hooks, ", "))
		for _, c := range r.Cells {
			fmt.Fprintf(&b, " %s |", c.Way)
		}
		b.WriteString("\n")
	}
	b.WriteString(`
What no hook of this release sets is not in the table. Runtimes older than the newest known may carry less; what the one at
hand does not is reported in the same way ([fields.md](fields.md)).

## Exceptions

| attachment | what | why, and what happens instead |
|---|---|---|
`)
	b.WriteString(limits())
	b.WriteString(notTaken())
	return b.String(), nil
}

// limits are the rows of what each attachment has less.
func limits() string {
	var b strings.Builder
	for i, a := range parity.Attachments() {
		for _, r := range parity.Table() {
			if r.Cells[i].Way == parity.Never {
				fmt.Fprintf(&b, "| %s | `%s` of the %s | %s |\n", title(a), r.Field, r.Scope, cell(r.Cells[i].Why))
			}
		}
		if late := lateFields(i); late != "" {
			fmt.Fprintf(&b, "| %s | %s | in force only after the start |\n", title(a), late)
		}
		for _, l := range a.Limits {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", title(a), l.Name, cell(l.Text))
		}
	}
	return b.String()
}

// notTaken is the table of what runtimes do not take.
func notTaken() string {
	var b strings.Builder
	b.WriteString(`
## What runtimes do not take

A runtime that refuses a value fails the whole request, which would stop the pod; one that drops a value says nothing. So Trimtab
does not send these. Where the kernel has a file for the field, the value is written there and nowhere else, and ` + "`trimtab explain`" + `
says "in the kernel alone" and why; elsewhere it is reported as not in force. Trimtab reads the runtime's name and release from the
runtime itself. The conformance tests play every scenario beside runtimes that refuse like the real ones.

| runtime | releases | by | with | field | it | known from |
|---|---|---|---|---|---|---|
`)
	for _, r := range runtimes.Rules() {
		var ways, calls []string
		for _, w := range r.Ways {
			ways = append(ways, w.String())
		}
		for _, c := range r.Calls {
			calls = append(calls, c.String())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` | %s | %s |\n", r.Runtime, r.Releases(), strings.Join(ways, ", "), strings.Join(calls, ", "),
			r.Field, r.Says(), cell(r.Source))
	}
	return b.String()
}

// lateFields lists the fields an attachment brings about after the start alone.
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
