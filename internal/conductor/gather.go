package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// stateHolder lets package facts read the state.
type stateHolder struct{ n *node }

// Hold locks the state and returns it. The state does not change until Free.
func (k stateHolder) Hold() *engine.State {
	k.n.mu.Lock()
	return k.n.state
}

// Free unlocks the state after Hold.
func (k stateHolder) Free() { k.n.mu.Unlock() }

// Notify sends an event to the hook servers. The agent decides nothing for this event.
func (c *Conductor) Notify(ev lifecycle.Event) { c.facts.Notify(&ev) }

// BeforePod returns the answer of hook servers for a pod whose sandbox does not exist yet. The
// error is a *Rejection.
func (c *Conductor) BeforePod(ctx context.Context, from Carrier, pod *lifecycle.Pod) (lifecycle.HookServerAnswer, error) {
	if c.observer != nil {
		return lifecycle.HookServerAnswer{}, nil
	}
	can := from.Capabilities()
	o, err := c.facts.AskBeforePod(ctx, &can, pod)
	if err != nil {
		err = &Rejection{Reason: err.Error()}
	}
	return o, err
}

// Inform decides pods again whose specs or grants became known or changed. The kernel gets the
// new values at once, the runtime's copies later. It skips pods that no runtime reported.
func (c *Conductor) Inform(podUIDs []string) { c.facts.Inform(podUIDs) }

// compact copies the parts of an event's pods and containers that the state keeps. A copy does not point into the
// runtime's message. A runtime's whole list has megabytes, and a few strings that point into it would keep all of it
// in memory. compact replaces the pods in the event's list.
func compact(ev *lifecycle.Event) {
	for i, p := range ev.Pods {
		if p != nil {
			ev.Pods[i] = p.Compact()
		}
	}
	for _, c := range ev.Containers {
		if c != nil {
			c.CompactIDs()
		}
	}
}
