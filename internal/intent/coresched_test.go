package intent

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestCoreSched(t *testing.T) {
	for _, c := range []struct {
		group, policy string
		want          CoreSchedAsk
		problems      int
	}{
		{"", "", CoreSchedAsk{}, 0},
		{"group-xxx", "", CoreSchedAsk{Group: "group-xxx"}, 0},
		{"x", "none", CoreSchedAsk{Group: "x", None: true}, 0},
		{"", "exclusive", CoreSchedAsk{Exclusive: true}, 0},
		{"x", "Exclusive", CoreSchedAsk{}, 1},
		{"a/b", "", CoreSchedAsk{}, 1},
		{strings.Repeat("x", 64), "", CoreSchedAsk{}, 1},
	} {
		got := Read(&lifecycle.Pod{Labels: map[string]string{KoordCoreSchedGroup: c.group, KoordCoreSchedPolicy: c.policy}}, nil, Dialects())
		if got.CoreSched.V != c.want || len(got.Problems) != c.problems || got.CoreSched.IsSet() != (c.want != CoreSchedAsk{}) {
			t.Errorf("%q %q: %+v, %v", c.group, c.policy, got.CoreSched, got.Problems)
		}
	}
}
