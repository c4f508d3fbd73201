package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// ProblemSummary has the problems of a container, or of a pod itself.
type ProblemSummary struct {
	// Problems are the stored problems. Their number is limited by lifecycle.MaxProblems for a pod with its containers.
	// More is the number of problems that were dropped because of this limit.
	Problems []lifecycle.Problem
	More     int
	// Refused reports whether a requested value was refused, even if Problems does not list it.
	Refused bool

	malformedReason string // the problem because of which strict mode refuses the pod or container; "" for none
}

// summarize stores the most severe problems, at most as many as limit, and counts the others.
func summarize(all []lifecycle.Problem, limit int) (f ProblemSummary) {
	if len(all) == 0 {
		return f
	}
	f.Refused = slices.ContainsFunc(all, func(q lifecycle.Problem) bool { return q.Refused })
	f.malformedReason = malformedReason(all)
	f.Problems, f.More = lifecycle.MostSevere(all, limit)
	return f
}

// freeProblemSlots returns how many problems of the container c can be stored: the limit for a pod, minus the problems
// of the pod and of its other containers.
func (n *view) freeProblemSlots(p *Pod, c *Container) int {
	room := lifecycle.MaxProblems - len(p.Intent.Problems) - len(p.ProblemSummary.Problems)
	for _, o := range n.containersOf(p.Pod.ID) {
		if o.ID != c.ID {
			room -= len(o.ProblemSummary.Problems)
		}
	}
	return room
}

// malformedReason returns the first problem because of which strict mode refuses a pod or container; "" for none.
// Warnings and requests that this node does not serve (Unserved) do not count. Problems of hook servers and resource
// plugins do not count either, because the pod did not cause these problems.
func malformedReason(problems []lifecycle.Problem) string {
	for _, q := range problems {
		if !q.Warning && !q.Unserved && !lifecycle.IsExternal(q.Hook) {
			return q.String()
		}
	}
	return ""
}

// Problems returns the current problems of a container. These are the problems that were found when the container was
// decided and that still exist. If other containers have meanwhile taken all CPUs of the NUMA nodes that the container
// should use, this is a further problem.
func (s *State) Problems(c *Container) []lifecycle.Problem {
	out := c.DecisionProblems()
	p := s.Pod(c.PodID)
	over := func(q lifecycle.Problem) bool { // the problem was that a spec or a grant was missing, and it is known now
		return p != nil && (q.Key == lifecycle.MissingSpecKey && p.Spec != nil || q.Key == lifecycle.MissingGrantsKey && p.Granted != nil)
	}
	if slices.ContainsFunc(out, over) {
		out = slices.DeleteFunc(slices.Clone(out), over)
	}
	if q, ok := s.DisplacedProblem(c); ok {
		out = append(out, q)
	}
	return out
}

// DecisionProblems returns the problems that the decision about a container had.
func (c *Container) DecisionProblems() []lifecycle.Problem {
	return withDroppedCount(slices.Clip(c.ProblemSummary.Problems), c.ProblemSummary.More)
}

// Problems returns the problems of the pod itself.
func (p *Pod) Problems() []lifecycle.Problem {
	return lifecycle.LimitProblems(withDroppedCount(slices.Concat(p.Intent.Problems, p.ProblemSummary.Problems), p.ProblemSummary.More), lifecycle.MaxProblems)
}

// withDroppedCount adds a problem that says how many problems were dropped. more is that number; for 0 it adds nothing.
func withDroppedCount(problems []lifecycle.Problem, more int) []lifecycle.Problem {
	if more == 0 {
		return problems
	}
	return append(problems, lifecycle.MoreProblems(more))
}
