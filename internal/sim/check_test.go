package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// TestMoved says what a restart changed, by name.
func TestMoved(t *testing.T) {
	ref := scenario.Ref("shop/web/app")
	before := effective.State{CPUs: "0-3", Mems: "0", Shares: 100, Quota: -1, Memory: 1 << 20}
	after := before
	after.CPUs, after.Quota, after.OOM = "0-1", 50000, 7
	want := []string{"shop/web/app: the restart changed CPUs 0-3 to 0-1, CPU quota -1 to 50000"}
	if diff := cmp.Diff(want, restartChanges(snapshot{ref: before}, snapshot{ref: after})); diff != "" {
		t.Error(diff)
	}
	if notes := restartChanges(snapshot{ref: before}, snapshot{ref: before}); notes != nil {
		t.Errorf("nothing changed: %v", notes)
	}
}
