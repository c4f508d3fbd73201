package facts

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readRecords adds the records of the event's containers.
func (g *Gatherer) readRecords(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	switch ev.Kind {
	case lifecycle.Synchronize, lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer:
	default:
		return
	}
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		id, name := (*ctr).ID, (*ctr).Name
		text, stamped := (*ctr).Annotations[intent.RecordKey]
		if r, late := g.o.Checkpoint.Record(id); late && f.FormerAgent == nil { // a what-if about a takeover ignores the checkpoint, because its records are from after the takeover
			if first, err := g.o.Signer.Read(p.UID, name, text); stamped && err == nil {
				r.StampedPristine = &first.Pristine
			}
			put(&f.Records, id, r)
			return
		}
		if !stamped {
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
