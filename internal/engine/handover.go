package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// kindOf returns the kind of a container from the pod's spec. If the spec is not known, the kind is App.
func (p *Pod) kindOf(name string) lifecycle.ContainerKind {
	spec, _ := p.Spec.Container(name)
	return spec.Kind
}

// comesAfter reports whether a container comes after another container in the pod's spec.
func (p *Pod) comesAfter(name, other string) bool {
	at := func(name string) int {
		return slices.IndexFunc(p.Spec.Containers, func(s lifecycle.ContainerSpec) bool { return s.Name == name })
	}
	return at(name) > at(other)
}

// takeOverCPUs returns those of the pod's CPUs that a new container can take over. It is for pods in which each
// container owns CPUs of its own. The result has CPUs of init containers, and CPUs that the pod owned before a restart
// of the agent and that no container owns now.
//
// An init container ends before the next container in the spec is created. So a new container can take over the CPUs of
// an init container that comes earlier in the spec, even if the runtime still reports that init container as running.
// From any other init container, it can take over CPUs only after that init container has ended. A new init container
// runs before all app containers. So it can also take over the CPUs of every ended container except sidecars.
func (s *placer) takeOverCPUs() topology.Set {
	out := s.n.ledger.UnassignedCPUs(s.p.Pod.UID)
	if s.p.Spec == nil {
		return out
	}
	lives := s.n.liveNames(s.p.Pod.ID, s.c.ID)
	var kept topology.Set
	for _, g := range s.n.ledger.GrantsOfPod(s.p.Pod.UID) {
		name := g.Key.Container
		kind, first := s.p.kindOf(name), s.p.kindOf(s.c.Name) == lifecycle.Init
		switch {
		case name == "":
		case kind == lifecycle.Init && (s.p.comesAfter(s.c.Name, name) || !lives[name]), first && kind != lifecycle.Sidecar && !lives[name]:
			out = out.Union(g.CPUs)
		default:
			kept = kept.Union(g.CPUs)
		}
	}
	return out.Minus(kept)
}

// liveNames reports, for each container name of a pod, whether a container with this name is alive. The container with
// the id exceptID does not count.
func (n *view) liveNames(podID, exceptID string) map[string]bool {
	lives := map[string]bool{}
	for _, c := range n.containersOf(podID) {
		lives[c.Name] = lives[c.Name] || c.ID != exceptID && c.Alive()
	}
	return lives
}

// freeInitContainerCPUs frees the CPUs of a pod's init containers that no other container took over. It does nothing
// until all app containers and sidecars of the pod are alive and no init container is alive.
func (d *draft) freeInitContainerCPUs(p *Pod) {
	if p.Spec == nil || !d.n.ledger.HasCPUs(p.Pod.UID) {
		return
	}
	lives := d.n.liveNames(p.Pod.ID, "")
	for _, s := range p.Spec.Containers {
		if s.Kind == lifecycle.Init && lives[s.Name] || (s.Kind == lifecycle.App || s.Kind == lifecycle.Sidecar) && !lives[s.Name] {
			return
		}
	}
	for _, s := range p.Spec.Containers {
		if s.Kind == lifecycle.Init {
			d.n.ledger.dropKey(placement.Key{PodUID: p.Pod.UID, Container: s.Name})
		}
	}
	d.n.ledger.dropKey(placement.Key{PodUID: p.Pod.UID})
}
