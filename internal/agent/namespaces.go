package agent

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
)

// selectedNamespaces returns the namespaces that a rule applies to. If the rule selects by label, these are
// the namespaces that the rule's name patterns allow and whose known labels match. So the engine compares
// only names. A namespace whose labels are unknown matches no such rule.
func selectedNamespaces(r config.Rule, known namespaces.Labels) []string {
	if r.NamespaceSelector == "" {
		return r.Namespaces
	}
	selector, err := labels.Parse(r.NamespaceSelector)
	if err != nil {
		return nil // not valid, so it is never in force
	}
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		named := slices.ContainsFunc(r.Namespaces, func(p string) bool { return intent.MatchNamespace(p, name) })
		if named && selector.Matches(labels.Set(known[name])) {
			out = append(out, name)
		}
	}
	return out
}

// selects reports whether a rule in force, an authorization rule or a rule in CEL, selects namespaces by
// label.
func (s *settings) selects() bool {
	c := s.current()
	return slices.ContainsFunc(c.Authorization, func(r config.Rule) bool { return r.NamespaceSelector != "" }) || readsNamespaces(c)
}

// namespaceSelection has the decisions that depend on the labels of namespaces.
type namespaceSelection struct {
	authorization intent.Rules
	rules         namespaces.Labels // labels that rules in CEL read; nil if no rule reads labels
}

// applyLabels applies the configuration again if changed labels of namespaces change it.
func (s *settings) applyLabels(was *namespaceSelection) error {
	c := s.current()
	now := namespaceSelection{authorization: rulesOf(c.Authorization, s.node.namespaces.Labels())}
	if readsNamespaces(c) {
		now.rules = s.node.namespaces.Labels()
	}
	if reflect.DeepEqual(now, *was) {
		return nil
	}
	err := s.apply(c)
	if err == nil {
		*was = now
	}
	return err
}

// namespaceLabels is the service that reads the labels of namespaces.
func (a *Agent) namespaceLabels(c *kube.Client) kube.Service {
	var was namespaceSelection
	return &namespaces.Service{
		Store: a.node.namespaces, Client: c, Wanted: a.settings.selects, Save: a.files.save(namespacesName),
		Apply: func() error { return a.settings.applyLabels(&was) },
	}
}
