package engine

import (
	"maps"
	"reflect"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// This file handles hooks with a condition. Besides proposing values, such hooks can change a
// pod's intent and refuse containers, and the engine counts how often their conditions hold.

// wish lets hooks change a pod's intent. It calls ask with the output of each hook that was
// asked.
func (p *Policy) wish(pod *lifecycle.Pod, spec *lifecycle.PodSpec, asked *intent.Pod, ask func(hook.Hook, *hook.Output)) {
	for _, h := range p.Hooks {
		if w, ok := h.(hook.IntentChanger); ok {
			var out hook.Output
			w.ChangeIntent(&hook.Input{Pod: pod, Spec: spec, Intent: asked}, asked, &out)
			ask(h, &out)
		}
	}
}

// wish lets hooks change the intent of a new version of a pod, and notes their problems and
// matches.
func (d *draft) wish(np *Pod) {
	d.n.policy.wish(np.Pod, np.Spec, np.Intent, func(h hook.Hook, out *hook.Output) {
		np.specProblems = append(np.specProblems, out.Problems...)
		d.n.judge(h, out, np.Pod.ID, d.n.base.pods[np.Pod.ID] == nil)
	})
}

// judge notes whether a hook's condition holds, and whether a hook failed for which
// failurePolicy.hooks refuses containers.
func (n *view) judge(h hook.Hook, out *hook.Output, id string, isNew bool) {
	if out.Failed != "" && n.policy.Fatal[h.Info().Name] && n.failed == "" {
		n.failed = out.Failed
	}
	if !out.Matched || !isNew {
		return
	}
	if n.matched == nil {
		n.matched = map[string]map[string]bool{}
	}
	name := h.Info().Name
	if n.matched[name] == nil {
		n.matched[name] = map[string]bool{}
	}
	n.matched[name][id] = true
}

// matches returns the number of new pods and containers that meet each hook's condition, by
// hook; nil for none.
func (n *view) matches() map[string]int {
	if n.matched == nil {
		return nil
	}
	counts := make(map[string]int, len(n.matched))
	for name, ids := range n.matched {
		counts[name] = len(ids)
	}
	return counts
}

// Count adds the conditions that held in a decision to the totals, even if the decision refused
// the container. Call it once for each decision.
func (s *State) Count(p *Plan) {
	if len(p.Matched) == 0 {
		return
	}
	counts := maps.Clone(s.matched)
	if counts == nil {
		counts = make(map[string]uint64, len(p.Matched))
	}
	for name, n := range p.Matched {
		counts[name] += uint64(n) //nolint:gosec // a count
	}
	s.matched = counts
}

// Condition is a hook with a condition, and the number of pods and containers that met the
// condition since the agent's start.
type Condition struct {
	Hook, Condition string
	Matched         uint64
}

// Conditions lists the hooks with conditions in the order in which they are asked.
func (s *State) Conditions() []Condition {
	var all []Condition
	for _, h := range s.Policy.Hooks {
		if c, ok := h.(hook.Conditional); ok {
			name := h.Info().Name
			all = append(all, Condition{name, c.Condition(), s.matched[name]})
		}
	}
	return all
}

// refusal returns the problem for a container that a hook refuses but that exists already.
func refusal(h, why string) lifecycle.Problem {
	return lifecycle.Problem{Hook: h, Reason: why, Refused: true, Then: "it exists already and stays"}
}

// aboutOf returns the properties of a container that policies may use.
func aboutOf(c *lifecycle.Container) hook.About {
	labels, annotations := intent.OfContainer(c)
	a := hook.About{Labels: labels, Annotations: annotations, BindMounts: slices.ContainsFunc(c.Mounts, lifecycle.Mount.Binds)}
	if len(c.Args) > 0 {
		a.Command = c.Args[0]
	}
	if c.Image != nil {
		a.Image = c.Image.Name
	}
	return a
}

// specMatters reports whether a spec that became known changes any input of the hooks.
func (n *view) specMatters(old, now *lifecycle.PodSpec) bool {
	reads := func(h hook.Hook) bool {
		r, ok := h.(hook.SpecReader)
		return ok && r.ReadsSpec()
	}
	return slices.ContainsFunc(n.policy.Hooks, reads) && !reflect.DeepEqual(amounts(old), amounts(now))
}

// amounts are the parts of a spec that conditions can read.
func amounts(s *lifecycle.PodSpec) (all []any) {
	if s != nil {
		all = append(all, s.Containers, s.Requests)
	}
	return all
}
