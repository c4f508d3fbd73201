package balloons

import (
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/placement/class"
)

func TestGroupKeys(t *testing.T) {
	t.Parallel()
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
		if got := Check(PolicyOptions{BalloonTypes: types}); len(got) == 0 || !slices.ContainsFunc(got, func(w class.Problem) bool { return w.Path == path }) {
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
