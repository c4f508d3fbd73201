package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// attachmentTitles has names of attachments for users, by their names in the code. For an attachment that is missing
// here, the page shows the name in the code.
var attachmentTitles = map[string]string{"nri": "NRI", "bypass": "bypass", "cri": "CRI proxy", "hooks": "hook server"}

// deliveryNames has a short name for each delivery of a value, for the table of fields.
var deliveryNames = map[parity.Delivery]string{
	parity.AtCreation: "creation", parity.KernelBeforeStart: "before", parity.KernelAfterStart: "after", parity.NotApplied: "no",
}

// parityPage returns docs/parity.md.
func parityPage() (string, error) {
	var b strings.Builder
	b.WriteString(generatedNotice + `# Differences between attachments

For people who choose a value of ` + "`attach`" + ` (the attachment: how the agent connects to the runtime). This page says which
values an attachment sets later than other attachments, or not at all.

Except for what this page lists, the same pods get the same values with every attachment. The tables are made from declarations in
the code. The tests in ` + "`test/conformance`" + ` check them. They play every scenario of ` + "`test/scenarios`" + ` with each attachment and without an attachment, on
cgroup versions 1 and 2. After each step, the decisions and the values in force of every container and pod must be equal. A value
that an attachment cannot set must be reported with the reason.

These words say when a value is in force:

`)
	for _, w := range []struct {
		delivery parity.Delivery
		text     string
	}{
		{parity.AtCreation, "the runtime sets the value when it creates the container"},
		{parity.KernelBeforeStart, "Trimtab writes the value to the kernel before the container's first instruction"},
		{parity.KernelAfterStart, "Trimtab writes the value to the kernel as soon as the cgroup exists. The container may already run for some time " +
			"([benchmarks-attachments.md](benchmarks-attachments.md#unprotected-time) has measurements)"},
		{parity.NotApplied, "the value is not in force, and `trimtab explain` says why"},
	} {
		b.WriteString(listItem("**" + deliveryNames[w.delivery] + "**: " + w.text))
	}
	b.WriteString("\n## Fields\n\nThe column \"hooks\" has the [hooks](hooks.md) (parts of the agent) that set the field.\n\n| field | set on the | hooks |")
	rule := "\n|---|---|---|"
	for _, a := range parity.Attachments() {
		b.WriteString(" " + attachmentTitle(a) + " |")
		rule += "---|"
	}
	b.WriteString(rule + "\n")
	for _, r := range parity.Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |", r.Field, r.Scope, strings.Join(r.Hooks, ", "))
		for _, c := range r.Cells {
			fmt.Fprintf(&b, " %s |", deliveryNames[c.Delivery])
		}
		b.WriteString("\n")
	}
	b.WriteString(`
The table has only fields that hooks of this release set. Older runtimes do not support all of them. If the runtime of a node
does not support a field, the agent reports the value as not in force, with the reason ([fields.md](fields.md)).

## Exceptions
`)
	for i, a := range parity.Attachments() {
		if text := attachmentLimits(i, a); text != "" {
			b.WriteString("\n### " + upperFirst(attachmentTitle(a)) + "\n\n" + text)
		}
	}
	b.WriteString(runtimeRules())
	return b.String(), nil
}

// attachmentLimits lists what an attachment cannot do: the fields that it does not set, with the reason, the fields
// that it sets only after the start of the container, and its other limits. The index at selects the attachment's cells
// in the rows of parity.Table.
func attachmentLimits(at int, a parity.Attachment) string {
	var b strings.Builder
	var reasons []string
	without := map[string][]string{}
	for _, r := range parity.Table() {
		if c := r.Cells[at]; c.Delivery == parity.NotApplied {
			reason := fmt.Sprintf(" (of %ss). Reason: %s", r.Scope, c.Why)
			if without[reason] == nil {
				reasons = append(reasons, reason)
			}
			without[reason] = append(without[reason], codeSpan(r.Field.String()))
		}
	}
	for _, reason := range reasons {
		b.WriteString(listItem("Never in force: " + strings.Join(without[reason], ", ") + reason))
	}
	if late := lateFields(at); late != "" {
		b.WriteString(listItem("In force only after the start of the container: " + late))
	}
	for _, l := range a.Limits {
		b.WriteString(listItem("**" + l.Name + "**: " + l.Text))
	}
	return b.String()
}

// runtimeRules lists the values that runtimes refuse or drop.
func runtimeRules() string {
	var b strings.Builder
	b.WriteString(`
## What runtimes do not take

Some runtimes refuse certain values: the whole request fails, so the pod does not start. Other runtimes drop a value and report
nothing. Trimtab does not send such values to such runtimes. If the kernel has a file for the field, Trimtab writes the value only to
this file, and ` + "`trimtab explain`" + ` says "only in the kernel" with the reason. If the kernel has no such file, Trimtab reports the
value as not in force. Trimtab gets the name and the release of the runtime from the runtime itself. The conformance tests play every
scenario with simulated runtimes that refuse the same values.

Each entry has the runtime and its releases, the field and the protocol, what the runtime does with the value, the calls in which the
runtime does this, and the source of this knowledge. "An update that the agent sends" is not part of a request of the kubelet.

`)
	for _, r := range runtimes.Rules() {
		var ways, calls []string
		for _, w := range r.Protocols {
			ways = append(ways, w.String())
		}
		for _, c := range r.Calls {
			calls = append(calls, c.String())
		}
		b.WriteString(listItem(fmt.Sprintf("**%s** (releases: %s), `%s` by %s: %s. Calls: %s. Source: %s", r.Runtime, r.Releases(),
			r.Field, strings.Join(ways, " or "), r.Description(), strings.Join(calls, ", "), addFullStop(r.Source))))
	}
	return b.String()
}

// lateFields lists the fields of containers that an attachment sets only after the start of the container.
func lateFields(at int) string {
	var fields []string
	for _, r := range parity.Table() {
		if r.Cells[at].Delivery == parity.KernelAfterStart && r.Scope == lifecycle.OfContainer {
			fields = append(fields, "`"+r.Field.String()+"`")
		}
	}
	return strings.Join(fields, ", ")
}

// attachmentTitle returns the name of an attachment for users (attachmentTitles).
func attachmentTitle(a parity.Attachment) string {
	if t := attachmentTitles[a.Name]; t != "" {
		return t
	}
	return a.Name
}
