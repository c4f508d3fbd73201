package doctor

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/report/api"
)

// TestRules: rules that have never matched are named, and only while an agent can tell.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		agent *api.Node
		want  string
	}{
		{nil, "2 rules compile; how often they match is known while the agent runs"},
		{&api.Node{Rules: []api.Rule{{Name: "web", Matched: 3}, {Name: "batch"}}}, "these have matched no container: batch"},
		{&api.Node{Rules: []api.Rule{{Name: "web", Matched: 3}, {Name: "batch", Matched: 1}}}, "2 rules compile, and each has matched"},
	} {
		if got := checkRules(Check{Name: "rules"}, 2, c.agent); !strings.Contains(got.Found, c.want) {
			t.Errorf("%q does not say %q", got.Found, c.want)
		}
	}
}
