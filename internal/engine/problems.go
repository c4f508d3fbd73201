package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Found are the problems of a container, or of a pod itself.
type ProblemSummary struct {
	// Problems are the first of them, as many as are kept of one pod; More is the
	// number of the others.
	Problems []lifecycle.Problem
	More     int
	// Refused: it did not get something it asked for, whether that is among the
	// problems or not.
	Refused bool

	malformed string // the problem for which strict mode refuses it; "" for none
}

// finding collects problems, and keeps as many as there is room for.
func summarize(all []lifecycle.Problem, room int) (f ProblemSummary) {
	if len(all) == 0 {
		return f
	}
	f.Refused = slices.ContainsFunc(all, func(q lifecycle.Problem) bool { return q.Refused })
	f.malformed = malformed(all)
	f.Problems, f.More = lifecycle.Worst(all, room)
	return f
}

// room is how many problems are kept of a container, beside those of its pod and of
// the pod's other containers.
func (n *view) room(p *Pod, c *Container) int {
	room := lifecycle.MaxProblems - len(p.Intent.Problems) - len(p.ProblemSummary.Problems)
	for _, o := range n.containersOf(p.Pod.ID) {
		if o.ID != c.ID {
			room -= len(o.ProblemSummary.Problems)
		}
	}
	return room
}

// malformed returns the first problem for which strict mode refuses a container. A
// hook server's mistake is no fault of the pod's.
func malformed(problems []lifecycle.Problem) string {
	for _, q := range problems {
		if !q.Warning && !q.Unserved && q.Hook != lifecycle.HookServerName {
			return q.String()
		}
	}
	return ""
}

// Problems are the present problems of a container: those of its decision, and
// those that others cause since, which come and go without a decision of its own.
func (s *State) Problems(c *Container) []lifecycle.Problem {
	out := c.DecisionProblems()
	p := s.Pod(c.PodID)
	over := func(q lifecycle.Problem) bool { // a fact that came too late for its decision is known now
		return p != nil && (q.Key == lifecycle.LateSpec && p.Spec != nil || q.Key == lifecycle.LateGrants && p.Granted != nil)
	}
	if slices.ContainsFunc(out, over) {
		out = slices.DeleteFunc(slices.Clone(out), over)
	}
	if q, ok := s.Displaced(c); ok {
		out = append(out, q)
	}
	return out
}

// DecisionProblems are the problems of a container's decision.
func (c *Container) DecisionProblems() []lifecycle.Problem {
	return withMore(slices.Clip(c.ProblemSummary.Problems), c.ProblemSummary.More)
}

// Problems are the problems of a pod itself.
func (p *Pod) Problems() []lifecycle.Problem {
	return lifecycle.Bound(withMore(slices.Concat(p.Intent.Problems, p.ProblemSummary.Problems), p.ProblemSummary.More), lifecycle.MaxProblems)
}

func withMore(problems []lifecycle.Problem, more int) []lifecycle.Problem {
	if more == 0 {
		return problems
	}
	return append(problems, lifecycle.MoreProblems(more))
}
