package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/trimtab/trimtab/internal/cli"
)

// answersSchema returns docs/answers.schema.json: one schema for all documents that commands print, with a definition
// for each kind. A program can generate its types from it, or check documents with it.
func answersSchema() (string, error) {
	root := jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema", Title: "Trimtab answers",
		Description: "What the commands of Trimtab print with -o json and -o yaml.", Defs: map[string]*jsonschema.Schema{},
	}
	for _, a := range answers() {
		s, err := answerSchema(a)
		if err != nil {
			return "", fmt.Errorf("schema of %s: %w", a.command, err)
		}
		name := definitionName(a)
		root.Defs[name] = s
		root.AnyOf = append(root.AnyOf, &jsonschema.Schema{Ref: "#/$defs/" + name})
	}
	out, err := json.MarshalIndent(&root, "", "  ")
	return string(out) + "\n", err
}

// definitionName returns the name of an answer in the schema: its kind, or Event for events, which have many kinds.
func definitionName(a answer) string {
	if a.kind == "" {
		return "Event"
	}
	return a.kind
}

// answerSchema returns the schema of one document, with apiVersion and kind.
func answerSchema(a answer) (*jsonschema.Schema, error) {
	t := reflect.TypeOf(a.value)
	list := t.Kind() == reflect.Slice
	if list {
		t = t.Elem()
	}
	s, err := schemaOf(t)
	if err != nil {
		return nil, err
	}
	if list {
		s = &jsonschema.Schema{
			Type: "object", Properties: map[string]*jsonschema.Schema{"items": {Types: []string{"array", "null"}, Items: s}},
			Required: []string{"items"},
		}
	}
	s.Description = a.command
	s.Required = append(s.Required, "apiVersion", "kind")
	kind := &jsonschema.Schema{Type: "string"}
	if a.kind != "" {
		kind.Const = jsonschema.Ptr[any](a.kind)
	}
	s.Properties["apiVersion"] = &jsonschema.Schema{Const: jsonschema.Ptr[any](cli.APIVersion)}
	s.Properties["kind"] = kind
	return s, nil
}

// schemaOf returns the schema of a type in JSON. A later release may add fields within an API version, so the schema
// allows further fields.
func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	o := jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{}}
	addEncodedTypes(t, map[reflect.Type]bool{}, o.TypeSchemas)
	s, err := jsonschema.ForType(t, &o)
	if err != nil {
		return nil, err
	}
	allowMoreFields(s)
	return s, nil
}

// addEncodedTypes adds to found the types within t that encode themselves as text or JSON, with their schemas.
func addEncodedTypes(t reflect.Type, seen map[reflect.Type]bool, found map[reflect.Type]*jsonschema.Schema) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch {
	case t == reflect.TypeFor[time.Time]() || t.Kind() == reflect.Pointer && t.Elem() == reflect.TypeFor[time.Time]():
		found[reflect.TypeFor[time.Time]()] = &jsonschema.Schema{Type: "string", Format: "date-time"}
		return
	case t.Kind() != reflect.Pointer && t.Implements(textMarshaler):
		found[t] = &jsonschema.Schema{Type: "string"}
		return
	case t.Kind() != reflect.Pointer && t.Implements(jsonMarshaler):
		found[t] = &jsonschema.Schema{} // any value is valid
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		addEncodedTypes(t.Elem(), seen, found)
	case reflect.Struct:
		for f := range t.Fields() {
			addEncodedTypes(f.Type, seen, found)
		}
	}
}

// allowMoreFields changes a schema and all schemas within it, so that they allow further fields. They then also allow
// null for a mapping, because encoding/json encodes a nil map as null.
func allowMoreFields(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = nil
	} else if s.Type == "object" {
		s.Type, s.Types = "", []string{"object", "null"}
	}
	for _, p := range s.Properties {
		allowMoreFields(p)
	}
	allowMoreFields(s.Items)
	allowMoreFields(s.AdditionalProperties)
}
