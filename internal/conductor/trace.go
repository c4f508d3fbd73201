package conductor

import (
	"context"
	"log/slog"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// The steps of an event, in their order, as log.level debug prints them (step=) and
// ARCHITECTURE.md describes them.
const (
	stepWait    = "wait"    // the agent reads facts that take time; other events continue meanwhile
	stepTurn    = "turn"    // the agent begins to handle the event: it handles one event at a time
	stepGather  = "gather"  // the agent reads facts that are available without a wait
	stepDecide  = "decide"  // the engine makes the plan, and the agent commits it to the state
	stepRoute   = "route"   // the agent chooses for each value: the answer, the kernel or the runtime's copy
	stepApply   = "apply"   // the keeper writes the values that must be in force before the answer
	stepConfirm = "confirm" // the agent notes and reports the results
)

// trace logs that an event has reached a step.
func (c *Conductor) trace(w *work, step string) {
	if !c.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c.log.Debug("event reached a step", append(w.report.About(), logkey.Step, step)...)
}
