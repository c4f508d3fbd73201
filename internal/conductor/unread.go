package conductor

import "github.com/trimtab/trimtab/internal/engine"

// noteLate keeps what a container would return to now, where that is known.
func (c *Conductor) noteLate(ctr *engine.Container) {
	if !ctr.Unasked {
		c.checkpoint.Note(ctr.ID, c.recordOf(ctr))
	}
}
