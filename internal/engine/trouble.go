package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// found takes what is wrong with a container: as much of it as the bound on its
// pod's problems leaves, and whatever is decided by all of it.
func (n *view) found(p *Pod, c *Container, all []lifecycle.Problem) {
	c.Trouble, c.Untold, c.Refused, c.malformed = all, 0, false, ""
	if len(all) == 0 {
		return
	}
	c.Refused = slices.ContainsFunc(all, func(q lifecycle.Problem) bool { return q.Refused })
	c.malformed = malformed(all)
	told := n.problemCount(p.Pod.ID)
	if old := n.container(c.ID); old != nil {
		told -= len(old.Trouble)
	}
	c.Trouble, c.Untold = lifecycle.Worst(all, lifecycle.MaxProblems-len(p.Intent.Problems)-len(p.Trouble)-told)
}

// foundOfPod takes what is wrong with a pod itself, as found does.
func foundOfPod(p *Pod, all []lifecycle.Problem) {
	p.malformed = malformed(all)
	p.Trouble, p.Untold = lifecycle.Worst(all, lifecycle.MaxProblems-len(p.Intent.Problems))
	if len(all) == 0 {
		p.Trouble = nil
	}
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

// problemCount returns how many problems of a pod's containers are kept. They are counted once,
// and kept count of from then on.
func (n *view) problemCount(podID string) int {
	if sum, counted := n.troubles[podID]; counted {
		return sum
	}
	sum := 0
	for _, c := range n.containersOf(podID) {
		sum += len(c.Trouble)
	}
	if n.troubles == nil {
		n.troubles = map[string]int{}
	}
	n.troubles[podID] = sum
	return sum
}

// recount keeps count of the problems of a pod whose container is replaced.
func (n *view) recount(old, now *Container) {
	if old != nil && n.troubles[old.PodID] > 0 {
		n.troubles[old.PodID] -= len(old.Trouble)
	}
	if now == nil {
		return
	}
	if sum, counted := n.troubles[now.PodID]; counted {
		n.troubles[now.PodID] = sum + len(now.Trouble)
	}
}

// Problems are what is wrong with a container now: what its decision came to, and
// what others did to it since, which comes and goes without a decision of its own.
func (s *State) Problems(c *Container) []lifecycle.Problem {
	out := c.Told()
	if over := s.knownSince(c); slices.ContainsFunc(out, over) {
		out = slices.DeleteFunc(slices.Clone(out), over)
	}
	if q, ok := s.Displaced(c); ok {
		out = append(out, q)
	}
	return out
}

// knownSince tells the problems of a container whose cause is over: what was not
// waited for when it was decided is known by now.
func (s *State) knownSince(c *Container) func(lifecycle.Problem) bool {
	p := s.Pod(c.PodID)
	return func(q lifecycle.Problem) bool {
		return p != nil && (q.Key == lifecycle.LateSpec && p.Spec != nil || q.Key == lifecycle.LateGrants && p.Granted != nil)
	}
}

// Told is what a container's decision came to.
func (c *Container) Told() []lifecycle.Problem { return withMore(slices.Clip(c.Trouble), c.Untold) }

// Problems are what is wrong with a pod itself.
func (p *Pod) Problems() []lifecycle.Problem {
	return lifecycle.Bound(withMore(slices.Concat(p.Intent.Problems, p.Trouble), p.Untold), lifecycle.MaxProblems)
}

func withMore(problems []lifecycle.Problem, more int) []lifecycle.Problem {
	if more == 0 {
		return problems
	}
	return append(problems, lifecycle.MoreProblems(more))
}
