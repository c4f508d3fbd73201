package config

import (
	"strings"
	"testing"
)

// TestSpelledAsKubernetes reads the failure policies as Kubernetes spells them, and no other value with a capital.
func TestSpelledAsKubernetes(t *testing.T) {
	c, err := Parse("f", []byte(head+"failurePolicy: {agent: Fail}\nresourcePlugins: {failurePolicy: Fail}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.FailurePolicy.Agent != "fail" || c.ResourcePlugins.FailurePolicy != "fail" {
		t.Errorf("read as %q and %q", c.FailurePolicy.Agent, c.ResourcePlugins.FailurePolicy)
	}
	merged, _, err := Merge(Layer{Name: "a", Data: []byte(head + "failurePolicy: {agent: Fail}\n")}, Layer{Name: "b", Data: []byte(head + "failurePolicy: {agent: Ignore}\n")})
	if err != nil || merged.FailurePolicy.Agent != "ignore" {
		t.Errorf("merged to %q, %v", merged.FailurePolicy.Agent, err)
	}
	for _, text := range []string{"failurePolicy: {agent: FAIL}", "mode: Observe"} {
		if _, err := Parse("f", []byte(head+text+"\n")); err == nil || !strings.Contains(err.Error(), "nearest") {
			t.Errorf("%s is read: %v", text, err)
		}
	}
	schema, err := Schema()
	if err != nil || strings.Count(string(schema), `"Fail"`) != 2 {
		t.Errorf("the schema has %d of the spellings, want both: %v", strings.Count(string(schema), `"Fail"`), err)
	}
}
