package facts

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// FormerAgent is another agent from which this agent takes over.
type FormerAgent interface {
	// Containers returns the CPUs and memory nodes that the other agent gave to the containers of a Synchronize, by
	// container id. It returns nil after the takeover.
	Containers(*lifecycle.Event) map[string]lifecycle.FormerContainer
	// EndTakeover notes that the takeover is complete. It is called after a Synchronize was decided and applied.
	EndTakeover()
}

// readFormerAgent adds the CPUs and memory nodes that another agent gave to containers, if this agent takes over from
// the other agent. If the takeover is only simulated, the caller has already set f.FormerAgent. Then readFormerAgent
// changes nothing.
func (g *Gatherer) readFormerAgent(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if ev.Kind == lifecycle.Synchronize && f.FormerAgent == nil && g.o.FormerAgent != nil {
		f.FormerAgent = g.o.FormerAgent.Containers(ev)
	}
}
