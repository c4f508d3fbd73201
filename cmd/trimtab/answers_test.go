package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"
)

// answersSchema is the schema that programs read, for documents of one kind.
func answersSchema(kind string) (*jsonschema.Resolved, error) {
	text, err := os.ReadFile("../../docs/answers.schema.json")
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	s.AnyOf, s.Ref = nil, "#/$defs/"+kind
	return s.Resolve(nil)
}

// conforms KIND wants the last output to be JSON documents, one at least, by the schema in docs for this kind.
func conforms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: conforms KIND")
	}
	schema, err := answersSchema(args[0])
	ts.Check(err)
	documents := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	for n := 0; ; n++ {
		var d any
		err := documents.Decode(&d)
		if err == io.EOF && n > 0 {
			return
		}
		ts.Check(err)
		if err := schema.Validate(d); err != nil {
			ts.Fatalf("document %d: %v", n+1, err)
		}
	}
}

// TestSchemaRefuses shows that the schema refuses what is no answer, and takes fields that a later program adds.
func TestSchemaRefuses(t *testing.T) {
	schema, err := answersSchema("HookList")
	if err != nil {
		t.Fatal(err)
	}
	const head = `{"apiVersion": "trimtab.io/v1alpha1", "kind": "HookList", `
	for text, valid := range map[string]bool{
		head + `"items": []}`:              true,
		head + `"items": [], "later": {}}`: true,
		head + `"items": {}}`:              false,
		head + `"items": [{"name": 7}]}`:   false,
		head + `"item": []}`:               false,
		`{"apiVersion": "trimtab.io/v1alpha1", "kind": "Plan", "items": []}`: false,
		`{"items": []}`: false,
	} {
		var d any
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(d); (err == nil) != valid {
			t.Errorf("%s: valid %v, want %v: %v", text, err == nil, valid, err)
		}
	}
}
