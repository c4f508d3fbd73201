package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

// editEffects has the effect of an edit of a key in a running pod.
var editEffects = map[intent.Edit]string{
	intent.EditLive:  "take effect at once",
	intent.EditNext:  "take effect for containers that are created afterwards",
	intent.EditFixed: "have no effect",
}

// keysPage returns docs/keys.md.
func keysPage() (string, error) {
	var b strings.Builder
	b.WriteString(generatedNotice + `# Labels, annotations and resource names

` + "```sh agent PODS.yaml=examples/cluster/classes.yaml NAMESPACE/POD=shop/web\ntrimtab plan PODS.yaml           # what a pod would get for its keys, and which keys no hook serves\n" +
		"trimtab explain NAMESPACE/POD    # what a running pod got for its keys\n```" + `

For authors of pods with keys of Koordinator, Katalyst, rubik, nri-plugins or NRI's own plugins. A key is a label, an annotation
or a resource name. This page says what each key does on a node with Trimtab. Each entry has the key, the place where the key is
written (in brackets), and one of these words:

` + listItem("**read**: the key has an effect. \"Requests\" lists the kinds of requests that the key makes; [authorization.md](authorization.md) says "+
		"which namespaces may make them. \"Hooks\" lists the parts of the agent that serve the key ([hooks.md](hooks.md))") +
		listItem("**not supported**: the key requests something that Trimtab does not do. For each pod with the key, `trimtab explain`, "+
			"`trimtab status`, the log (`kind=unserved`) and `trimtab_refused_total{kind=\"unserved\"}` report this") +
		listItem("**ignored**: the key requests nothing from a node agent, and the agent does not report it") + `
In these cases a key that is read has no effect, and the agent reports it like a key that is not supported:

` + listItem("All hooks that serve the key are disabled.") +
		listItem("The list `dialects` in the [configuration](config.md) does not have the system of the key.") +
		listItem("Only `placement.policy: pools` serves the key, and the policy is `none`.") + `
The agent never refuses a pod because of such a report, not even with ` + "`strict: true`" + `.

"Edits" says what happens if the key is changed while the pod runs. "take effect at once" needs a source of pod specs
(` + "`podspec`" + ` in the [configuration](config.md)). If the agent has no such source, an edit has no effect. A key with the word "scoped" can also be written as
` + "`KEY/pod`\nand `KEY/container.NAME`" + `.
`)
	for _, system := range intent.KeySystems() {
		name, title := system[0], system[1]
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, k := range intent.Keys() {
			if k.System == name {
				text := joinNonEmpty(". ", k.Handling.String(), withLabel("Requests:", kindNames(k)), withLabel("Hooks:", codeSpans(servingHooks(k))),
					withLabel("Edits:", editEffects[k.Edit]))
				b.WriteString(listItem(joinNonEmpty(" ", fmt.Sprintf("%s (%s): %s.", keyName(k), k.Location, text), addFullStop(upperFirst(k.Why)))))
			}
		}
	}
	return b.String(), nil
}

// keyName returns the name of a key in Markdown, with its JSON member and the word "scoped" if they apply.
func keyName(k intent.Key) string {
	name := codeSpan(k.Name)
	if k.Field != "" {
		name += ": " + codeSpan(k.Field)
	}
	if k.Scoped {
		name += " (scoped)"
	}
	return name
}

// kindNames returns the kinds of requests that a key makes, in Markdown.
func kindNames(k intent.Key) string {
	names := make([]string, len(k.Kinds))
	for i, kind := range k.Kinds {
		names[i] = string(kind)
	}
	return codeSpans(names)
}

// servingHooks returns the names of the hooks that serve a key.
func servingHooks(k intent.Key) []string {
	var hooks []string
	seen := map[string]bool{}
	for _, kind := range k.Kinds {
		for _, h := range intent.ServingHooks(kind, k.Name) {
			if !seen[h] {
				seen[h] = true
				hooks = append(hooks, h)
			}
		}
	}
	return hooks
}
