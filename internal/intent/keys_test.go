package intent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestKeysKnown: every key of the systems beside which this agent runs has a row.
func TestKeysKnown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "reference-keys.txt"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, k := range Keys() {
		rows[k.System+" "+k.Name], rows[k.System+" "+k.FullName()] = true, true
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if n++; !rows[line] {
			t.Errorf("no row of Keys for %q", line)
		}
	}
	if n < 150 {
		t.Errorf("only %d keys in the list", n)
	}
}

// TestKeysAreWhole: a row is complete and says once how its key is handled.
func TestKeysAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		id := k.System + " " + k.FullName()
		switch {
		case seen[id]:
			t.Errorf("two rows for %s", id)
		case k.Location == "" || k.System == "":
			t.Errorf("%s: no place or system", id)
		case k.Handling != KeyRead && k.Why == "":
			t.Errorf("%s: nothing says why it is not read", id)
		case k.Handling == KeyRead && k.Edit == EditNone:
			t.Errorf("%s: nothing says what an edit does", id)
		case k.Handling == KeyRead && len(k.Kinds) == 0 && k.Why == "":
			t.Errorf("%s: nothing says what it is for", id)
		}
		seen[id] = true
		for _, kind := range k.Kinds {
			if len(ServingHooks(kind, k.Name)) == 0 {
				t.Errorf("%s: no hook serves %s", id, kind)
			}
		}
	}
}

// TestConstantsHaveRows: every key in the code of this package has a row that says it is read, so that
// docs/keys.md has it.
func TestConstantsHaveRows(t *testing.T) {
	read := map[string]bool{RecordKey: true}
	for _, k := range Keys() {
		if k.Handling == KeyRead || k.Location == ResourceName || k.Field != "" || k.Name == RubikQuotaTurbo || k.Name == RubikCPI {
			read[k.Name] = true
		}
	}
	n := 0
	for name, value := range stringConstants(t) {
		domain, rest, _ := strings.Cut(value, "/")
		if !strings.Contains(domain, ".") || rest == "" || strings.ContainsAny(value, " \n") {
			continue
		}
		if n++; !read[value] {
			t.Errorf("%s = %q has no row that says it is read", name, value)
		}
	}
	if n < 30 {
		t.Errorf("found only %d keys among the constants", n)
	}
}

// stringConstants returns the string constants of this package by name.
func stringConstants(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			g, is := decl.(*ast.GenDecl)
			if !is || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) {
						if lit, is := v.Values[i].(*ast.BasicLit); is && lit.Kind == token.STRING {
							if text, err := strconv.Unquote(lit.Value); err == nil {
								out[name.Name] = text
							}
						}
					}
				}
			}
		}
	}
	return out
}

// TestEveryKindHasAServer: every kind of intent that a key requests is served by a hook, so that a disabled
// hook is reported.
func TestEveryKindHasAServer(t *testing.T) {
	for _, d := range Defaults() {
		if d.Kind == Mounts || d.Kind == MemoryProtection || d.Kind == PluginKind {
			continue // no key requests it: preemptable: "false" does, or a request for a plugin's resource
		}
		if len(ServingHooks(d.Kind, "")) == 0 {
			t.Errorf("kind %s has no hook that serves it", d.Kind)
		}
	}
}

// TestEditable: the labels and annotations that are stored of a running pod are those whose edits take
// effect.
func TestEditable(t *testing.T) {
	want := map[string]bool{}
	for _, k := range Keys() {
		if k.Location.isPodKey() {
			want[k.Name] = want[k.Name] || k.Edit == EditLive || k.Edit == EditNext
		}
	}
	for key, counts := range want {
		if have := lifecycle.IsEditable(key); have != counts {
			t.Errorf("%s: edits counted: %v, want %v by the table", key, have, counts)
		}
	}
}

// TestEdits: edits take effect as the table says, fixed values stay, and what an older agent stored says
// nothing about keys that it did not store.
func TestEdits(t *testing.T) {
	pod := &lifecycle.Pod{
		Labels:      map[string]string{KoordQoSClass: "BE"},
		Annotations: map[string]string{KoordResourceStatus: `{"cpuset":"1"}`, KoordOOMScore: "5", RubikBurst: "1000"},
	}
	now := &lifecycle.PodMeta{
		Labels:      map[string]string{KoordQoSClass: "LS"},
		Annotations: map[string]string{KoordResourceStatus: `{"cpuset":"0-7"}`, RubikBurst: "2000"},
	}
	for _, whole := range []bool{true, false} {
		now.HasAllKeys = whole
		got := Read(pod, &lifecycle.PodSpec{Meta: now}, Dialects())
		if len(got.CPUs.V) != 1 || got.Burst.V != 2000 {
			t.Errorf("whole %v: CPUs %v, burst %d", whole, got.CPUs.V, got.Burst.V)
		}
		if got.OOMScore.IsSet() == whole || (got.ClassName == "LS") != whole {
			t.Errorf("whole %v: class %s, OOM score said: %v", whole, got.ClassName, got.OOMScore.IsSet())
		}
	}
}
