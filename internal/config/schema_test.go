package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"
)

func TestEveryKeyIsDescribed(t *testing.T) {
	keys := Keys()
	if len(keys) < 30 {
		t.Fatalf("only %d keys", len(keys))
	}
	known := map[string]bool{}
	rules := rules()
	for _, k := range keys {
		known[k.Path] = true
		if k.About == "" {
			t.Errorf("%s: its field has no comment; docs and schema would be mute", k.Path)
		}
		if strings.HasPrefix(k.Type, "unreadable") {
			t.Errorf("%s: the decoder cannot read a key of this type: %s", k.Path, k.Type)
		}
		if _, ok := rules[k.Path]; !ok && (k.Type == "string" || k.Type == "integer") {
			t.Errorf("%s: any %s would be accepted; give it a rule", k.Path, k.Type)
		}
	}
	for path := range rules {
		if !known[path] {
			t.Errorf("there is a rule for %s, which is no key", path)
		}
	}
}

func resolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSchemaDescribesEveryKey(t *testing.T) {
	s := resolved(t).Schema()
	for _, k := range Keys() {
		p := find(s, k.Path)
		if p == nil || p.Description != k.About {
			t.Errorf("%s: not described in the schema", k.Path)
		}
	}
}

// TestSchemaAgreesWithParse gives the same files to both. The schema may be
// laxer where JSON Schema has no words (ranges that run backwards, duplicate
// keys) and must never refuse what Parse accepts.
func TestSchemaAgreesWithParse(t *testing.T) {
	schema := resolved(t)
	accepts := func(data []byte) bool {
		var v any
		if err := yaml.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v) == nil
	}
	if !accepts(Print(Default())) {
		t.Error("the schema refuses the printed defaults")
	}
	if !accepts([]byte(header + "hooks:\npools: ~\nlog: {}\n")) {
		t.Error("the schema refuses empty sections")
	}
	for _, name := range []string{
		"unknown-key", "wrong-case", "misplaced-key", "wrong-types", "values", "no-version",
		"other-version", "list-at-top", "interval-too-long",
	} {
		data, err := os.ReadFile(filepath.Join("testdata/bad", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if accepts(data) {
			t.Errorf("the schema accepts %s", name)
		}
	}
}

func TestPrintKeepsEveryKey(t *testing.T) {
	c := Default()
	c.Authorisation = []Rule{
		{Kinds: []string{"assigned-cpus"}, Namespaces: []string{"*", "a-?"}, Decision: "cap", MostCPUs: 4},
		{Kinds: []string{"*"}, Namespaces: []string{"kube-system"}, Decision: "allow"},
	}
	out := string(Print(c))
	for _, k := range Keys() {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if !strings.Contains(out, name+":") {
			t.Errorf("%s is not printed", k.Path)
		}
	}
	// A value that would read as a number must come back as text.
	c.NRI.Index, c.NRI.Name, c.Pools.Shared = "08", "true", "1"
	back, err := Parse("printed", Print(c))
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("came back as %+v, %v", back, err)
	}
}
