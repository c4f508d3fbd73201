package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// The sources with the comments of a scenario's fields, and the scenario that the page shows.
const (
	scenarioSource = "../../sim/scenario/scenario.go"
	resctrlSource  = "../../sim/kernel/resctrl.go"
	shownScenario  = "../../../test/scenarios/manifest.yaml"
)

// scenarioPart is an object of a scenario, where it stands, and its type.
type scenarioPart struct {
	title, where string
	value        reflect.Type
}

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
		{"A container more", "steps[].createContainer", reflect.TypeFor[scenario.Create]()},
		{"New labels and annotations", "steps[].annotate", reflect.TypeFor[scenario.Annotate]()},
		{"New resources", "steps[].update", reflect.TypeFor[scenario.Update]()},
		{"Want", "steps[].want.NAME", reflect.TypeFor[scenario.Want]()},
	}
}

// scenariosPage is docs/scenarios.md.
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
	b.WriteString(generated + `# Scenarios

` + "```sh\ntrimtab sim run test/scenarios/manifest.yaml                    # each step, what every container got, and why\n" +
		"trimtab sim run --svg node.svg test/scenarios/manifest.yaml     # a picture of the node after the last step\n" +
		"trimtab plan --node test/scenarios/manifest.yaml examples/cluster/classes.yaml    # pods on that node\n```" + `

For people who try a policy before a node has it, and for authors of tests: every key of a scenario.

A scenario is a node, a configuration and steps, in one YAML file. ` + "`trimtab sim run`" + ` plays it with the agent, on an
embedded runtime and a kernel in memory. It needs no root and changes nothing of the machine. After each step it compares
what is in force with what the step wants; the exit code is 1 if something differs. ` + "`trimtab sim serve --agent FILE`" + `
keeps the agent on that node, for status, top, explain and the web page. [test/scenarios](../test/scenarios) has many.

This one runs two pods as people write them. ` + "`requests` and `limits`" + ` become shares, quota and memory limit as the kubelet
makes them. The first line has an editor complete keys and mark wrong ones, by
[scenario.schema.json](scenario.schema.json). An unknown key is an error that names the nearest valid one.

` + "```yaml\n# yaml-language-server: $schema=../../docs/scenario.schema.json\n" +
		wrapFlow(strings.TrimPrefix(string(shown), "# yaml-language-server: $schema=../../docs/scenario.schema.json\n")) + "```\n")
	for _, p := range scenarioParts() {
		fmt.Fprintf(&b, "\n## %s\n\n", p.title)
		if p.where != "" {
			fmt.Fprintf(&b, "Below %s:\n\n", code(p.where))
		}
		for _, f := range reflect.VisibleFields(p.value) {
			name, _ := nameIn(f.Tag.Get("json"), f.Name)
			what := scenarioType(f.Type)
			if p.where == "" && slices.Contains(requiredKeys(), name) {
				what += ", required"
			}
			b.WriteString(item(fmt.Sprintf("%s (%s): %s", code(name), what, sentence(comments[p.value.Name()+"."+f.Name]))))
		}
	}
	return b.String(), nil
}

// wrapFlow breaks the long lines of a scenario after a comma, where YAML lets a flow mapping go on.
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

// scenarioSchema is docs/scenario.schema.json.
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
	describe(root, reflect.TypeFor[scenario.Scenario](), comments)
	root.Properties["steps"].Items.Properties["restart"].Enum = []any{"agent", "runtime"}
	root.Properties["steps"].Items.Properties["kubelet"].Enum = []any{"away", "back"}
	root.Properties["node"].Properties["cgroup"].Enum = []any{"v1", "v2"}
	root.Properties["node"].Properties["driver"].Enum = []any{"cgroupfs", "systemd"}
	out, err := json.MarshalIndent(root, "", "  ")
	return string(out) + "\n", err
}

// describe writes the comments of a type's fields into its schema. The schema does not require keys that the loader
// fills in, or for which the loader has better messages.
func describe(s *jsonschema.Schema, t reflect.Type, comments map[string]string) {
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
		describe(p, f.Type, comments)
	}
}

// requiredKeys are the keys without which the loader refuses a file.
func requiredKeys() []string { return []string{"name", "node", "steps"} }

// scenarioComments returns the comments of the fields of a scenario's types, by type and field, with keys in place
// of Go's names. A field without a comment gets the comment of a field above it that names it.
func scenarioComments() (map[string]string, error) {
	all := map[string]string{}
	for _, file := range []string{scenarioSource, resctrlSource} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("describe scenarios: %w", err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				if s, ok := t.Type.(*ast.StructType); ok {
					fieldComments(all, t.Name.Name, s)
				}
			}
			return true
		})
	}
	return all, nil
}

var blanks = regexp.MustCompile(`\s+`)

func fieldComments(all map[string]string, of string, s *ast.StructType) {
	var above []string
	for _, f := range s.Fields.List {
		text := f.Doc.Text()
		if text == "" {
			text = f.Comment.Text()
		}
		text = strings.TrimSpace(blanks.ReplaceAllString(text, " "))
		for _, name := range f.Names {
			if text == "" {
				text = naming(above, name.Name)
			}
			above = append(above, text)
			all[of+"."+name.Name] = keysFor(s, text)
		}
	}
}

// naming returns the last text that names a field.
func naming(texts []string, field string) string {
	names := regexp.MustCompile(`\b` + field + `\b`)
	for _, text := range slices.Backward(texts) {
		if names.MatchString(text) {
			return text
		}
	}
	return ""
}

// keysFor replaces the names of a type's fields by their keys.
func keysFor(s *ast.StructType, text string) string {
	for _, f := range s.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 || f.Names[0].Name == "CPUs" { // CPUs is also an ordinary word
			continue
		}
		key, _ := nameIn(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), "")
		text = regexp.MustCompile(`\b`+f.Names[0].Name+`\b`).ReplaceAllString(text, key)
	}
	return text
}
