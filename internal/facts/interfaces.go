package facts

import (
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readInterfaces reads whether the host has the network interfaces that a new container requests. It reads them for
// each container anew: an interface leaves the host when a container gets the interface, and no event reports its
// return.
func (g *Gatherer) readInterfaces(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if g.o.HasInterface == nil || ev.Kind != lifecycle.CreateContainer || ev.Pod == nil || ev.Container == nil {
		return
	}
	for _, name := range g.requestedInterfaces(ev.Pod.ID, ev.Container.Name) {
		if has, known := g.o.HasInterface(name); known {
			put(&f.HostInterfaces, name, has)
		}
	}
}

// requestedInterfaces returns the host's names of the interfaces that a pod requests for a container. Interfaces that
// the pod's namespace must not request are not among them.
func (g *Gatherer) requestedInterfaces(podID, container string) (names []string) {
	defer g.o.State.Free()
	p := g.o.State.Hold().Pod(podID)
	if p == nil {
		return nil
	}
	for _, requested := range p.Intent.InterfacesOf(container) {
		for _, d := range requested.V {
			names = append(names, d.Host)
		}
	}
	return names
}
