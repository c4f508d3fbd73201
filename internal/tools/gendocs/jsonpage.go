package main

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/recording"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/doctor"
	"github.com/trimtab/trimtab/internal/report/status"
)

// answers are the documents that commands print with -o json and -o yaml.
func answers() []answer {
	return []answer{
		{"trimtab status", "NodeStatus", api.Node{}},
		{"trimtab explain", "ContainerList", []api.Container{}},
		{"trimtab events", "", api.Event{}},
		{"trimtab hooks", "HookList", []hook.Info{}},
		{"trimtab plan, trimtab config plan", "Plan", api.Plan{}},
		{"trimtab adopt", "Adoption", api.Adoption{}},
		{"trimtab observe", "Observation", status.Observation{}},
		{"trimtab config print --sources", "ConfigSources", api.Configuration{}},
		{"trimtab doctor", "Diagnosis", doctor.Report{}},
		{"trimtab replay", "Replayed", recording.Report{}},
		{"trimtab version", "Build", cli.Build{}},
	}
}

// answer is a document that a command prints.
type answer struct {
	command string
	kind    string // "" for events, because each event is one line with its own kind
	value   any    // a value of the Go type of the document; if the document is a list, an empty list
}

// jsonPage returns docs/json.md.
func jsonPage() (string, error) {
	var b strings.Builder
	b.WriteString(generatedNotice + "# Answers as JSON\n\n```sh agent\ntrimtab status -o json | jq '.containers[] | select(.class == \"dedicated\") | .cpus'\n```\n\n" + paragraph(`
For people who write programs that read the output of commands. This page lists the fields of the JSON that each command
prints. With `+"`-o json` and `-o yaml`"+` a command prints one document with `+"`apiVersion: "+cli.APIVersion+"`"+` and a `+"`kind`"+`. If the answer is a
list, its entries are in the field `+"`items`"+` of the document. `+"`trimtab events`"+` prints one object per line, one for each event, and the
`+"`kind`"+` of the object is the kind of the event.`) + "\n" + paragraph(`
A field with ? is missing if it is empty. All other fields are always there. Later releases with this apiVersion may add fields,
and do not rename or remove any: a test compares the fields with a list of all earlier fields.
[answers.schema.json](answers.schema.json) describes the same documents as JSON Schema, with a definition for each kind.`))
	for _, a := range answers() {
		fmt.Fprintf(&b, "\n## %s\n\n", a.command)
		switch {
		case reflect.TypeOf(a.value).Kind() == reflect.Slice:
			fmt.Fprintf(&b, "Kind `%s`. Each of its items has:\n\n", a.kind)
		case a.kind != "":
			fmt.Fprintf(&b, "Kind `%s`.\n\n", a.kind)
		default:
			b.WriteString("One object for each event, on a line of its own.\n\n")
		}
		b.WriteString("```text\n")
		for _, f := range fieldsOf(reflect.TypeOf(a.value), "", nil) {
			b.WriteString(f + "\n")
		}
		b.WriteString("```\n")
	}
	return b.String(), nil
}

// fieldsOf lists the fields of a type in JSON with their paths and types. The parameter inside has the types that
// contain t.
func fieldsOf(t reflect.Type, path string, inside []reflect.Type) (all []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for _, outer := range inside {
		if outer == t {
			return nil // the type contains itself
		}
	}
	inside = append(inside, t)
	for _, f := range reflect.VisibleFields(t) {
		tag, has := f.Tag.Lookup("json")
		if !f.IsExported() || f.Anonymous && !has || tag == "-" || len(f.Index) > 1 && shadowed(t, f) {
			continue
		}
		name, optional := nameIn(tag, f.Name)
		what, deeper := jsonType(f.Type)
		all = append(all, fmt.Sprintf("%s%s%s  %s", path, name, optional, what))
		if deeper != nil {
			suffix := "."
			if strings.HasPrefix(what, "list") {
				suffix = "[]."
			}
			all = append(all, fieldsOf(deeper, path+name+suffix, inside)...)
		}
	}
	return all
}

// nameIn returns the JSON name of a field with this tag. The result optional is "?" if JSON lacks the field when it is
// empty, and "" otherwise.
func nameIn(tag, field string) (name, optional string) {
	name, options, _ := strings.Cut(tag, ",")
	if strings.Contains(options, "omit") {
		optional = "?"
	}
	return cmp.Or(name, field), optional
}

// shadowed reports whether a field of an embedded struct is hidden, because t has a field with the same name.
func shadowed(t reflect.Type, f reflect.StructField) bool {
	outer, _ := t.FieldByName(f.Name)
	return !reflect.DeepEqual(outer.Index, f.Index)
}

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
)

// jsonType describes a type in terms of JSON. For an object, it also returns the struct type. For a list of objects, it
// returns the struct type of the elements. For other types, the second result is nil.
func jsonType(t reflect.Type) (string, reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time (RFC 3339)", nil
	case t.Implements(textMarshaler):
		return "text", nil
	case t == reflect.TypeFor[json.RawMessage]():
		return "any", nil
	case t.Implements(jsonMarshaler):
		return "value", nil
	}
	switch t.Kind() {
	case reflect.String:
		return "text", nil
	case reflect.Bool:
		return "true or false", nil
	case reflect.Float32, reflect.Float64:
		return "number", nil
	case reflect.Struct:
		return "object", t
	case reflect.Slice, reflect.Array:
		of, deeper := jsonType(t.Elem())
		return "list of " + of, deeper
	case reflect.Map:
		of, _ := jsonType(t.Elem())
		return "mapping to " + of, nil
	}
	if t == reflect.TypeFor[time.Duration]() {
		return "nanoseconds", nil
	}
	return "whole number", nil
}
