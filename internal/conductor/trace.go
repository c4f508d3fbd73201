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
	stepTurn    = "turn"    // the agent begins to handle the event: it handles one event at a time
	stepGather  = "gather"  // the agent reads facts that are available without a wait
	stepDecide  = "decide"  // the engine makes the plan, which becomes the state
	stepRoute   = "route"   // each value goes to the answer, the kernel or the runtime
	stepApply   = "apply"   // the keeper writes to the kernel what must be in force before the answer
	stepConfirm = "confirm" // the agent notes and reports the results
)

// trace logs that an event has reached a step.
func (c *Conductor) trace(w *work, step string) {
	if !c.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c.log.Debug("event reached a step", append(w.report.About(), logkey.Step, step)...)
}
