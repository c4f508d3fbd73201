package doctor

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/report/api"
)

// TestCPUClasses: a class that is not in force is a problem; a file that was repaired is none.
func TestCPUClasses(t *testing.T) {
	t.Parallel()
	fault := api.CPUClassFault{Class: "fast", CPUs: "1-2", Reason: "it has no C-state C9"}
	for _, c := range []struct {
		agent *api.Node
		state Result
		want  string
	}{
		{nil, OK, "no agent runs"},
		{&api.Node{}, OK, "no CPU has a class"},
		{&api.Node{CPUClasses: &api.CPUClasses{}}, OK, "all CPUs have their class"},
		{&api.Node{CPUClasses: &api.CPUClasses{Repairs: 1, LastRepair: "scaling_max_freq had"}}, OK, "another program writes their files: scaling_max_freq had"},
		{&api.Node{CPUClasses: &api.CPUClasses{Faults: []api.CPUClassFault{fault}}}, Problem, "CPUs 1-2 do not have the class fast: it has no C-state C9"},
	} {
		if got := checkCPUClasses(Check{}, c.agent); got.Result != c.state || !strings.Contains(got.Found, c.want) {
			t.Errorf("%+v, want %v %q", got, c.state, c.want)
		}
	}
}
