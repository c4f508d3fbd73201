package intent

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestCoreSched(t *testing.T) {
	for _, c := range []struct {
		group, policy string
		want          CoreSchedRequest
		problems      int
	}{
		{"", "", CoreSchedRequest{}, 0},
		{"group-xxx", "", CoreSchedRequest{Group: "group-xxx"}, 0},
		{"x", "none", CoreSchedRequest{Group: "x", None: true}, 0},
		{"", "exclusive", CoreSchedRequest{Exclusive: true}, 0},
		{"x", "Exclusive", CoreSchedRequest{}, 1},
		{"a/b", "", CoreSchedRequest{}, 1},
		{strings.Repeat("x", 64), "", CoreSchedRequest{}, 1},
	} {
		got := Read(&lifecycle.Pod{Labels: map[string]string{KoordCoreSchedGroup: c.group, KoordCoreSchedPolicy: c.policy}}, nil, Dialects())
		if got.CoreSched.V != c.want || len(got.Problems) != c.problems || got.CoreSched.IsSet() != (c.want != CoreSchedRequest{}) {
			t.Errorf("%q %q: %+v, %v", c.group, c.policy, got.CoreSched, got.Problems)
		}
	}
}
