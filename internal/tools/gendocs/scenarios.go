package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// scenarioSources are the Go files whose comments describe the fields of a scenario.
var scenarioSources = []string{
	"../../sim/scenario/scenario.go", "../../sim/scenario/balloons.go", "../../sim/scenario/claims.go",
	"../../sim/kernel/resctrl.go", "../../sim/kernel/cpufiles.go", "../../sim/kernel/tiers.go",
}

// shownScenario is the scenario that the page shows.
const shownScenario = "../../../test/scenarios/manifest.yaml"

// scenarioPart is an object in the file of a scenario: the title of its section, its path, and its type.
type scenarioPart struct {
	title, where string
	value        reflect.Type
}

// scenarioParts lists the objects in the file of a scenario, in the order of the page.
func scenarioParts() []scenarioPart {
	return []scenarioPart{
		{"The file", "", reflect.TypeFor[scenario.Scenario]()},
		{"Node", "node", reflect.TypeFor[scenario.Node]()},
		{"Cache and memory bandwidth", "node.resctrl", reflect.TypeFor[kernel.ResctrlHardware]()},
		{"Step", "steps[]", reflect.TypeFor[scenario.Step]()},
		{"Pods to run", "steps[].run[]", reflect.TypeFor[scenario.Run]()},
		{"Pod", "steps[].run[].pod", reflect.TypeFor[scenario.Pod]()},
		{"Container", "steps[].run[].containers[]", reflect.TypeFor[scenario.Container]()},
		{"Resources", "resources", reflect.TypeFor[scenario.Resources]()},
		{"Grants of the kubelet", "podResources.NAME", reflect.TypeFor[scenario.Static]()},
		{"An additional container", "steps[].createContainer", reflect.TypeFor[scenario.Create]()},
		{"New labels and annotations", "steps[].annotate", reflect.TypeFor[scenario.Annotate]()},
		{"New resources", "steps[].update", reflect.TypeFor[scenario.Update]()},
		{"Expected values", "steps[].want.NAME", reflect.TypeFor[scenario.Want]()},
		{"Expected balloons", "steps[].wantBalloons", reflect.TypeFor[scenario.Balloons]()},
	}
}

// scenariosPage returns docs/scenarios.md.
func scenariosPage() (string, error) {
	comments, err := scenarioComments()
	if err != nil {
		return "", err
	}
	shown, err := os.ReadFile(shownScenario)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(generatedNotice + `# Scenarios

` + "```sh\ntrimtab sim run test/scenarios/manifest.yaml                    # each step, what every container got, and why\n" +
		"trimtab sim run --svg node.svg test/scenarios/manifest.yaml     # a picture of the node after the last step\n" +
		"trimtab plan --node test/scenarios/manifest.yaml examples/cluster/classes.yaml    # pods on that node\n```" + `

For people who try a policy before they use it on a node, and for authors of tests. This page lists every key of a scenario.

A scenario is a YAML file with a node, a configuration and steps. ` + "`trimtab sim run`" + ` simulates the steps, such as the start of a pod.
The command uses the real agent with a simulated runtime and a simulated kernel. It does not need root, and changes nothing on the
machine where it runs. After each step it compares the values in force with the values that the step expects (` + "`want`" + `). If a value differs, the
exit code is 1. ` + "`trimtab sim serve --agent FILE`" + ` keeps the agent running after the last step. Then you can try ` + "`trimtab status`, `top`, `explain`" + `
and the web page. [test/scenarios](../test/scenarios) has many scenarios.

The following scenario runs two pods that are written as Kubernetes manifests. ` + "`requests` and `limits`" + ` become CPU shares, CPU quota and
memory limit, as with the kubelet. With the first line, an editor can complete keys and mark errors
([scenario.schema.json](scenario.schema.json)). If a key is unknown, the command ends with an error that names the most similar key.

` + "```yaml\n# yaml-language-server: $schema=../../docs/scenario.schema.json\n" +
		wrapFlow(strings.TrimPrefix(string(shown), "# yaml-language-server: $schema=../../docs/scenario.schema.json\n")) + "```\n")
	for _, p := range scenarioParts() {
		fmt.Fprintf(&b, "\n## %s\n\n", p.title)
		if p.where != "" {
			fmt.Fprintf(&b, "Keys below %s:\n\n", codeSpan(p.where))
		}
		for _, f := range reflect.VisibleFields(p.value) {
			name, _ := nameIn(f.Tag.Get("json"), f.Name)
			what := scenarioType(f.Type)
			if p.where == "" && slices.Contains(requiredKeys(), name) {
				what += ", required"
			}
			b.WriteString(listItem(fmt.Sprintf("%s (%s): %s", codeSpan(name), what, addFullStop(comments[p.value.Name()+"."+f.Name]))))
		}
	}
	return b.String(), nil
}

// wrapFlow breaks the long lines of a scenario after a comma, where YAML allows a line break in a flow mapping.
func wrapFlow(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for len(line) > 119 {
			cut := strings.LastIndex(line[:119], ", ")
			out.WriteString(line[:cut+1] + "\n")
			line = indent + "  " + line[cut+2:]
		}
		out.WriteString(line)
	}
	return out.String()
}

// scenarioType describes the type of a key for users.
func scenarioType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return "object"
	case t.Kind() == reflect.Pointer:
		return scenarioType(t.Elem())
	case t.Kind() == reflect.Slice:
		return "list of " + scenarioType(t.Elem())
	case t.Kind() == reflect.Map:
		return "mapping to " + scenarioType(t.Elem())
	}
	name, _ := jsonType(t)
	return name
}

// scenarioSchema returns docs/scenario.schema.json.
func scenarioSchema() (string, error) {
	comments, err := scenarioComments()
	if err != nil {
		return "", err
	}
	root, err := jsonschema.For[scenario.Scenario](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): {Types: []string{"object", "null"}},
	}})
	if err != nil {
		return "", fmt.Errorf("schema of scenarios: %w", err)
	}
	root.Schema = "https://json-schema.org/draft/2020-12/schema"
	root.Title = "Trimtab scenario"
	describeSchema(root, reflect.TypeFor[scenario.Scenario](), comments)
	if key := undescribedKey(root); key != "" {
		return "", fmt.Errorf("schema of scenarios: the key %s has no description: is the Go file of its type in scenarioSources?", key)
	}
	root.Properties["steps"].Items.Properties["restart"].Enum = []any{"agent", "runtime"}
	root.Properties["steps"].Items.Properties["kubelet"].Enum = []any{"away", "back"}
	root.Properties["node"].Properties["cgroup"].Enum = []any{"v1", "v2"}
	root.Properties["node"].Properties["driver"].Enum = []any{"cgroupfs", "systemd"}
	out, err := json.MarshalIndent(root, "", "  ")
	return string(out) + "\n", err
}

// undescribedKey returns the path of the first key without a description; "" if there is none.
func undescribedKey(s *jsonschema.Schema) string {
	if s == nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if p.Description == "" {
			return name
		}
		if key := undescribedKey(p); key != "" {
			return name + "." + key
		}
	}
	return cmp.Or(undescribedKey(s.Items), undescribedKey(s.AdditionalProperties))
}

// describeSchema writes the comments of a type's fields into the schema of the type. It also sets which keys the schema
// requires: the keys in requiredKeys for a scenario, and none for other objects. All other keys have a default, or the
// loader of scenarios reports a missing key better than the schema.
func describeSchema(s *jsonschema.Schema, t reflect.Type, comments map[string]string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		next := s.Items
		if t.Kind() == reflect.Map {
			next = s.AdditionalProperties
		}
		if t.Kind() != reflect.Pointer {
			s = next
		}
		if t = t.Elem(); t.Kind() == reflect.Uint8 || s == nil {
			return
		}
	}
	if t.Kind() != reflect.Struct {
		return
	}
	if t != reflect.TypeFor[scenario.Scenario]() {
		s.Required = nil
	} else {
		s.Required = requiredKeys()
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _ := nameIn(f.Tag.Get("json"), f.Name)
		p := s.Properties[name]
		p.Description = comments[t.Name()+"."+f.Name]
		describeSchema(p, f.Type, comments)
	}
}

// requiredKeys are the keys without which the loader refuses a file.
func requiredKeys() []string { return []string{"name", "node", "steps"} }

// scenarioComments returns the comments of the fields of a scenario's types, by type and field. The comments have the
// YAML keys in place of the names of Go fields. A field without a comment gets the comment of an earlier field that
// mentions it.
func scenarioComments() (map[string]string, error) {
	all := map[string]string{}
	for _, file := range scenarioSources {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("describe scenarios: %w", err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				if s, ok := t.Type.(*ast.StructType); ok {
					addFieldComments(all, t.Name.Name, s)
				}
			}
			return true
		})
	}
	return all, nil
}

var whitespace = regexp.MustCompile(`\s+`)

// addFieldComments adds the comments of the fields of a struct type to the map comments, by type and field.
func addFieldComments(comments map[string]string, typeName string, s *ast.StructType) {
	var above []string
	for _, f := range s.Fields.List {
		text := f.Doc.Text()
		if text == "" {
			text = f.Comment.Text()
		}
		text = strings.TrimSpace(whitespace.ReplaceAllString(text, " "))
		for _, name := range f.Names {
			if text == "" {
				text = lastTextNaming(above, name.Name)
			}
			above = append(above, text)
			comments[typeName+"."+name.Name] = replaceFieldNames(s, text)
		}
	}
}

// lastTextNaming returns the last of the texts that mentions a field; "" if no text mentions it.
func lastTextNaming(texts []string, field string) string {
	names := regexp.MustCompile(`\b` + field + `\b`)
	for _, text := range slices.Backward(texts) {
		if names.MatchString(text) {
			return text
		}
	}
	return ""
}

// replaceFieldNames replaces, in a text, the names of a type's fields by their YAML keys.
func replaceFieldNames(s *ast.StructType, text string) string {
	for _, f := range s.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 || f.Names[0].Name == "CPUs" { // CPUs is also an ordinary word
			continue
		}
		key, _ := nameIn(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), "")
		text = regexp.MustCompile(`\b`+f.Names[0].Name+`\b`).ReplaceAllString(text, key)
	}
	return text
}
