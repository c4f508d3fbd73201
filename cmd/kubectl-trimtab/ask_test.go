package main

import (
	"encoding/json"
	"testing"

	"github.com/trimtab/trimtab/internal/fleet"
)

// TestVerdict: a plan for all nodes fails only if no node would take the pods, with the code of 'trimtab plan'.
func TestVerdict(t *testing.T) {
	takes := podPlan{Plan: &fleet.Plan{}}
	refuses := podPlan{Plan: &fleet.Plan{}}
	if err := json.Unmarshal([]byte(`{"rejected": [{"pod": "shop/db"}]}`), refuses.Plan); err != nil {
		t.Fatal(err)
	}
	away := podPlan{Reason: "no answer", code: exitUnreachable}
	bad := podPlan{Reason: "no pod in it", code: exitFailure}
	for name, test := range map[string]struct {
		all  []podPlan
		want int
	}{
		"one takes them":              {[]podPlan{refuses, away, takes}, exitOK},
		"all refuse":                  {[]podPlan{refuses, refuses}, exitRefused},
		"one refuses and one is away": {[]podPlan{away, refuses}, exitRefused},
		"all are away":                {[]podPlan{away, away}, exitUnreachable},
		"the question is wrong":       {[]podPlan{bad, away}, exitFailure},
	} {
		if got := exitCode(refusalOf(test.all), true); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}
