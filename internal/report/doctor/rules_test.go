package doctor

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/report/api"
)

// TestRules: rules that have never matched are listed, but only while an agent runs.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		agent *api.Node
		want  string
	}{
		{nil, "2 rules compile; whether they match is only known while the agent runs"},
		{&api.Node{Rules: []api.Rule{{Name: "web", Matched: 3}, {Name: "batch"}}}, "these rules have matched no pod or container: batch"},
		{&api.Node{Rules: []api.Rule{{Name: "web", Matched: 3}, {Name: "batch", Matched: 1}}}, "2 rules compile, and each rule has matched"},
	} {
		if got := checkRules(Check{Name: "rules"}, 2, c.agent); !strings.Contains(got.Found, c.want) {
			t.Errorf("%q does not say %q", got.Found, c.want)
		}
	}
}
