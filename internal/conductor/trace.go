package conductor

import (
	"context"
	"log/slog"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// The steps of an event, in their order, as log.level debug prints them (stop=) and
// ARCHITECTURE.md describes them.
const (
	stopWait    = "wait"    // for facts that take time; no other event waits meanwhile
	stopTurn    = "turn"    // it has its turn: one event at a time is decided
	stopGather  = "gather"  // it reads facts that must be current
	stopDecide  = "decide"  // the engine makes the plan, which becomes the state
	stopRoute   = "route"   // each value goes to the answer, the kernel or the runtime
	stopApply   = "apply"   // the kernel has what cannot wait for the answer
	stopConfirm = "confirm" // the results are noted and reported
)

// trace logs that an event has reached a step.
func (c *Conductor) trace(w *work, stop string) {
	if !c.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c.log.Debug("stop", append(w.done.About(), logkey.Stop, stop)...)
}
