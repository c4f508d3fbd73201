package engine

import (
	"maps"
	"reflect"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// This file handles hooks with a condition from the configuration. Such hooks can also refuse containers, and change a
// pod's intent (what the pod requests by annotations and labels). The engine counts how often the conditions are met.

// adjustIntent lets hooks change a pod's intent (asked). After each hook that can change intents, it calls
// handleOutput with the hook and the hook's output.
func (p *Policy) adjustIntent(pod *lifecycle.Pod, spec *lifecycle.PodSpec, asked *intent.Pod, handleOutput func(hook.Hook, *hook.Output)) {
	for _, h := range p.Hooks {
		if w, ok := h.(hook.IntentChanger); ok {
			var out hook.Output
			w.ChangeIntent(&hook.Input{Pod: pod, Spec: spec, Intent: asked}, asked, &out)
			handleOutput(h, &out)
		}
	}
}

// adjustIntent lets hooks change the intent of np, a new version of a pod. It stores the problems of the hooks in np,
// and notes whether the conditions of the hooks were met.
func (d *draft) adjustIntent(np *Pod) {
	d.n.policy.adjustIntent(np.Pod, np.Spec, np.Intent, func(h hook.Hook, out *hook.Output) {
		np.specProblems = append(np.specProblems, out.Problems...)
		d.n.noteHookResult(h, out, np.Pod.ID, d.n.base.pods[np.Pod.ID] == nil)
	})
}

// noteHookResult notes whether a new pod or container met the condition of a hook. If the hook failed, and
// failurePolicy.hooks refuses containers when this hook fails, it also notes the failure. id is the id of the pod or
// container.
func (n *view) noteHookResult(h hook.Hook, out *hook.Output, id string, isNew bool) {
	if out.Failure != "" && n.policy.FatalHooks[h.Info().Name] && n.hookFailure == "" {
		n.hookFailure = out.Failure
	}
	if !out.Matched || !isNew {
		return
	}
	if n.matchedIDs == nil {
		n.matchedIDs = map[string]map[string]bool{}
	}
	name := h.Info().Name
	if n.matchedIDs[name] == nil {
		n.matchedIDs[name] = map[string]bool{}
	}
	n.matchedIDs[name][id] = true
}

// matchCounts returns the number of new pods and containers that meet the condition of a hook, by hook; nil
// for none.
func (n *view) matchCounts() map[string]int {
	if n.matchedIDs == nil {
		return nil
	}
	counts := make(map[string]int, len(n.matchedIDs))
	for name, ids := range n.matchedIDs {
		counts[name] = len(ids)
	}
	return counts
}

// CountMatches adds the numbers in ConditionMatches of a plan to the totals of the state. Callers must call it once for
// each plan, even if the plan refuses the container.
func (s *State) CountMatches(p *Plan) {
	if len(p.ConditionMatches) == 0 {
		return
	}
	counts := maps.Clone(s.conditionMatches)
	if counts == nil {
		counts = make(map[string]uint64, len(p.ConditionMatches))
	}
	for name, n := range p.ConditionMatches {
		counts[name] += uint64(n) //nolint:gosec // a count
	}
	s.conditionMatches = counts
}

// Condition is the condition of a hook, and the number of pods and containers that met it since the start of
// the agent.
type Condition struct {
	Hook, Condition string // the hook's name, and its condition as text
	Matched         uint64 // the number of pods and containers that met the condition
}

// Conditions returns the conditions of hooks, in the order in which the hooks run.
func (s *State) Conditions() []Condition {
	var all []Condition
	for _, h := range s.Policy.Hooks {
		if c, ok := h.(hook.ConditionalHook); ok {
			name := h.Info().Name
			all = append(all, Condition{name, c.Condition(), s.conditionMatches[name]})
		}
	}
	return all
}

// hookRefusalProblem returns the problem of an existing container that the hook with the name h refuses.
func hookRefusalProblem(h, why string) lifecycle.Problem {
	return lifecycle.Problem{Hook: h, Reason: why, Refused: true, Then: "the container exists already and keeps running"}
}

// propertiesOf returns the properties of a container that conditions of hooks can use.
func propertiesOf(c *lifecycle.Container) hook.ContainerProperties {
	labels, annotations := intent.ContainerMetadata(c)
	a := hook.ContainerProperties{Labels: labels, Annotations: annotations, BindMounts: slices.ContainsFunc(c.Mounts, lifecycle.Mount.IsBind)}
	if len(c.Args) > 0 {
		a.Command = c.Args[0]
	}
	if c.Image != nil {
		a.Image = c.Image.Name
	}
	return a
}

// specChangeMatters reports whether a change of a pod's spec changes the input of a hook.
func (n *view) specChangeMatters(old, now *lifecycle.PodSpec) bool {
	reads := func(h hook.Hook) bool {
		r, ok := h.(hook.SpecReader)
		return ok && r.ReadsSpec()
	}
	return slices.ContainsFunc(n.policy.Hooks, reads) && !reflect.DeepEqual(conditionInputs(old), conditionInputs(now))
}

// conditionInputs returns the fields of a spec that conditions of hooks can read.
func conditionInputs(s *lifecycle.PodSpec) (all []any) {
	if s != nil {
		all = append(all, s.Containers, s.Requests)
	}
	return all
}
