package main

import (
	"encoding/json"
	"testing"

	"github.com/trimtab/trimtab/internal/fleet"
)

// TestVerdict: a plan for all nodes fails only if no node would take the pods, with the code of 'trimtab plan'.
func TestVerdict(t *testing.T) {
	takes := nodePlan{Plan: &fleet.Plan{}}
	refuses := nodePlan{Plan: &fleet.Plan{}}
	if err := json.Unmarshal([]byte(`{"rejected": [{"pod": "shop/db"}]}`), refuses.Plan); err != nil {
		t.Fatal(err)
	}
	away := nodePlan{Reason: "no answer", code: exitUnreachable}
	bad := nodePlan{Reason: "no pod in it", code: exitFailure}
	for name, test := range map[string]struct {
		all  []nodePlan
		want int
	}{
		"one takes them":              {[]nodePlan{refuses, away, takes}, exitOK},
		"all refuse":                  {[]nodePlan{refuses, refuses}, exitRefused},
		"one refuses and one is away": {[]nodePlan{away, refuses}, exitRefused},
		"all are away":                {[]nodePlan{away, away}, exitUnreachable},
		"the question is wrong":       {[]nodePlan{bad, away}, exitFailure},
	} {
		if got := exitCode(refusalOf(test.all), true); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}
