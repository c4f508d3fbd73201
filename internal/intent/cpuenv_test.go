package intent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestCPUEnv: the variables that pods can request, and the report about malformed texts.
func TestCPUEnv(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // the printed form; "" if nothing is requested
		odd  string // a part of the problem
	}{
		{"", "", ""},
		{"false", "", ""},
		{"true", "true", ""},
		{"GOMAXPROCS", "GOMAXPROCS=count", ""},
		{"OMP_NUM_THREADS=count, _my1=list", "OMP_NUM_THREADS=count,_my1=list", ""},
		{"yes please", "", `"yes please" is not the name of a variable`},
		{"A,", "", `"" is not the name of a variable`},
		{"1A", "", "and no digit first"},
		{"A=cpus", "", "want A=count or A=list"},
		{"A=list=x", "", "want A=count or A=list"},
		{"A,B,A=list", "", "A is named twice"},
		{strings.Repeat("A", 65), "", "at most 64"},
		{strings.Repeat("A,", 16) + "B", "", "17 variables; a pod can request at most 16"},
		{"PÄTH", "", "is not the name of a variable"},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{TrimtabCPUEnv: c.text}}, nil, Dialects())
		if got.CPUEnv.IsSet() != (c.want != "") || got.Silent() == got.CPUEnv.IsSet() {
			t.Errorf("%q: asks: %v, silent: %v", c.text, got.CPUEnv.IsSet(), got.Silent())
		}
		if diff := cmp.Diff(c.want, got.CPUEnv.V.String()); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
		if (len(got.Problems) > 0) != (c.odd != "") || c.odd != "" && !strings.Contains(got.Problems[0].Reason, c.odd) {
			t.Errorf("%q: %v, want %q", c.text, got.Problems, c.odd)
		}
	}
}
