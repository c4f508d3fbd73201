package expression

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func someSubject() Subject {
	pod := &lifecycle.Pod{Name: "web-1", UID: "u1", ID: "s1", Namespace: "shop", Labels: map[string]string{"app": "web"}}
	return Subject{Pod: pod, QoS: "Burstable", Name: "main"}
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
		{"name", "NotEqual", []string{"*"}, true},
		{"namespace", "In", []string{"a", "shop"}, true},
		{"namespace", "In", []string{"a", "*"}, true},
		{"pod/labels/none", "In", []string{"*"}, false},
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
		e := Expression{Key: c.key, Operator: c.operator, Values: c.values}
		if _, what := e.Fault(); what != "" {
			t.Errorf("%v is wrong: %s", e, what)
		}
		if got := e.Matches(someSubject()); got != c.want {
			t.Errorf("%v is %v", e, got)
		}
	}
}

// TestWrongExpressions: invalid expressions are refused when the configuration is read.
func TestWrongExpressions(t *testing.T) {
	t.Parallel()
	for _, e := range []Expression{
		{Key: "labels/app", Operator: "Exists"},
		{Key: "pod/labels/", Operator: "Exists"},
		{Key: "", Operator: "Exists"},
		{Key: ":name:tag", Operator: "Exists"},
		{Key: "name", Operator: "Exists", Values: []string{"a"}},
		{Key: "name", Operator: "Equals", Values: []string{"a", "b"}},
		{Key: "name", Operator: "In"},
		{Key: "name", Operator: "Matches", Values: []string{"[a"}},
	} {
		if _, what := e.Fault(); what == "" {
			t.Errorf("%v is taken", e)
		}
	}
}

func TestGroupBy(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"${pod/labels/app}": "web", "$pod/namespace": "shop", "a-${name}-$pod/name!": "a-main-web-1!", "plain": "plain", "$": "",
	} {
		if got, _ := someSubject().Expand(template); got != want {
			t.Errorf("%q gives %q, want %q", template, got, want)
		}
	}
	if _, ok := someSubject().Expand("${pod/labels/none}"); ok {
		t.Error("a label that the pod lacks has a value")
	}
}
