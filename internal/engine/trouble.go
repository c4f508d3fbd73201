package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Found is what is wrong with a container, or with a pod itself.
type Found struct {
	// Problems are as many as are kept of one pod, More how many more there are.
	Problems []lifecycle.Problem
	More     int
	// Refused: it did not get something it asked for, whether that is told or not.
	Refused bool

	malformed string // for what strict mode refuses it; "" for nothing
}

// finding is what all that is wrong comes to, of which so much is kept as there is room.
func finding(all []lifecycle.Problem, room int) (f Found) {
	if len(all) == 0 {
		return f
	}
	f.Refused = slices.ContainsFunc(all, func(q lifecycle.Problem) bool { return q.Refused })
	f.malformed = malformed(all)
	f.Problems, f.More = lifecycle.Worst(all, room)
	return f
}

// room is how many problems are kept of a container, beside those of its pod and of the
// pod's other containers.
func (n *view) room(p *Pod, c *Container) int {
	room := lifecycle.MaxProblems - len(p.Intent.Problems) - len(p.Found.Problems)
	for _, o := range n.containersOf(p.Pod.ID) {
		if o.ID != c.ID {
			room -= len(o.Found.Problems)
		}
	}
	return room
}

// malformed returns the first sentence for which strict mode refuses a container;
// what a hook server did is no fault of the pod's.
func malformed(problems []lifecycle.Problem) string {
	for _, q := range problems {
		if !q.Warning && !q.Unserved && q.Hook != lifecycle.OutsideHook {
			return q.String()
		}
	}
	return ""
}

// Problems are what is wrong with a container now: what its decision came to, and
// what others did to it since, which comes and goes without a decision of its own.
func (s *State) Problems(c *Container) []lifecycle.Problem {
	out := c.Told()
	p := s.Pod(c.PodID)
	over := func(q lifecycle.Problem) bool { // what was not waited for when it was decided is known by now
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

// Told is what a container's decision came to.
func (c *Container) Told() []lifecycle.Problem {
	return withMore(slices.Clip(c.Found.Problems), c.Found.More)
}

// Problems are what is wrong with a pod itself.
func (p *Pod) Problems() []lifecycle.Problem {
	return lifecycle.Bound(withMore(slices.Concat(p.Intent.Problems, p.Found.Problems), p.Found.More), lifecycle.MaxProblems)
}

func withMore(problems []lifecycle.Problem, more int) []lifecycle.Problem {
	if more == 0 {
		return problems
	}
	return append(problems, lifecycle.MoreProblems(more))
}
