package intent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/expression"
)

func named(names ...string) *expression.Expression {
	return &expression.Expression{Key: "name", Operator: "In", Values: names}
}

// TestAffinities: the short form counts for both containers of a pair; the long form has scopes,
// expressions and weights, which anti-affinity turns around and which are bounded.
func TestAffinities(t *testing.T) {
	t.Parallel()
	p := readOf(map[string]string{NRIAffinity: "c0: [c1, c2]\nc1: [c0]", NRIAntiAffinity: `{"c3": ["c4"]}`})
	want := map[string][]Affinity{"c0": {{Match: named("c1", "c2"), Weight: 1}}, "c1": {{Match: named("c0"), Weight: 1}}, "c2": {{Match: named("c0"), Weight: 1}}}
	if diff := cmp.Diff(want, p.Affinity.V); diff != "" || len(p.Problems) > 0 {
		t.Errorf("%s %v", diff, p.Problems)
	}
	if diff := cmp.Diff([]Affinity{{Match: named("c4"), Weight: -1}}, p.AffinitiesOf("c3")); diff != "" {
		t.Error(diff)
	}

	long := `
c0:
- scope: {key: pod/namespace, operator: In, values: [shop, "web-*"]}
  match: {key: pod/labels/app, operator: Exists}
  weight: 20
- match: {key: name, operator: Matches, values: ["side*"]}
  weight: 5000
`
	p = readOf(map[string]string{NRIAffinity: long, NRIAntiAffinity: long})
	scope := &expression.Expression{Key: "pod/namespace", Operator: "In", Values: []string{"shop", "web-*"}}
	match := &expression.Expression{Key: "pod/labels/app", Operator: "Exists"}
	side := &expression.Expression{Key: "name", Operator: "Matches", Values: []string{"side*"}}
	const id = `[{"key":"pod/namespace","operator":"In","values":["shop","web-*"]},{"key":"pod/labels/app","operator":"Exists","values":null}]`
	all := []Affinity{{scope, match, 20, id}, {nil, side, 1000, ""}, {scope, match, -20, id}, {nil, side, -1000, ""}}
	if diff := cmp.Diff(all, p.AffinitiesOf("c0")); diff != "" || len(p.Problems) > 0 {
		t.Errorf("%s %v", diff, p.Problems)
	}
}

// TestMalformedAffinities: a fault leaves out the whole annotation, and the problem says where it is.
func TestMalformedAffinities(t *testing.T) {
	t.Parallel()
	match := `"match":{"key":"name","operator":"Exists"}`
	for text, reason := range map[string]string{
		`{"c0":[{"scope":{"key":"name","operator":"Exists"}}]}`:                                                             "c0[0].match is missing",
		`{"c0":[{` + match + `},{"match":{"key":"name","operator":"Near"}}]}`:                                               `c0[1].match.operator is "Near"`,
		`{"c0":[{"match":{"key":"labels/app","operator":"Exists"}}]}`:                                                       `c0[0].match.key has the key "labels/app", want pod/labels/KEY`,
		`{"c0":[{"match":{"key":"name","operator":"In"}}]}`:                                                                 "c0[0].match.values In needs a value",
		`{"c0":[{"match":{"key":"name","operator":"Matches","values":["[a"]}}]}`:                                            "c0[0].match.values is",
		`{"c0":[{` + match + `,"scope":{"key":"tags/a","operator":"Exists"}}]}`:                                             `c0[0].scope.key has the key "tags/a"`,
		`{"c0":[{` + match + `,"weights":1}]}`:                                                                              "c0[0]: malformed",
		`{"c0":[{` + match + `,"weight":"1"}]}`:                                                                             "c0[0]: malformed",
		`{"c0":[{` + match + `,"weight":1e30}]}`:                                                                            "c0[0]: malformed",
		`{"c0":[{` + match + `},"c1"]}`:                                                                                     "mixes names of containers with objects",
		`{"c0":"c1"}`:                                                                                                       "want for each container a list of container names",
		`c0: [{match: {key: name, operator: Exists}, match: {}}]`:                                                           "malformed",
		`{"c0":[` + strings.Repeat(`"c1",`, maxAffinities) + `"c2"]}`:                                                       "the agent reads at most 32",
		`{"c0":[{"match":{"key":"name","operator":"In","values":[` + strings.Repeat(`"a",`, maxAffinityValues) + `"b"]}}]}`: "values has 33",
		`{"c0":[{"match":{"key":"name","operator":"In","values":["` + strings.Repeat("a", 321) + `"]}}]}`:                   "longer than 320 bytes",
	} {
		p := readOf(map[string]string{NRIAffinity: text})
		if p.Affinity.IsSet() || len(p.Problems) != 1 || p.Problems[0].Key != NRIAffinity || !strings.Contains(p.Problems[0].Reason, reason) {
			t.Errorf("%s: %v, %v; want %q", text, p.Affinity, p.Problems, reason)
		}
	}
}
