package rules

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Facts has the facts about the node and cluster that rules need in addition to the input of hooks.
type Facts struct {
	// Namespaces are the labels of namespaces, by name of the namespace. Code must not modify these maps.
	Namespaces map[string]map[string]string
	// Devices are the node's devices by path.
	Devices map[string]lifecycle.Device
	// UnsupportedFields are the fields that this node's kernel cannot set, with the reasons.
	UnsupportedFields map[lifecycle.Field]string
}

// Hooks returns a hook for each rule, in the order of the rules.
func (s *Set) Hooks(f Facts) []hook.Hook {
	hooks := make([]hook.Hook, len(s.rules))
	for i, r := range s.rules {
		hooks[i] = &Hook{rule: r, facts: f}
	}
	return hooks
}

// Names returns the names of the rules, with Prefix.
func (s *Set) Names() []string {
	names := make([]string, len(s.rules))
	for i, r := range s.rules {
		names[i] = r.name
	}
	return names
}

// Required returns the names of the required rules, with Prefix. If the agent cannot evaluate a required rule for a
// container, it refuses the container.
func (s *Set) Required() []string {
	var names []string
	for _, r := range s.rules {
		if r.required {
			names = append(names, r.name)
		}
	}
	return names
}

// ReadsNamespaces reports whether a rule reads labels of namespaces.
func (s *Set) ReadsNamespaces() bool {
	return slices.ContainsFunc(s.rules, func(r *rule) bool { return r.anyExpression(func(e *expression) bool { return e.readsNamespaces }) })
}

// anyExpression reports whether the function meets returns true for at least one of the rule's expressions.
func (r *rule) anyExpression(meets func(*expression) bool) bool {
	return meets(r.match) || slices.ContainsFunc(r.settings, func(s setting) bool { return s.expression != nil && meets(s.expression) })
}

// Devices returns the paths of the devices that rules give to containers.
func (s *Set) Devices() []string {
	var paths []string
	for _, r := range s.rules {
		for _, set := range r.settings {
			if set.value.Field == lifecycle.DeviceNode {
				paths = append(paths, set.value.Key)
			}
		}
	}
	return paths
}

// Condition returns the source text of the rule's condition.
func (h *Hook) Condition() string { return h.rule.matchSource }

// ReadsSpec reports whether an expression of the rule reads the pod's spec.
func (h *Hook) ReadsSpec() bool {
	return h.rule.anyExpression(func(e *expression) bool { return e.readsSpec })
}

// Hook is one rule. It implements hook.Hook and hook.IntentChanger.
type Hook struct {
	rule  *rule
	facts Facts
}

// Info describes the rule as a hook.
func (h *Hook) Info() hook.Info {
	info := hook.Info{
		Name: h.rule.name, About: "a rule of the configuration",
		Stages: []lifecycle.Kind{
			lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.CreateContainer, lifecycle.UpdateContainer,
		},
		Compose: "a value that an earlier hook set stays, as with any hook",
	}
	for _, s := range h.rule.settings {
		if s.value.Scope == lifecycle.OfPod {
			info.SetsOnPod = append(info.SetsOnPod, s.value.Field)
		} else {
			info.Sets = append(info.Sets, s.value.Field)
		}
	}
	return info
}

// Propose adds the values that the rule sets to out, or refuses the container.
func (h *Hook) Propose(in *hook.Input, out *hook.Output) {
	ofPod := in.Container == ""
	if !h.actsInScope(in.Scope()) {
		return
	}
	s := newSubject(in, h.facts.Namespaces)
	if !h.matches(s, out) {
		return
	}
	if !ofPod || h.rule.change.isEmpty() {
		out.Matched = true
	}
	if h.rule.refusalMessage != "" {
		out.Refusal = h.rule.name + ": " + h.rule.refusalMessage
		return
	}
	for i := range h.rule.settings {
		if set := &h.rule.settings[i]; set.value.Scope == in.Scope() {
			h.proposeSetting(set, s, out)
		}
	}
}

// actsInScope reports whether the rule sets values in this scope, which is container or pod. A rule that refuses has
// only the scope container.
func (h *Hook) actsInScope(scope lifecycle.Scope) bool {
	if h.rule.refusalMessage != "" {
		return scope == lifecycle.OfContainer
	}
	for i := range h.rule.settings {
		if h.rule.settings[i].value.Scope == scope {
			return true
		}
	}
	return false
}

// matches evaluates the rule's condition. If this fails, it reports the failure in out and returns false.
func (h *Hook) matches(s *subject, out *hook.Output) bool {
	yes, err := h.rule.match.matches(s)
	if err != nil {
		h.reportFailure("match", err, "the rule is skipped", out)
	}
	return yes
}

// reportFailure reports that a part of the rule, such as match, cannot be evaluated. The parameter then is the
// consequence, as a clause.
func (h *Hook) reportFailure(part string, err error, then string, out *hook.Output) {
	out.Failure = h.rule.name + ": its " + part + " cannot be evaluated: " + err.Error()
	out.Problems = append(out.Problems, h.problem(out.Failure, then))
}

// problem describes an error in the rule. It is a warning, because the pod did not cause the error.
func (h *Hook) problem(reason, then string) lifecycle.Problem {
	return lifecycle.Problem{Hook: h.rule.name, Reason: reason, Then: then, Warning: true}
}

// valueNotSet is the consequence, in problems, if the rule cannot set a value.
const valueNotSet = "the value is not set"

// proposeSetting adds one value to out, or a problem if the value cannot be set.
func (h *Hook) proposeSetting(set *setting, s *subject, out *hook.Output) {
	evaluated := *set
	if why, missing := h.facts.UnsupportedFields[evaluated.value.Field]; missing {
		out.Problems = append(out.Problems, h.problem(h.rule.name+": this node cannot set its "+evaluated.value.Setting()+": "+why, valueNotSet))
		return
	}
	if wrong, err := evaluated.evaluate(s); err != nil {
		h.reportFailure("valueExpression for "+evaluated.value.Setting(), err, valueNotSet, out)
		return
	} else if wrong != "" {
		out.Problems = append(out.Problems, h.problem(h.rule.name+": its "+evaluated.value.Setting()+" "+wrong, valueNotSet))
		return
	}
	if evaluated.value.Field == lifecycle.DeviceNode {
		d, has := h.facts.Devices[evaluated.value.Key]
		if !has {
			out.Problems = append(out.Problems, h.problem(h.rule.name+": this node has no device "+evaluated.value.Key, valueNotSet))
			return
		}
		evaluated.value.Device = &d
	}
	evaluated.value.Why = lifecycle.Reason{Hook: h.rule.name, Source: h.rule.name, Text: "set by the rule"}
	out.Values = append(out.Values, evaluated.value)
}

// evaluate evaluates the setting's expression for a pod or container, and stores the result as the value. It does
// nothing if the value is a constant. wrong is what is wrong with the result, or "".
func (s *setting) evaluate(target *subject) (wrong string, err error) {
	switch {
	case s.expression == nil:
		return "", nil
	case s.value.Field.IsNumeric():
		n, err := s.expression.evaluateNumber(target)
		if err != nil {
			return "", err
		}
		return s.setNumber(n), nil
	}
	text, err := s.expression.evaluateText(target)
	if err != nil {
		return "", err
	}
	var options []string
	if s.value.Mount != nil {
		options = s.value.Mount.Options
	}
	return s.setText(text, options), nil
}

// ChangeIntent changes the requests of a pod for class, pool and NUMA nodes, as the rule says.
func (h *Hook) ChangeIntent(in *hook.Input, requests *intent.Pod, out *hook.Output) {
	w := h.rule.change
	if w.isEmpty() || w.unlessAsked && (requests.Class.IsSet() || requests.Pool.IsSet() || requests.NUMA.IsSet()) {
		return
	}
	if !h.matches(newSubject(in, h.facts.Namespaces), out) {
		return
	}
	out.Matched = true
	if w.class != intent.None {
		setRequest(h, requests, &requests.Class, w.class, "class", out)
		if requests.Class.Key == h.rule.name {
			requests.ClassName = w.class.String()
		}
	}
	if w.pool != "" {
		setRequest(h, requests, &requests.Pool, w.pool, "pool", out)
	}
	if w.numa != nil {
		setRequest(h, requests, &requests.NUMA, *w.numa, "numa", out)
	}
}

// setRequest sets one request of a pod to want, unless an earlier rule has set it. kind is the rule's key for the
// request, such as "class". If the rule replaces a request of the pod itself, the pod's request no longer matters. So
// if the agent cannot serve the pod's request, setRequest removes the problem that says so.
func setRequest[T any](h *Hook, requests *intent.Pod, request *intent.Sourced[T], want T, kind string, out *hook.Output) {
	if IsRule(request.Key) && fmt.Sprint(request.V) == fmt.Sprint(want) {
		return
	}
	if IsRule(request.Key) {
		out.Problems = append(out.Problems, h.problem(fmt.Sprintf("%s: its %s contradicts the %s of the earlier rule %s", h.rule.name, kind, kind, request.Key), "the earlier rule stays in force"))
		return
	}
	if overridden := request.Key; overridden != "" {
		requests.Problems = slices.DeleteFunc(slices.Clone(requests.Problems), func(p lifecycle.Problem) bool { return p.Unserved && p.Key == overridden })
	}
	*request = intent.Sourced[T]{V: want, Key: h.rule.name}
}

// IsRule reports whether a name is the name of a rule, with Prefix. Other names are those of hooks, labels and
// annotations.
func IsRule(name string) bool { return len(name) > len(Prefix) && name[:len(Prefix)] == Prefix }
