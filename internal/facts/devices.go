package facts

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readDevices adds two facts. For a new container of a pod that requests CDI devices, it adds the node's CDI devices.
// For a Synchronize, it adds which containers have CDI devices exclusively.
func (g *Gatherer) readDevices(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if ev.Kind == lifecycle.Synchronize {
		f.HeldDevices = g.o.Checkpoint.Devices()
		return
	}
	creates := ev.Kind == lifecycle.CreateContainer || ev.Kind == lifecycle.Expect
	if g.o.NodeDevices == nil || !creates || ev.Pod == nil || ev.Container == nil || !g.asksDevices(ev) {
		return
	}
	f.NodeDevices = g.o.NodeDevices()
}

// asksDevices reports whether a new container, or a later container of its pod, may request CDI devices. A later
// container counts, because the agent refuses the first container if a later one cannot get its devices. The state
// does not have an expected pod, so the pod's annotation counts.
func (g *Gatherer) asksDevices(ev *lifecycle.Event) bool {
	defer g.o.State.Free()
	s := g.o.State.Hold()
	if p := s.Pod(ev.Pod.ID); p != nil {
		return s.Policy.PodAsksDevices(p.Intent)
	}
	return ev.Pod.Annotations[intent.TrimtabCDIDevices] != ""
}
