package balloons

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// preserved returns the key that keeps a container out of balloons; "" for none.
func (p *Policy) preserved(s placement.Subject, who Subject) string {
	switch asked := s.Intent.PreserveCPU.V.Of(s.Name); {
	case asked.V:
		return asked.Key
	case anyMatches(p.Options.Preserve.MatchExpressions, who):
		return "placement.balloons.preserve"
	}
	return ""
}

// typeOf returns the type of a container's balloon, and the key that says so: the type that it
// names, or else the first that takes it.
func (p *Policy) typeOf(s placement.Subject, who Subject) (t *TypeOptions, from string, wrong []lifecycle.Problem) {
	if asked := s.Intent.Balloon.V.Of(s.Name); asked.IsSet() {
		if t = p.named(asked.V); t != nil {
			return t, asked.Key, nil
		}
		wrong = []lifecycle.Problem{{
			Key: asked.Key, Value: intent.Printable(asked.V), Reason: "placement.balloons has no such type", Refused: true,
			Then: "the container gets the balloon that it would get without the annotation",
		}}
	}
	for i := range p.types {
		if t := &p.types[i]; t.takes(who) {
			return t, "placement.balloons." + t.Name, wrong
		}
	}
	return p.named(defaultType), "placement.balloons." + defaultType, wrong
}

// threadsOf returns the threads that a container asks for.
func threadsOf(s placement.Subject) placement.Threads {
	switch asked := s.Intent.HideThreads.V.Of(s.Name); {
	case !asked.IsSet():
		return placement.ThreadsOfType
	case asked.V:
		return placement.OneThread
	}
	return placement.AllThreads
}

// pinsMemory reports whether containers of a type are bound to memory nodes.
func (p *Policy) pinsMemory(t *TypeOptions) bool {
	return t.PinMemory == "always" || t.PinMemory == "" && p.Options.PinMemory
}

// memoryOf returns the memory nodes of a container in a balloon of a type. Its own annotation
// precedes the type's kinds of memory (nri-plugins: preserve, pinMemory, memory-type, then
// memoryTypes).
func (p *Policy) memoryOf(t *TypeOptions, s placement.Subject) (m placement.MemoryChoice) {
	if s.Intent.PreserveMemory.V.Of(s.Name).V || !p.pinsMemory(t) {
		return placement.MemoryChoice{Keep: true}
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
