package conductor

import (
	"context"
	"log/slog"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// The steps of an event, in their order, as log.level debug prints them (step=) and
// ARCHITECTURE.md describes them.
const (
	stepWait    = "wait"    // the event waits for slow facts; other events continue meanwhile
	stepTurn    = "turn"    // the event has its turn: the agent decides one event at a time
	stepGather  = "gather"  // the agent reads facts that must be current
	stepDecide  = "decide"  // the engine makes the plan, which becomes the state
	stepRoute   = "route"   // each value goes to the answer, the kernel or the runtime
	stepApply   = "apply"   // the kernel has what cannot wait for the answer
	stepConfirm = "confirm" // the results are noted and reported
)

// trace logs that an event has reached a step.
func (c *Conductor) trace(w *work, step string) {
	if !c.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c.log.Debug("event reached a step", append(w.report.About(), logkey.Step, step)...)
}
