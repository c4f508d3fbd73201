package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Copy returns an independent copy of the state, for decisions that are not applied to the node. Both states share pods
// and containers, which code never changes but only replaces.
func (s *State) Copy() *State {
	c := *s
	c.ledger = s.ledger.Clone()
	c.pods, c.containers = maps.Clone(s.pods), maps.Clone(s.containers)
	c.containerIDsByPod = make(map[string][]string, len(s.containerIDsByPod))
	for id, of := range s.containerIDsByPod {
		c.containerIDsByPod[id] = slices.Clone(of)
	}
	c.memberships, c.poolGroups, c.newGroups, c.memoryUse = maps.Clone(s.memberships), maps.Clone(s.poolGroups), nil, s.memoryUse.clone()
	c.hugePageUse = make(map[string]nodeUse, len(s.hugePageUse))
	for resource, use := range s.hugePageUse {
		c.hugePageUse[resource] = use.clone()
	}
	c.affinityIndex = nil
	c.groups = make(map[placement.CPUGroup]*groupMembers, len(s.groups))
	c.layoutGroups = make(map[*groupMembers]bool, len(s.layoutGroups))
	for group, b := range s.groups {
		other := *b
		other.members = slices.Clone(b.members)
		if c.groups[group] = &other; s.layoutGroups[b] {
			c.layoutGroups[&other] = true
		}
	}
	return &c
}

// PlannedPod is a pod that does not exist yet: its spec, and the requests that the kubelet would
// send to the runtime.
type PlannedPod struct {
	Pod        lifecycle.Pod
	Spec       *lifecycle.PodSpec
	Containers []lifecycle.Container
	// Devices are the CDI devices of the node, if the pod requests CDI devices.
	Devices []lifecycle.NodeDevice
}

// RejectedContainer is a container of a planned pod that the engine refused in WhatIf.
type RejectedContainer struct {
	Pod, Container string // Pod is namespace/name; Container is "" if the whole pod was refused
	Reason         string
}

// WhatIf decides planned pods one after another, as if each pod were created and started. It ends each init container
// before it creates the next container. WhatIf changes the state, so call it on a Copy. If a container is refused,
// WhatIf continues with the other containers of the pod. If the engine refuses the first container of a pod because a
// later container would not be admitted, the result has only the first container.
func (s *State) WhatIf(wishes []PlannedPod) []RejectedContainer {
	var refused []RejectedContainer
	for i := range wishes {
		refused = append(refused, s.whatIf(&wishes[i])...)
	}
	return refused
}

// whatIf decides one planned pod, and returns its refused containers.
func (s *State) whatIf(w *PlannedPod) (refused []RejectedContainer) {
	f := Facts{NodeDevices: w.Devices}
	if w.Spec != nil {
		f.Specs = map[string]*lifecycle.PodSpec{w.Pod.UID: w.Spec}
	}
	refusedID, refusedLater := "", ""
	for _, step := range w.events() {
		if c := step.Container; c != nil && c.ID == refusedID {
			continue // the container's creation was refused
		}
		p := Decide(s, &step, f)
		if p.Reject == "" {
			s.Commit(p)
			continue
		}
		if c := step.Container; c != nil && c.Name == refusedLater {
			refusedID = c.ID
			continue
		}
		refusedLater = cmp.Or(p.refusedForContainer, refusedLater)
		r := RejectedContainer{Pod: w.Pod.Namespace + "/" + w.Pod.Name, Reason: p.Reject}
		if c := step.Container; c != nil {
			r.Container, refusedID = c.Name, c.ID
		}
		refused = append(refused, r)
	}
	return refused
}

// events returns the events that the runtime would send for the planned pod.
func (w *PlannedPod) events() []lifecycle.Event {
	steps := []lifecycle.Event{{Kind: lifecycle.RunPodSandbox, Pod: &w.Pod}}
	for i := range w.Containers {
		kinds := []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.StartContainer}
		if c, ok := w.Spec.Container(w.Containers[i].Name); ok && c.Kind == lifecycle.Init {
			kinds = append(kinds, lifecycle.StopContainer)
		}
		for _, k := range kinds {
			steps = append(steps, lifecycle.Event{Kind: k, Pod: &w.Pod, Container: &w.Containers[i]})
		}
	}
	return steps
}

// Reconfigure decides all containers of the state again, under another policy. Reconfigure changes the state, so call
// it on a Copy.
func (s *State) Reconfigure(p Policy) {
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Configure}, Facts{Policy: &p}))
}
