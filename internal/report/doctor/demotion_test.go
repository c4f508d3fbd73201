package doctor

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/report/api"
)

// TestDemotion: memory that the kernel does not move is a problem, with what to do.
func TestDemotion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		agent  *api.Node
		result Result
		want   string
	}{
		{nil, OK, "no agent runs"},
		{&api.Node{}, OK, "the running agent moves no memory"},
		{&api.Node{Demotion: &api.Demotion{Containers: 2, Moved: 3 << 20}}, OK, "3 MiB moved to slow memory, from 2 containers"},
		{&api.Node{Demotion: &api.Demotion{Reason: "demotion is off"}}, Problem, "demotion is off"},
	} {
		if got := checkDemotion(Check{}, c.agent); got.Result != c.result || !strings.Contains(got.Found, c.want) {
			t.Errorf("%+v, want %v %q", got, c.result, c.want)
		}
	}
}
