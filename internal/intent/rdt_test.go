package intent

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestResctrl is Koordinator's pod annotation.
func TestResctrl(t *testing.T) {
	for _, c := range []struct {
		text     string
		want     RDTShares
		problems int
	}{
		{`{"llc":{"schemata":{"range":[0,40]},"schemataPerCache":[{"cacheID":1,"range":[20,60]}]},"mb":{"schemata":{"percent":30},"schemataPerCache":[{"cacheID":1,"percent":50}]}}`, "L3 0-40, L3@1 20-60, MB 30, MB@1 50", 0},
		{`{"mb":{"schemata":{"percent":100}}}`, "MB 100", 0},
		{`{}`, "", 0},
		{`{"llc":{"schemata":{"range":[40]}}}`, "", 1},
		{`{"llc":{"schemata":{"range":[-1,40]}}}`, "", 1},
		{`{"llc":{"schemata":{"range":[0,101]}}}`, "", 1},
		{`{"llc":{"schemata":{"range":[0,10]},"schemataPerCache":[{"cacheID":-1,"range":[20,60]}]}}`, "", 1},
		{`{"mb":{"schemata":{"percent":0}}}`, "", 1},
		{`{"mb":{"schemata":{}}}`, "", 1},
		{`[]`, "", 1},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{KoordResctrl: c.text}}, nil, Dialects())
		if got.RDT.V != c.want || len(got.Problems) != c.problems {
			t.Errorf("%s: %q, %v", c.text, got.RDT.V, got.Problems)
		}
	}
}
