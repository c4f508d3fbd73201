package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Copy returns an independent state for a what-if. Both states share pods and containers, which
// are never changed, only replaced.
func (s *State) Copy() *State {
	c := *s
	c.ledger = s.ledger.Clone()
	c.pods, c.containers = maps.Clone(s.pods), maps.Clone(s.containers)
	c.byPod = make(map[string][]string, len(s.byPod))
	for id, of := range s.byPod {
		c.byPod[id] = slices.Clone(of)
	}
	c.marks, c.seats, c.begun, c.memory = maps.Clone(s.marks), maps.Clone(s.seats), slices.Clone(s.begun), s.memory.clone()
	c.groups = make(map[placement.CPUGroup]*groupMembers, len(s.groups))
	for seat, b := range s.groups {
		other := *b
		other.members = slices.Clone(b.members)
		c.groups[seat] = &other
	}
	return &c
}

// PlannedPod is a pod that does not exist yet: its spec, and the requests that the kubelet would
// send to the runtime.
type PlannedPod struct {
	Pod        lifecycle.Pod
	Spec       *lifecycle.PodSpec
	Containers []lifecycle.Container
}

// Rejected is a container of a what-if that the policy would refuse.
type Rejected struct {
	Pod, Container string
	Reason         string
}

// WhatIf decides planned pods one after another, as if each were created and started. An init
// container ends before the next one starts. It changes the state, so call it on a Copy. A
// refused container does not stop the other containers of its pod.
func (s *State) WhatIf(wishes []PlannedPod) []Rejected {
	var refused []Rejected
	for i := range wishes {
		refused = append(refused, s.whatIf(&wishes[i])...)
	}
	return refused
}

func (s *State) whatIf(w *PlannedPod) (refused []Rejected) {
	f := Facts{}
	if w.Spec != nil {
		f.Specs = map[string]*lifecycle.PodSpec{w.Pod.UID: w.Spec}
	}
	gone := ""
	for _, step := range w.events() {
		if c := step.Container; c != nil && c.ID == gone {
			continue // its creation was refused
		}
		p := Decide(s, &step, f)
		if p.Reject == "" {
			s.Commit(p)
			continue
		}
		r := Rejected{Pod: w.Pod.Namespace + "/" + w.Pod.Name, Reason: p.Reject}
		if c := step.Container; c != nil {
			r.Container, gone = c.Name, c.ID
		}
		refused = append(refused, r)
	}
	return refused
}

// events are what the runtime would send for the pod of a what-if.
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

// Reconfigure decides all containers again under another policy. It changes the state, so call
// it on a Copy.
func (s *State) Reconfigure(p Policy) {
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Configure}, Facts{Policy: &p}))
}
