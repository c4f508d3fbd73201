package facts

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readRecords adds the records of the event's containers. If the checkpoint and an annotation have a record of the same
// container, it adds the checkpoint's record.
func (g *Gatherer) readRecords(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	switch ev.Kind {
	case lifecycle.Synchronize, lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer:
	default:
		return
	}
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		id, name := (*ctr).ID, (*ctr).Name
		text, hasRecord := (*ctr).Annotations[intent.RecordKey]
		// If FormerAgent is set here, the agent simulates a takeover on a node that it already manages. The simulation
		// ignores the checkpoint's records, because the agent wrote them after it began to manage the node.
		if r, stored := g.o.Checkpoint.Record(id); stored && f.FormerAgent == nil {
			if atCreation, err := g.o.Signer.Read(p.UID, name, text); hasRecord && err == nil {
				r.StampedPristine = &atCreation.Pristine
			}
			put(&f.Records, id, r)
			return
		}
		if !hasRecord {
			return
		}
		if r, err := g.o.Signer.Read(p.UID, name, text); err == nil {
			put(&f.Records, id, r)
		} else {
			put(&f.UntrustedRecords, id, lifecycle.Problem{
				Key: intent.RecordKey, Value: intent.Printable(text), Reason: "the agent ignores the record: " + err.Error(), Refused: true,
			})
		}
	})
}
