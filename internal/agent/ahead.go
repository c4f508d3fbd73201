package agent

import (
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
)

// newAhead makes the component that decides about pods before the runtime reports them; nil if ahead.enabled is not
// set.
func (a *Agent) newAhead() *conductor.Ahead {
	c := a.opt.Config.Ahead
	if !c.Enabled {
		return nil
	}
	return conductor.NewAhead(a.conductor, conductor.AheadOptions{
		Pending: a.pendingPods, Timeout: c.Timeout.Duration(), Log: a.log,
	})
}

// pendingChanged returns the function that the sources of pod specs call when there is a new pod; nil if ahead.enabled
// is not set.
func (a *Agent) pendingChanged() func() {
	if !a.opt.Config.Ahead.Enabled {
		return nil
	}
	return func() { a.ahead.Changed() }
}

// pendingPods returns the pods that have not started, in the form in which the kubelet will send them to the runtime.
func (a *Agent) pendingPods() (out []engine.PlannedPod) {
	for _, p := range a.specs.Pending() {
		out = append(out, plannedPod(p.Spec, p.Labels, p.Annotations, nil))
	}
	return out
}
