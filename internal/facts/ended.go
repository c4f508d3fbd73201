package facts

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readEndedPods finds pods that own CPUs or CDI devices and ended without an event. Some runtimes do not report the end
// of pods that are older than the runtime's last restart, but the kubelet removes the pod's cgroup. readEndedPods
// checks the cgroups at two events only: when a container is removed, and when a container is created in a pod that
// requests CPUs or exclusive CDI devices.
func (g *Gatherer) readEndedPods(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if ev.Pod == nil || ev.Kind != lifecycle.CreateContainer && ev.Kind != lifecycle.RemoveContainer {
		return
	}
	for id, parent := range g.ownerCgroups(ev) {
		if g.o.Presence.CgroupVanished(id, parent) {
			put(&f.EndedSandboxes, id, true)
		}
	}
}

// ownerCgroups returns the cgroup parents of the pods that own CPUs or CDI devices, by sandbox id. It returns nil if
// the event creates a container, and the container's pod requests neither CPUs nor exclusive CDI devices.
func (g *Gatherer) ownerCgroups(ev *lifecycle.Event) map[string]string {
	defer g.o.State.Free()
	s := g.o.State.Hold()
	removed := ev.Kind == lifecycle.RemoveContainer
	p := s.Pod(ev.Pod.ID)
	if !removed && (p == nil || !p.Intent.CPUs.IsSet() && !p.Intent.ExclusiveDevices.IsSet()) {
		return nil
	}
	parents := map[string]string{}
	for _, p := range s.Owners() {
		if removed || p.Pod.ID != ev.Pod.ID {
			parents[p.Pod.ID] = p.Pod.CgroupParent
		}
	}
	return parents
}
