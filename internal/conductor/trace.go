package conductor

import (
	"context"
	"log/slog"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// The stops of an event on its way, in their order, as log.level debug prints them and
// ARCHITECTURE.md describes them.
const (
	stopWait    = "wait"    // for facts that take time; no other event waits meanwhile
	stopTurn    = "turn"    // it has its turn: one event at a time is decided
	stopGather  = "gather"  // what must be of the moment is read
	stopDecide  = "decide"  // the engine makes the plan, which becomes the state
	stopRoute   = "route"   // each value goes to the answer, the kernel or the runtime
	stopApply   = "apply"   // the kernel has what cannot wait for the answer
	stopConfirm = "confirm" // what became of it is noted and reported
)

// trace logs that an event has come to a stop.
func (c *Conductor) trace(w *work, stop string) {
	if !c.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	c.log.Debug("stop", append(w.done.About(), logkey.Stop, stop)...)
}
