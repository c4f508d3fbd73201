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

` + "```sh agent NAMESPACE/POD=shop/web\ntrimtab explain NAMESPACE/POD    # what a pod asks for, and what was granted or refused\n```" + `

For operators who write rules of [authorization](authorization.md): what a pod can ask for, what holds where no rule matches,
and what others lose by it.

## Defaults

"cap" grants what stays within what Kubernetes itself gave the pod ([what a cap is](authorization.md#what-a-cap-is)). Each entry
says what the kind asks for, the default and why, and the keys that ask for it ([keys.md](keys.md)).

`)
	for _, d := range intent.Defaults() {
		decision := string(d.Decision)
		if d.Namespaces != "*" {
			decision += " in " + code(d.Namespaces) + ", refuse elsewhere"
		}
		text := fmt.Sprintf("%s: %s. Default: **%s** (%s).", code(string(d.Kind)), d.Asks, decision, d.Why)
		b.WriteString(item(clauses(" ", text, sentence(labelled("Keys:", keysOf(d.Kind))))))
	}
	b.WriteString(`
## What it costs others

A pod that requests nothing is charged for nothing, so nothing is taken from others for it. This list says, for each kind,
what others lose to a pod that requests neither CPU nor memory and is granted what it asks for: by default, or, where the
default is to refuse, by a rule of yours.

`)
	for _, d := range intent.Defaults() {
		b.WriteString(item(fmt.Sprintf("%s (%s): %s", code(string(d.Kind)), d.Decision, d.Cost)))
	}
	return b.String(), nil
}

// keysOf returns the labels and annotations that request a kind.
func keysOf(kind intent.Kind) string {
	var names []string
	for _, k := range intent.Keys() {
		if k.Handling == intent.KeyRead && slices.Contains(k.Kinds, kind) {
			names = append(names, keyName(k))
		}
	}
	return strings.Join(names, ", ")
}
