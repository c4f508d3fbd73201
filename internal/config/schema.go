package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON Schema of the configuration file. Structure and types come from the structs, and descriptions
// from the comments of the structs' fields. Choices and bounds come from the rules that Validate applies.
func Schema() ([]byte, error) {
	root, err := jsonschema.For[Config](nil)
	if err != nil {
		return nil, fmt.Errorf("make the JSON Schema of the configuration: %w", err)
	}
	root.Schema = "https://json-schema.org/draft/2020-12/schema"
	root.Title = "Trimtab configuration"
	root.Description = "Configuration of the Trimtab node agent."
	makeOptional(root)
	root.Required = []string{"apiVersion", "kind"}
	byPath := keyRules()
	for _, k := range Keys() {
		s := findSchema(root, k.Path)
		s.Description = k.About
		if !k.IsSection() {
			if !strings.Contains(k.Path, "[]") {
				s.Default = json.RawMessage(k.Default)
			}
			byPath[k.Path].constrain(s)
		}
	}
	for was, now := range formerNames(reflect.TypeFor[Config]()) {
		old := *findSchema(root, now)
		old.Description, old.Deprecated = "the former name of "+now, true
		root.Properties[was] = &old
	}
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make the JSON Schema of the configuration: %w", err)
	}
	return append(out, '\n'), nil
}

// makeOptional makes every key optional. Like the decoder, it allows null for a section and forbids null for a list. A
// section is null in YAML if all its keys are commented out.
func makeOptional(s *jsonschema.Schema) {
	s.Required = nil
	if s.Items != nil {
		s.Type, s.Types = "array", nil
	}
	for _, p := range s.Properties {
		if p.Properties != nil {
			p.Type, p.Types = "", []string{"object", "null"}
		}
		makeOptional(p)
	}
	if s.Items != nil {
		makeOptional(s.Items)
	}
}

// findSchema returns the schema of the key at a path.
func findSchema(s *jsonschema.Schema, path string) *jsonschema.Schema {
	if path == "" {
		return s
	}
	if list, ok := strings.CutSuffix(path, "[]"); ok {
		return findSchema(s, list).Items
	}
	up := parentOf(path)
	key := path
	if up != "" {
		key = path[len(up)+1:]
	}
	return findSchema(s, up).Properties[key]
}

// constrain adds the rule to the schema of a key.
func (r rule) constrain(s *jsonschema.Schema) {
	if r.required {
		s.MinItems, r.required = new(1), false
	}
	if s.Items != nil {
		s.UniqueItems = len(s.Items.Properties) == 0
		r.constrain(s.Items)
		return
	}
	for _, c := range slices.Concat(r.choices, r.otherSpellings) {
		s.Enum = append(s.Enum, c)
	}
	s.Pattern = r.pattern
	if r.max != 0 {
		s.Minimum, s.Maximum = new(float64(r.min)), new(float64(r.max))
	}
	if r.maxBytes != 0 {
		s.MaxLength = new(r.maxBytes)
	}
}
