package rulestest_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/rules/rulestest"
	"github.com/trimtab/trimtab/test/clock"
)

const head = "apiVersion: trimtab.io/v1alpha1\nkind: RulesTest\n"

func none(path string) (config.Config, error) { return config.Config{}, errors.New("no " + path) }

func play(t *testing.T, text string, load func(string) (config.Config, error)) rulestest.Report {
	t.Helper()
	f, err := rulestest.Parse("t.yaml", []byte(text), load)
	if err != nil {
		t.Fatal(err)
	}
	node, err := agent.RulesNode(f.Config, f.NamespaceLabels)
	if err != nil {
		t.Fatal(err)
	}
	return f.Run(node)
}

// TestExample: the cases of the example pass.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../../examples/rules/rules-test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if r := play(t, string(text), none); r.Failed+r.NotRun != 0 || len(r.Cases) != 5 {
		t.Errorf("%+v", r)
	}
}

// TestPage: the tests in docs/rules.md pass for the rules in it.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of YAML, want rules and tests", len(blocks)-1)
	}
	block := func(n int) string { text, _, _ := strings.Cut(blocks[n], "```"); return text }
	r := play(t, block(2), func(path string) (config.Config, error) {
		if path != "config.yaml" {
			t.Errorf("path %s", path)
		}
		return config.Parse(path, []byte("apiVersion: trimtab.io/v1alpha1\nkind: Config\n"+block(1)))
	})
	if r.Failed+r.NotRun != 0 || len(r.Cases) != 1 || len(r.Rules) != 4 {
		t.Errorf("%+v", r)
	}
}

// TestDifferences: each expectation that is not met is reported, and rules that match are counted.
func TestDifferences(t *testing.T) {
	r := play(t, head+`
rules:
- {name: one, match: pod.namespace == "a", set: [{field: env, key: A, value: "1"}], class: shared, numa: {nodes: "0-1", even: true}}
- {name: two, match: 'true', set: [{field: env, key: A, value: "2"}, {field: env, key: E}, {field: cpu.shares, scope: pod, value: "9"}]}
- {name: never, match: 'false', refuse: never}
cases:
- name: all differ
  pod: &pod {metadata: {name: p, namespace: a}, spec: {containers: [{name: c}]}}
  want: {matched: [two], set: {env A: "2", env B: ""}, setPod: {}, class: none, pool: x, numa: "", refused: because, problems: [absent]}
- name: none differs
  pod: *pod
  want: {matched: [one, two], set: {env A: "1", env E: ""}, setPod: {cpu.shares: "9"}, class: shared, pool: "", numa: "bind nodes=0-1 even", problems: [rules.one and rules.two disagree on env]}
- {name: no such container, pod: *pod, container: x, want: {matched: []}}
- {name: two containers, pod: {metadata: {name: p}, spec: {containers: [{name: c}, {name: d}]}}, want: {matched: []}}
- {name: no pod, pod: {kind: Service}, want: {matched: []}}
`, none)
	want := rulestest.Report{
		Cases: []rulestest.Result{
			{Name: "all differ", Differences: []rulestest.Difference{
				{What: "matched", Want: "two", Got: "one, two"}, {What: "set env A", Want: "2", Got: "1"}, {What: "set env B", Want: `""`}, {What: "set env E", Got: `""`},
				{What: "setPod cpu.shares", Got: "9"}, {What: "class", Want: "none", Got: "shared"}, {What: "pool", Want: "x"}, {What: "numa", Got: "bind nodes=0-1 even"},
				{What: "refused", Want: "because"}, {What: "problems", Want: "absent"}, {What: "problems", Got: "hooks rules.one and rules.two disagree on env: 1 is used, not 2"},
			}},
			{Name: "none differs"},
			{Name: "no such container", Error: `container: the pod has no container named "x"`},
			{Name: "two containers", Error: "container: the pod has 2 containers: name one of them"},
			{Name: "no pod", Error: "pod: the manifest has no pod or workload, only 1 Service; name a file with a pod"},
		},
		Rules: []rulestest.RuleCount{{Name: "one", Cases: 2}, {Name: "two", Cases: 2}, {Name: "never"}}, Failed: 1, NotRun: 3,
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
}

// TestMistakes: a mistake is reported with its place.
func TestMistakes(t *testing.T) {
	const pod = "{metadata: {name: p}, spec: {containers: [{name: c}]}}"
	rule := func(text string) string {
		return head + "# a comment\nrules:\n- " + text + "\ncases:\n- {name: a, pod: " + pod + ", want: {matched: []}}\n"
	}
	for text, want := range map[string]string{
		"kind: Config\n":   "want apiVersion",
		head:               "give either rules, or",
		head + "config: x": "has no cases",
		head + "config: x\nrules: [{}]\ncases: [{}]":             "give either rules, or",
		head + "config: x\ncases: [{name: a, want: {class: x}}]": "no x",
		head + "casses: []": "casses",
		rule("{name: r, match: 'pod.nam == \"x\"', class: shared}"):                                                                                                      "t.yaml:5: rules[0].match: line 1, column 4",
		rule("{name: r, match: 'true', klass: shared}"):                                                                                                                  "t.yaml:5: rules[0].klass",
		rule("{name: r, match: 'true', set: [{field: rlimit, key: X, value: \"1\"}]}"):                                                                                   "t.yaml:5: rules[0].set[0].key",
		head + "rules: [{name: r, match: 'true', class: shared}]\ncases: [{name: a, pod: " + pod + ", want: {}}]":                                                        "cases[0].want: is empty",
		head + "rules: [{name: r, match: 'true', class: shared}]\ncases: [{name: a, pod: " + pod + ", want: {class: x}}, {name: a, pod: " + pod + ", want: {class: x}}]": "is the name of another case",
		"{apiVersion: trimtab.io/v1alpha1, kind: RulesTest, rules: [{name: r, match: 'true', class: shared}], cases: [{name: a, want: {class: x}}]}":                     "on lines of its own",
		head + "config: " + strings.Repeat("x", rulestest.MaxSize):                                                                                                       "is larger than",
	} {
		if _, err := rulestest.Parse("t.yaml", []byte(text), none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v, want %s", text, err, want)
		}
	}
}

// FuzzParse: no file makes the command panic.
func FuzzParse(f *testing.F) {
	f.Add(head + "rules: [{name: r, match: 'true', class: shared}]\ncases: [{name: a, pod: {spec: {containers: [{name: c}]}}, want: {class: x}}]")
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		if file, err := rulestest.Parse("t.yaml", []byte(text), none); err == nil {
			node, err := agent.RulesNode(file.Config, file.NamespaceLabels)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			file.Run(node)
		}
	})
}
