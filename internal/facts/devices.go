package facts

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readDevices adds facts about CDI devices. If a new container or its pod possibly requests CDI devices, it adds the
// node's CDI devices. For a Synchronize, it adds the CDI devices that containers have exclusively.
func (g *Gatherer) readDevices(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if ev.Kind == lifecycle.Synchronize {
		f.HeldDevices = g.o.Checkpoint.Devices()
		return
	}
	creates := ev.Kind == lifecycle.CreateContainer || ev.Kind == lifecycle.Expect
	if g.o.NodeDevices == nil || !creates || ev.Pod == nil || ev.Container == nil || !g.requestsDevices(ev) {
		return
	}
	f.NodeDevices = g.o.NodeDevices()
}

// requestsDevices reports whether a new container, or a later container of its pod, possibly requests CDI devices. A
// later container counts, because the agent refuses the first container if a later container cannot get its devices. If
// no runtime has reported the pod yet, the state does not have the pod. Then requestsDevices checks the pod's
// annotation.
func (g *Gatherer) requestsDevices(ev *lifecycle.Event) bool {
	defer g.o.State.Free()
	s := g.o.State.Hold()
	if p := s.Pod(ev.Pod.ID); p != nil {
		return s.Policy.PodAsksDevices(p.Intent)
	}
	return ev.Pod.Annotations[intent.TrimtabCDIDevices] != ""
}
