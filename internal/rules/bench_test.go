package rules

import (
	"testing"

	"github.com/trimtab/trimtab/internal/hook"
)

// outputOf runs the hooks of some rules for the pod of subjectOf.
func outputOf(set *Set) *hook.Output {
	out, in := &hook.Output{}, subjectOf()
	for _, h := range set.Hooks(Facts{}) {
		h.Propose(in, out)
	}
	return out
}

// BenchmarkRule measures one rule for one container; the bound is 20 µs.
func BenchmarkRule(b *testing.B) {
	for _, test := range []struct {
		name string
		rule RuleOptions
	}{
		{"label", RuleOptions{Match: `pod.labels["app"] == "web"`, Set: []SettingOptions{{Field: "env", Key: "A", Value: "1"}}}},
		{"no match", RuleOptions{Match: `pod.labels["app"] == "db"`, Set: []SettingOptions{{Field: "env", Key: "A", Value: "1"}}}},
		{"missing label", RuleOptions{Match: `pod.labels["none"] == "db"`, Set: []SettingOptions{{Field: "env", Key: "A", Value: "1"}}}},
		{"many terms", RuleOptions{
			Match: `pod.namespace in ["shop", "till"] && pod.qos != "BestEffort" && container.image.startsWith("docker.io/library/") && container.resources.cpu >= 1000`,
			Set:   env(`string(container.resources.cpu / 1000)`),
		}},
		{"loop and pattern", RuleOptions{
			Match: `pod.labels.exists(k, pod.labels[k].matches("^fr[a-z]+$"))`, Set: env(`pod.namespace + "/" + pod.name`),
		}},
	} {
		b.Run(test.name, func(b *testing.B) {
			h, in := one(b, test.rule), subjectOf()
			b.ReportAllocs()
			for b.Loop() {
				out := hook.Output{}
				h.Propose(in, &out)
			}
		})
	}
}

// BenchmarkCompile measures how long a rule takes to load.
func BenchmarkCompile(b *testing.B) {
	rule := []RuleOptions{{Name: "r", Match: `pod.labels["app"] == "web"`, Set: env(`string(container.resources.cpu)`)}}
	for b.Loop() {
		if _, problems := Compile(rule); problems != nil {
			b.Fatal(problems)
		}
	}
}
