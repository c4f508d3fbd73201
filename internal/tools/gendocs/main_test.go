package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/hook"
)

const docs = "../../../docs"

func TestPagesAreFresh(t *testing.T) {
	for _, p := range pages() {
		want, err := p.make()
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join(docs, p.name))
		if err != nil {
			t.Error(err)
			continue
		}
		if d := cmp.Diff(want, string(have)); d != "" {
			t.Errorf("docs/%s is out of date, run go generate ./... (-want +have):\n%s", p.name, d)
		}
	}
}

func TestWriteAll(t *testing.T) {
	dir := t.TempDir()
	if err := writeAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := writeAll(filepath.Join(dir, "missing")); err == nil {
		t.Error("want an error for a missing directory")
	}
}

// TestPagesAreComplete checks, without the code that makes a page, that it names everything that it must.
func TestPagesAreComplete(t *testing.T) {
	page := func(name string) string {
		b, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	cfg := page("config.md")
	for _, k := range config.Keys() {
		if !strings.Contains(cfg, "* `"+k.Path+"` (") && !strings.Contains(cfg, "## "+k.Path+"\n") {
			t.Errorf("config.md lacks %s", k.Path)
		}
	}
	// words is the text without line breaks.
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	hooks := words(page("hooks.md"))
	for _, h := range hook.Catalogue() {
		for _, text := range append(append([]string{"## " + h.Name}, h.Reads...), h.Differs...) {
			if !strings.Contains(hooks, words(text)) {
				t.Errorf("hooks.md lacks %q of %s", text, h.Name)
			}
		}
	}
	fields := page("fields.md")
	for _, r := range nri.FieldRows() {
		if !strings.Contains(fields, "`"+r.Proto+"`") {
			t.Errorf("fields.md lacks %s", r.Proto)
		}
	}
	for _, r := range cri.Rows() {
		if !strings.Contains(fields, "`"+strings.TrimSuffix(r.Proto, ".")+"`") {
			t.Errorf("fields.md lacks %s", r.Proto)
		}
	}
}

// TestEveryDependencyHasAReason: docs/dependencies.md has a reason for each direct dependency, and for nothing else.
func TestEveryDependencyHasAReason(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(docs, "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := strings.Cut(string(page), "\n`test/oracle` needs") // the rest is about other modules
	var reasons []string
	for _, m := range regexp.MustCompile("(?m)^\\* `([^`]+)` \\((?:program|plugin|tests|tests, plugin)\\): .{20,}$").FindAllStringSubmatch(own, -1) {
		reasons = append(reasons, m[1])
	}
	direct := directDependencies(t)
	for _, d := range direct {
		if !slices.Contains(reasons, d) {
			t.Errorf("docs/dependencies.md has no reason for %s", d)
		}
	}
	for _, r := range reasons {
		if !slices.Contains(direct, r) {
			t.Errorf("docs/dependencies.md gives a reason for %s, which is no direct dependency", r)
		}
	}
}

// directDependencies returns the modules that go.mod requires without "// indirect".
func directDependencies(t *testing.T) []string {
	t.Helper()
	f, err := os.Open("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var direct []string
	in := bufio.NewScanner(f)
	for in.Scan() {
		line := strings.TrimPrefix(strings.TrimSpace(in.Text()), "require ")
		fields := strings.Fields(line)
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") {
			direct = append(direct, fields[0])
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return direct
}

// TestScenarios: every key of a scenario is described, and the schema accepts all scenarios and refuses an unknown key.
func TestScenarios(t *testing.T) {
	comments, err := scenarioComments()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range scenarioParts() {
		for _, f := range reflect.VisibleFields(p.value) {
			if comments[p.value.Name()+"."+f.Name] == "" {
				t.Errorf("%s.%s has no comment, so docs and schema say nothing about it", p.value.Name(), f.Name)
			}
		}
	}
	text, err := scenarioSchema()
	if err != nil {
		t.Fatal(err)
	}
	schema := &jsonschema.Schema{}
	if err := json.Unmarshal([]byte(text), schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../test/scenarios/*.yaml")
	if err != nil || len(files) < 50 {
		t.Fatalf("found %d scenarios: %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := yaml.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(s); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		s["stpes"] = nil
		if resolved.Validate(s) == nil {
			t.Errorf("%s: the schema accepts an unknown key", file)
		}
	}
}
