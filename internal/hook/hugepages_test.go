package hook

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestHugepages: limits up to those of Kubernetes are set, higher ones are refused if the kind is capped,
// and sizes that the node lacks are never sent to a runtime.
func TestHugepages(t *testing.T) {
	ask := func(capped string, limits map[string]int64) *Input {
		return &Input{
			Container: "a", Pristine: &lifecycle.Resources{Hugepages: []lifecycle.HugepageLimit{{Size: "2MB", Limit: 64 << 20}}},
			Intent: &intent.Pod{Hugepages: intent.Sourced[intent.Hugepages]{
				V: intent.Hugepages{Limits: map[string]map[string]int64{"a": limits}, CappedBy: capped}, Key: intent.TrimtabHugepages,
			}},
		}
	}
	have := Hugepages{Sizes: []string{"2MB", "1GB"}}
	for _, c := range []struct {
		name    string
		in      *Input
		hook    Hugepages
		want    map[string]string
		refused string
	}{
		{"narrowed", ask("default", map[string]int64{"2MB": 32 << 20}), have, map[string]string{"hugepages 2MB": "33554432"}, ""},
		{"as much as Kubernetes gave", ask("default", map[string]int64{"2MB": 64 << 20}), have, map[string]string{"hugepages 2MB": "67108864"}, ""},
		{"more than Kubernetes gave", ask("default", map[string]int64{"2MB": 66 << 20}), have, map[string]string{}, "authorization: default"},
		{"more, and allowed", ask("", map[string]int64{"2MB": 66 << 20}), have, map[string]string{"hugepages 2MB": "69206016"}, ""},
		{"Kubernetes gave none", ask("default", map[string]int64{"1GB": 1 << 30}), have, map[string]string{"hugepages 1GB": "1073741824"}, ""},
		{"no such size", ask("", map[string]int64{"64KB": 64 << 10}), have, map[string]string{}, "no huge pages of 64KB"},
		{
			"no controller", ask("", map[string]int64{"2MB": 0}),
			Hugepages{Sizes: have.Sizes, Controller: lifecycle.Finding{Support: lifecycle.NotSupported, Why: "nothing there"}},
			map[string]string{}, "nothing there",
		},
	} {
		if diff := cmp.Diff(c.want, values(c.in, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
		var out Output
		c.hook.Propose(c.in, &out)
		switch {
		case c.refused == "" && len(out.Problems) == 0:
		case len(out.Problems) != 1 || !out.Problems[0].Refused || !strings.Contains(out.Problems[0].Reason, c.refused):
			t.Errorf("%s: %v, want one with %q", c.name, out.Problems, c.refused)
		}
	}
	other := ask("", map[string]int64{"2MB": 0})
	other.Container = "b"
	if got := values(other, have); len(got) > 0 {
		t.Errorf("another container got %v", got)
	}
}
