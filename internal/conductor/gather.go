package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// kept is the node as the gatherer of facts sees it.
type kept struct{ n *node }

// Hold gives the state, which does not change until Free.
func (k kept) Hold() *engine.State {
	k.n.mu.Lock()
	return k.n.state
}

// Free ends Hold.
func (k kept) Free() { k.n.mu.Unlock() }

// Notify reports an event to hook servers that nothing is decided about.
func (c *Conductor) Notify(ev lifecycle.Event) { c.facts.Notify(&ev) }

// BeforePod returns what hook servers want of a pod whose sandbox does not exist yet.
// The error is a *Rejection.
func (c *Conductor) BeforePod(ctx context.Context, from Carrier, pod *lifecycle.Pod) (lifecycle.Outside, error) {
	can := from.Capabilities()
	o, err := c.facts.BeforePod(ctx, &can, pod)
	if err != nil {
		err = &Rejection{Reason: err.Error()}
	}
	return o, err
}

// Inform decides pods anew whose specs or grants became known or changed: the
// kernel at once, the runtime's copies later. Pods nobody reported are passed over.
func (c *Conductor) Inform(podUIDs []string) { c.facts.Inform(podUIDs) }
