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

// BeforePod returns the merged answer of the hook servers for a pod whose sandbox does not exist yet. The only error
// that it returns is a *Rejection.
func (c *Conductor) BeforePod(ctx context.Context, from Carrier, pod *lifecycle.Pod) (lifecycle.HookServerAnswer, error) {
	if c.observer != nil {
		return lifecycle.HookServerAnswer{}, nil
	}
	can := from.Capabilities()
	answer, err := c.facts.AskBeforePod(ctx, &can, pod)
	if err != nil {
		err = &Rejection{Reason: err.Error()}
	}
	return answer, err
}

// Inform decides pods again whose spec, or whose CPUs and devices from the kubelet, became known or changed. The kernel
// gets the new values at once, the runtime's copies get them later. Inform skips pods that no runtime has reported.
func (c *Conductor) Inform(podUIDs []string) { c.facts.Inform(podUIDs) }

// compact copies the parts of an event's pods and containers that the state stores. The copies do not point into the
// runtime's message: it can have megabytes, and one string that points into it would keep the whole message in memory.
// compact puts the copies into the event.
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
