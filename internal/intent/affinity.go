package intent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/expression"
	"github.com/trimtab/trimtab/internal/jsonwords"
	kjson "sigs.k8s.io/json"
)

// Affinity is a container's request to run near other containers, or far from them.
type Affinity struct {
	// Scope and Match select the other containers: a container is selected if both expressions match it. If Scope is
	// nil, only containers of the same pod can be selected.
	Scope, Match *expression.Expression
	// Weight is the weight of each selected container. A container with a negative weight should be far away.
	Weight int
	// ID has Scope and Match as one text, so affinities with the same ID select the same containers. If Scope is nil,
	// ID is "" and identifies nothing.
	ID string
}

// Matches reports whether the affinity selects a container.
func (a *Affinity) Matches(s expression.Subject) bool {
	return (a.Scope == nil || a.Scope.Matches(s)) && a.Match.Matches(s)
}

// AffinitiesOf returns the affinities of the pod's container with this name.
func (p *Pod) AffinitiesOf(container string) []Affinity {
	if !p.Affinity.IsSet() && !p.AntiAffinity.IsSet() {
		return nil
	}
	return slices.Concat(p.Affinity.V[container], p.AntiAffinity.V[container])
}

// Limits of the affinities of a pod. nri-plugins (0.14) has only the limit of weights, with the same number.
const (
	maxAffinities     = 32  // in one annotation
	maxAffinityValues = 32  // in one expression
	maxAffinityText   = 320 // bytes of a key or value
	maxAffinityWeight = 1000
)

// affinityTerm is an affinity in the long form.
type affinityTerm struct {
	Scope  *expression.Expression `json:"scope"`
	Match  *expression.Expression `json:"match"`
	Weight int                    `json:"weight"`
}

// affinities reads an annotation with affinities by container. The parameter sign is 1, or -1 for anti-affinities.
// The short form of the annotation names other containers, the long form has expressions. An annotation with a fault
// has no effect.
func (t *podTexts) affinities(out *Pod, key string, sign int) (none Sourced[map[string][]Affinity]) {
	text := t.annotations.of(key)
	if text == "" {
		return none
	}
	all, err := t.parseAffinities(key, sign)
	if err != nil {
		out.reportMalformed(key, text, "%v", err)
		return none
	}
	return Sourced[map[string][]Affinity]{all, key}
}

// parseAffinities parses an annotation with affinities. It returns the affinities by container.
func (t *podTexts) parseAffinities(key string, sign int) (map[string][]Affinity, error) {
	var raw map[string][]json.RawMessage
	if err := t.decodeStrict(key, &raw); err != nil {
		return nil, fmt.Errorf("%w; want for each container a list of container names, such as c0: [c1, c2], or of objects with match, scope and weight", err)
	}
	n, short := 0, 0
	for _, list := range raw {
		for _, item := range list {
			if n++; strings.HasPrefix(string(item), `"`) {
				short++
			}
		}
	}
	switch {
	case n > maxAffinities:
		return nil, fmt.Errorf("has %d affinities; the agent reads at most %d", n, maxAffinities)
	case short == n:
		return shortAffinities(raw, sign)
	case short > 0:
		return nil, errors.New("mixes names of containers with objects that have expressions")
	}
	all := make(map[string][]Affinity, len(raw))
	for _, name := range sortedKeys(raw) {
		for i, item := range raw[name] {
			a, err := longAffinity(item, sign)
			if err != nil {
				return nil, fmt.Errorf("%s[%d]%w", printable(name), i, err)
			}
			all[name] = append(all[name], a)
		}
	}
	return all, nil
}

// shortAffinities reads the short form: for each container, the names of other containers of the pod. If a container
// names another one, both get an affinity to each other. A pair that is named twice has the same effect as once.
func shortAffinities(raw map[string][]json.RawMessage, sign int) (map[string][]Affinity, error) {
	others := map[string][]string{}
	add := func(of, other string) {
		if !slices.Contains(others[of], other) {
			others[of] = append(others[of], other)
		}
	}
	for name, list := range raw {
		for _, item := range list {
			var other string
			if err := json.Unmarshal(item, &other); err != nil {
				return nil, errors.New("malformed: " + oneLine(err))
			}
			add(name, other)
			add(other, name)
		}
	}
	all := make(map[string][]Affinity, len(others))
	for name, list := range others {
		slices.Sort(list)
		all[name] = []Affinity{{Match: &expression.Expression{Key: "name", Operator: "In", Values: list}, Weight: sign}}
	}
	return all, nil
}

// longAffinity reads one affinity in the long form. An error begins with the JSON member that has
// the fault.
func longAffinity(item json.RawMessage, sign int) (a Affinity, err error) {
	term := affinityTerm{}
	strict, err := kjson.UnmarshalStrict(item, &term)
	if err = errors.Join(append(strict[:min(len(strict), maxStrictErrors)], err)...); err != nil {
		return a, fmt.Errorf(": malformed: %s", oneLine(jsonwords.Error(err)))
	}
	if term.Match == nil {
		return a, errors.New(".match is missing")
	}
	if err := checkExpression(term.Match); err != nil {
		return a, fmt.Errorf(".match.%w", err)
	}
	if term.Scope != nil {
		if err := checkExpression(term.Scope); err != nil {
			return a, fmt.Errorf(".scope.%w", err)
		}
	}
	if term.Weight == 0 {
		term.Weight = 1
	}
	a = Affinity{Scope: term.Scope, Match: term.Match, Weight: sign * min(max(term.Weight, -maxAffinityWeight), maxAffinityWeight)}
	if a.Scope != nil {
		id, err := json.Marshal([2]*expression.Expression{a.Scope, a.Match})
		if err != nil {
			return a, fmt.Errorf(": %w", err)
		}
		a.ID = string(id)
	}
	return a, nil
}

// checkExpression returns the fault of an expression. An error begins with the JSON member that has the fault.
func checkExpression(e *expression.Expression) error {
	if !slices.Contains(expression.Operators(), e.Operator) {
		return fmt.Errorf("operator is %s, want one of %s", expression.Quote(e.Operator), strings.Join(expression.Operators(), ", "))
	}
	if len(e.Values) > maxAffinityValues {
		return fmt.Errorf("values has %d entries; the agent reads at most %d", len(e.Values), maxAffinityValues)
	}
	for _, text := range append(slices.Clone(e.Values), e.Key) {
		if len(text) > maxAffinityText {
			return fmt.Errorf("values or key has a text longer than %d bytes", maxAffinityText)
		}
	}
	if key, what := e.Fault(); what != "" {
		return fmt.Errorf("%s %s", key, what)
	}
	return nil
}
