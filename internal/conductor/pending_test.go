package conductor

import (
	"errors"
	"testing"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// TestPending: a value that waits for its cgroup is not in force. A weight that waits because the agent made the cgroup
// idle is, since cpu.idle is what it decided to be stronger.
func TestPending(t *testing.T) {
	o := keeper.Outcome{Value: lifecycle.Value{Field: lifecycle.CPUShares, Int: 2048}, State: keeper.Pending}
	if d := fromOutcome(o, applyResult{}); d.Applied || d.Missing != api.NotYet {
		t.Errorf("without a cgroup: %+v", d)
	}
	o.Err = errors.New("idle")
	if d := fromOutcome(o, applyResult{}); !d.Applied || d.Missing != "" || d.Note != "idle" {
		t.Errorf("of an idle cgroup: %+v", d)
	}
}
