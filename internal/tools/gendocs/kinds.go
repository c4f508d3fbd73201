package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

func kindsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + `# Kinds of requests

For people who write rules of [authorisation](authorisation.md): what a pod can ask for, what holds where no rule matches, and
what others lose by it.

## Defaults

"cap" grants what stays within what Kubernetes itself gave the pod ([what a cap is](authorisation.md#what-a-cap-is)).

| kind | what it asks for | by | default | because |
| --- | --- | --- | --- | --- |
`)
	for _, d := range intent.Defaults() {
		decision := string(d.Decision)
		if d.Namespaces != "*" {
			decision += " in " + code(d.Namespaces) + ", refuse elsewhere"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Kind, cell(d.Asks), keysOf(d.Kind), decision, cell(d.Why))
	}
	b.WriteString(`
## What it costs others

A pod that requests nothing is charged for nothing, so nothing is taken from others for it. This table says, for each kind,
what others lose to a pod that requests neither CPU nor memory and is granted what it asks for: by default, or, where the
default is to refuse, by a rule of yours.

| kind | default | what it costs others when the pod requests nothing |
| --- | --- | --- |
`)
	for _, d := range intent.Defaults() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", d.Kind, d.Decision, cell(d.Cost))
	}
	return b.String(), nil
}

// keysOf names the labels and annotations that ask for a kind.
func keysOf(kind intent.Kind) string {
	var names []string
	for _, k := range intent.Keys() {
		if k.Fate == intent.KeyRead && slices.Contains(k.Kinds, kind) {
			names = append(names, keyName(k))
		}
	}
	return strings.Join(names, ", ")
}
