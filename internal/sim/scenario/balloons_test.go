package scenario

import (
	"slices"
	"testing"
)

// TestBalloonDifferences: balloons of other types do not matter, all of a type that is named do.
func TestBalloonDifferences(t *testing.T) {
	t.Parallel()
	got := map[string]string{"two[0]": "2-3", "two[1]": "", "four[0]": "4-7"}
	for name, test := range map[string]struct {
		want  map[string]string
		notes []string
	}{
		"as wanted":        {map[string]string{"two[0]": "3,2", "two[1]": ""}, nil},
		"one too many":     {map[string]string{"two[0]": "2-3"}, []string{`there is a balloon two[1] with CPUs "", wanted none [table]`}},
		"one too few":      {map[string]string{"four[0]": "4-7", "four[1]": ""}, []string{`there is no balloon four[1], wanted CPUs "" [table]`}},
		"other CPUs":       {map[string]string{"four[0]": "4-6"}, []string{`balloon four[0] has CPUs "4-7", wanted "4-6" [table]`}},
		"none of a type":   {map[string]string{"six": ""}, nil},
		"not none of them": {map[string]string{"four": ""}, []string{`there is a balloon four[0] with CPUs "4-7", wanted none [table]`}},
	} {
		if notes := (&Balloons{From: "table", CPUs: test.want}).Differences(got); !slices.Equal(notes, test.notes) {
			t.Errorf("%s: %q, want %q", name, notes, test.notes)
		}
	}
	if notes := (*Balloons)(nil).Differences(got); notes != nil {
		t.Errorf("without a want: %q", notes)
	}
}
