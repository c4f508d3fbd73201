package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
)

func TestBurstLimit(t *testing.T) {
	in := &Input{Container: "a", Intent: &intent.Pod{Burst: intent.Sourced[int64]{V: 9000, Key: intent.RubikBurst}}}
	for limit, want := range map[int64]string{0: "9000", 5000: "5000", 10000: "9000"} {
		if d := cmp.Diff(map[string]string{"unified cpu.max.burst": want}, values(in, Burst{Limit: limit})); d != "" {
			t.Error(limit, d)
		}
	}
}
