package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRulesExitCodes: 0 if all cases hold, 1 if one does not, 2 for a mistake.
func TestRulesExitCodes(t *testing.T) {
	example, err := os.ReadFile("../../examples/rules/rules-test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command, from, to string
		want              int
		says              string
	}{
		{"test", "", "", exitOK, "5 cases, 0 failed"},
		{"test", `GOMAXPROCS: "3"`, `GOMAXPROCS: "4"`, exitFailure, "set env GOMAXPROCS: want 4, got 3"},
		{"test", "name: go\n", "name: go\n  required: true\n", exitOK, "ok     a limit in CPUs"},
		{"test", "container: sidecar", "container: none", exitUsage, `the pod has no container named "none"`},
		{"test", `pod.namespace == "batch"`, "pod.space", exitUsage, "undefined field 'space'"},
		{"test", "kind: RulesTest", "kind: Test", exitUsage, "want apiVersion"},
		{"check", "", "", exitOK, "no-old-runtimes: ok"},
		{"check", "4096:8192\"}", "x\"}", exitUsage, "rules[4].set[0].value"},
		{"check", "kind: RulesTest", "kind: Config", exitUsage, "cases: unknown key"},
	} {
		file := filepath.Join(t.TempDir(), "t.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(example), c.from, c.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code := run(t.Context(), invocation{name: "trimtab", args: []string{"rules", c.command, file}, in: strings.NewReader(""), out: &out, err: &out})
		if code != c.want || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s, %q for %q: exit code %d, want %d\n%s", c.command, c.to, c.from, code, c.want, out.String())
		}
	}
}

// TestUnmatchedRule: a rule that is named.
func TestUnmatchedRule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.yaml")
	text := "apiVersion: trimtab.io/v1alpha1\nkind: RulesTest\nrules:\n- {name: never, match: 'false', class: shared}\ncases:\n" +
		"- {name: a, pod: {metadata: {name: p}, spec: {containers: [{name: c}]}}, want: {class: none}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code := run(t.Context(), invocation{name: "trimtab", args: []string{"rules", "test", file}, in: strings.NewReader(""), out: &out, err: &out})
	if code != exitOK || !strings.Contains(out.String(), "rule never") {
		t.Errorf("exit code %d\n%s", code, out.String())
	}
}
