package balloons

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// preservedBy returns the annotation or configuration key that keeps a container out of balloons; "" for
// none.
func (p *Policy) preservedBy(s placement.Subject, who Subject) string {
	switch asked := s.Intent.PreserveCPU.V.Of(s.Name); {
	case asked.V:
		return asked.Key
	case anyMatches(p.Options.Preserve.MatchExpressions, who):
		return "placement.balloons.preserve"
	}
	return ""
}

// typeOf returns the type of a container's balloon, and the annotation or configuration key that determined the type.
// If the pod's annotation names a type, it is that type. Otherwise it is the first type that matches the container, or
// else the type with the name "default". If the type in the annotation does not exist, the last result has a problem.
func (p *Policy) typeOf(s placement.Subject, who Subject) (t *TypeOptions, from string, wrong []lifecycle.Problem) {
	if asked := s.Intent.Balloon.V.Of(s.Name); asked.IsSet() {
		if t = p.typeNamed(asked.V); t != nil {
			return t, asked.Key, nil
		}
		wrong = []lifecycle.Problem{{
			Key: asked.Key, Value: intent.Printable(asked.V), Reason: "placement.balloons has no such type", Refused: true,
			Then: "the container gets the balloon that it would get without the annotation",
		}}
	}
	for i := range p.types {
		if t := &p.types[i]; t.matches(who) {
			return t, "placement.balloons." + t.Name, wrong
		}
	}
	return p.typeNamed(defaultType), "placement.balloons." + defaultType, wrong
}

// BalloonOf returns the name of a balloon of the container's balloon type. The parameter nth is the index of the
// balloon among the balloons of this type. BalloonOf returns "" if the container must not be in a balloon, or if nth
// exceeds the type's limit maxBalloons.
func (p *Policy) BalloonOf(s placement.Subject, nth int) string {
	who := Subject{Pod: s.Pod, QoS: s.Intent.QoS.String(), Name: s.Name}
	if p.preservedBy(s, who) != "" {
		return ""
	}
	t, _, _ := p.typeOf(s, who)
	if t.MaxBalloons != 0 && nth >= t.MaxBalloons {
		return ""
	}
	return t.balloonName(nth)
}

// threadsOf returns which hyperthreads of its balloon a container may use, as the pod's annotation requests.
func threadsOf(s placement.Subject) placement.Threads {
	switch asked := s.Intent.HideThreads.V.Of(s.Name); {
	case !asked.IsSet():
		return placement.DefaultThreads
	case asked.V:
		return placement.OneThread
	}
	return placement.AllThreads
}

// pinsMemory reports whether containers of a type are bound to memory nodes.
func (p *Policy) pinsMemory(t *TypeOptions) bool {
	return t.PinMemory == "always" || t.PinMemory == "" && p.Options.PinMemory
}

// memoryOf returns the choice of memory nodes for a container in a balloon of type t. As in nri-plugins, the annotation
// that preserves memory has the highest priority, then the options pinMemory, then the annotation memory-type, then
// the type's memoryTypes.
func (p *Policy) memoryOf(t *TypeOptions, s placement.Subject) (m placement.MemoryChoice) {
	if s.Intent.PreserveMemory.V.Of(s.Name).V || !p.pinsMemory(t) {
		return placement.MemoryChoice{KeepRequested: true}
	}
	if asked := s.Intent.MemoryKinds.V.Of(s.Name); asked.IsSet() {
		return placement.MemoryChoice{Kinds: asked.V, From: asked.Key}
	}
	for _, name := range t.MemoryTypes {
		m.Kinds = append(m.Kinds, intent.MemoryKinds()[name])
	}
	slices.Sort(m.Kinds)
	m.Kinds, m.From = slices.Compact(m.Kinds), "placement.balloons."+t.Name
	return m
}
