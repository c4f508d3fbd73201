package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

// kindsPage returns docs/kinds.md.
func kindsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generatedNotice + `# Kinds of requests

` + "```sh agent NAMESPACE/POD=shop/web\ntrimtab explain NAMESPACE/POD    # what a pod asks for, and what was granted or refused\n```" + `

For operators who write rules of [authorization](authorization.md). A kind is one sort of request that a pod can make by labels
and annotations, such as exclusive CPUs. This page says for each kind what a pod can request, what the default is if no rule matches,
and what other pods lose if the request is granted.

## Defaults

Each entry says what a pod requests with this kind, what the default is and why, and which keys make the request
([keys.md](keys.md)). "allow" grants the request, and "refuse" does not grant it. "cap" grants the request up to a limit: what
Kubernetes itself gave the pod ([what a cap is](authorization.md#what-a-cap-is)). In the texts, "it" is the pod.

`)
	for _, d := range intent.Defaults() {
		decision := string(d.Decision)
		if d.Namespaces != "*" {
			decision += " in " + codeSpan(d.Namespaces) + ", refuse elsewhere"
		}
		text := fmt.Sprintf("%s: %s. Default: **%s** (%s).", codeSpan(string(d.Kind)), d.Request, decision, d.Why)
		b.WriteString(listItem(joinNonEmpty(" ", text, addFullStop(withLabel("Keys:", keysOf(d.Kind))))))
	}
	b.WriteString(`
## What it costs others

The scheduler reserves nothing for a pod without CPU and memory requests. Such a pod should take nothing from other pods. This
list says for each kind what other pods lose if the agent grants the request to such a pod. In the texts, "it" is this pod. If
the default (in brackets) is "refuse", the agent grants the request only if one of your rules allows it.

`)
	for _, d := range intent.Defaults() {
		b.WriteString(listItem(fmt.Sprintf("%s (%s): %s", codeSpan(string(d.Kind)), d.Decision, d.Cost)))
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
