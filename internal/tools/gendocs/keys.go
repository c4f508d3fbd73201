package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

func keysPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + `# Labels, annotations and resource names

` + "```sh agent PODS.yaml=examples/cluster/classes.yaml NAMESPACE/POD=shop/web\ntrimtab plan PODS.yaml           # what a pod would get for its keys, and which keys no hook serves\n" +
		"trimtab explain NAMESPACE/POD    # what a running pod got for its keys\n```" + `

For authors of pods that carry keys of Koordinator, Katalyst, rubik, nri-plugins or NRI's own plugins: what each key does on a
node that runs Trimtab.

` + item("**read**: it asks for the kinds named beside it, which [authorization.md](authorization.md) decides about, and the hooks named there "+
		"serve it ([hooks.md](hooks.md))") +
		item("**not supported**: it asks for something that Trimtab does not do. `trimtab explain`, `trimtab status`, the log (`kind=unserved`) "+
			"and `trimtab_refused_total{kind=\"unserved\"}` report that for each pod that has it") +
		item("**ignored**: it requests nothing from a node agent, and the agent does not report it") + `
A key that is read and whose hooks are all off has no effect, and is reported in the same way. So are keys of a system that
` + "`dialects` in [config.md](config.md)" + ` leaves out, and requests that only ` + "`placement.policy: pools`" + ` serves while the policy is
` + "`none`" + `. Such a report never stops a pod, not even with ` + "`strict: true`" + `.

**Edits.** A label or annotation can be edited while its pod runs. "at once" needs a source of pod specs (` + "`podspec`" + ` in
[config.md](config.md)); without one the values that the pod was created with count. A scoped key also counts as ` +
		"`KEY/pod`\nand `KEY/container.NAME`" + `.
`)
	for _, title := range intent.KeySystems() {
		fmt.Fprintf(&b, "\n## %s\n\n", title[1])
		for _, k := range intent.Keys() {
			if k.System == title[0] {
				text := clauses("; ", k.Handling.String(), labelled("asks for", kinds(k)), labelled("served by", codes(serversOf(k))),
					labelled("an edit counts:", k.Edit.String()))
				b.WriteString(item(clauses(" ", fmt.Sprintf("%s (%s): %s.", keyName(k), k.Place, text), sentence(upper(k.Why)))))
			}
		}
	}
	return b.String(), nil
}

func keyName(k intent.Key) string {
	name := code(k.Name)
	if k.Field != "" {
		name += ": " + code(k.Field)
	}
	if k.Scoped {
		name += " (scoped)"
	}
	return name
}

func kinds(k intent.Key) string {
	names := make([]string, len(k.Kinds))
	for i, kind := range k.Kinds {
		names[i] = string(kind)
	}
	return codes(names)
}

// serversOf returns the names of the hooks that serve a key.
func serversOf(k intent.Key) []string {
	var hooks []string
	seen := map[string]bool{}
	for _, kind := range k.Kinds {
		for _, h := range intent.ServersOf(kind, k.Name) {
			if !seen[h] {
				seen[h] = true
				hooks = append(hooks, h)
			}
		}
	}
	return hooks
}
