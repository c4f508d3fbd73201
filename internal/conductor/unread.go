package conductor

import "github.com/trimtab/trimtab/internal/engine"

// noteLate keeps what a container would return to now, where that is known.
func (n *node) noteLate(ctr *engine.Container) {
	if !ctr.Unasked {
		n.checkpoint.Note(ctr.ID, n.recordOf(ctr))
	}
}
