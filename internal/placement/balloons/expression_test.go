package balloons

import (
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func someSubject() Subject {
	pod := &lifecycle.Pod{Name: "web-1", UID: "u1", ID: "s1", Namespace: "shop", Labels: map[string]string{"app": "web"}}
	return Subject{Pod: pod, QoS: intent.Burstable, Name: "main"}
}

// TestExpressions: the operators are those of nri-plugins (pkg/apis/resmgr/v1alpha1/expression.go). Without a value
// only negations hold.
func TestExpressions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, operator string
		values        []string
		want          bool
	}{
		{"name", "Equals", []string{"main"}, true},
		{"name", "Equals", []string{"*"}, true},
		{"name", "NotEqual", []string{"main"}, false},
		{"namespace", "In", []string{"a", "shop"}, true},
		{"pod/namespace", "NotIn", []string{"a", "shop"}, false},
		{"pod/qosclass", "Equals", []string{"Burstable"}, true},
		{"pod/labels/app", "Exists", nil, true},
		{"pod/labels/none", "Exists", nil, false},
		{"pod/labels/none", "NotExists", nil, true},
		{"pod/labels/none", "Equals", []string{"*"}, false},
		{"pod/labels/none", "NotIn", []string{"a"}, true},
		{"pod/labels/none", "MatchesNot", []string{"*"}, true},
		{"pod/labels/none", "Matches", []string{"*"}, false},
		{"pod/name", "Matches", []string{"web-*"}, true},
		{"pod/name", "MatchesAny", []string{"db-*", "web-?"}, true},
		{"pod/name", "MatchesNone", []string{"db-*", "web-?"}, false},
		{"", "AlwaysTrue", nil, true},
		{":pod/namespace:pod/name:name", "Equals", []string{"shop:web-1:main"}, true},
		{":,-pod/namespace,name", "Equals", []string{"shop-main"}, true},
	} {
		e := ExpressionOptions{Key: c.key, Operator: c.operator, Values: c.values}
		if _, what := e.wrong(); what != "" {
			t.Errorf("%v is wrong: %s", e, what)
		}
		if got := e.matches(someSubject()); got != c.want {
			t.Errorf("%v is %v", e, got)
		}
	}
}

// TestWrongExpressions: invalid expressions are refused when the configuration is read.
func TestWrongExpressions(t *testing.T) {
	t.Parallel()
	for _, e := range []ExpressionOptions{
		{Key: "labels/app", Operator: "Exists"},
		{Key: "pod/labels/", Operator: "Exists"},
		{Key: "", Operator: "Exists"},
		{Key: ":name:tag", Operator: "Exists"},
		{Key: "name", Operator: "Exists", Values: []string{"a"}},
		{Key: "name", Operator: "Equals", Values: []string{"a", "b"}},
		{Key: "name", Operator: "In"},
		{Key: "name", Operator: "Matches", Values: []string{"[a"}},
	} {
		if _, what := e.wrong(); what == "" {
			t.Errorf("%v is taken", e)
		}
	}
}

func TestGroupBy(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"${pod/labels/app}": "web", "$pod/namespace": "shop", "a-${name}-$pod/name!": "a-main-web-1!", "plain": "plain", "$": "",
	} {
		if got, _ := someSubject().expand(template); got != want {
			t.Errorf("%q gives %q, want %q", template, got, want)
		}
	}
	if _, ok := someSubject().expand("${pod/labels/none}"); ok {
		t.Error("a label that the pod lacks has a value")
	}
	if wrongKey("${pod/namespace}-${name}") != "" || wrongKey("${tags/a}") == "" {
		t.Error("keys are not checked")
	}
}

// TestCheck: contradictory types are refused with their key.
func TestCheck(t *testing.T) {
	t.Parallel()
	for path, o := range map[string]TypeOptions{
		"balloonTypes[0].minCPUs":                    {Name: "a", MinCPUs: 3, MaxCPUs: 2},
		"balloonTypes[0].minBalloons":                {Name: "a", MinBalloons: 2, MaxBalloons: 1}, // B22
		"balloonTypes[0].maxBalloons":                {Name: "reserved", MaxBalloons: 2},
		"balloonTypes[0].groupBy":                    {Name: "a", GroupBy: "${x}"},
		"balloonTypes[0].matchExpressions[0].values": {Name: "a", MatchExpressions: []ExpressionOptions{{Key: "name", Operator: "In"}}},
	} {
		if got := Check(PolicyOptions{BalloonTypes: []TypeOptions{o}}); len(got) != 1 || got[0].Path != path {
			t.Errorf("%v, want %s", got, path)
		}
	}
	of := func(name string, all ...string) (t TypeOptions) {
		t.Name = name
		for _, c := range all {
			t.Components = append(t.Components, ComponentOptions{c})
		}
		return t
	}
	own, turns := of("a", "b"), of("b", "c")
	own.PreferCoreType, turns.ComponentCreation = "efficient", "balance-balloons"
	for path, types := range map[string][]TypeOptions{
		"balloonTypes[0].components[0].balloonType": {of("a", "a")},
		"balloonTypes[0].components[1].balloonType": {of("a", "b", "x"), of("b")},
		"balloonTypes[1].components[0].balloonType": {of("a", "b"), of("b", "c"), of("c", "a")},
		"balloonTypes[0].preferCoreType":            {own, of("b")},
	} {
		if got := Check(PolicyOptions{BalloonTypes: types}); len(got) == 0 || !slices.ContainsFunc(got, func(w Wrong) bool { return w.Path == path }) {
			t.Errorf("%v, want %s", got, path)
		}
	}
	if got := Check(PolicyOptions{BalloonTypes: []TypeOptions{of("a", "b"), turns, of("c")}}); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := Check(PolicyOptions{BalloonTypes: []TypeOptions{of("a", "b", "c"), of("b", "c"), of("c")}}); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := Check(PolicyOptions{BalloonTypes: []TypeOptions{{Name: "a"}, {Name: "a"}}}); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
