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

// selectedNamespaces returns the patterns of namespace names in a rule. If the rule also has a label selector, the
// result instead has the names of the namespaces that match one of the patterns, and whose labels are known and match
// the selector. So the engine needs no labels to apply the rule: it only compares names.
func selectedNamespaces(r config.Rule, known namespaces.Labels) []string {
	if r.NamespaceSelector == "" {
		return r.Namespaces
	}
	selector, err := labels.Parse(r.NamespaceSelector)
	if err != nil {
		return nil // cannot happen: validation refuses such a rule
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

// selectsByLabel reports whether an authorization rule or a CEL rule in force depends on labels of namespaces.
func (s *settings) selectsByLabel() bool {
	c := s.current()
	return slices.ContainsFunc(c.Authorization, func(r config.Rule) bool { return r.NamespaceSelector != "" }) || readsNamespaces(c)
}

// namespaceSelection has the parts of the policy that depend on the labels of namespaces.
type namespaceSelection struct {
	authorization intent.Rules
	ruleLabels    namespaces.Labels // the labels of namespaces, if a CEL rule reads them; otherwise nil
}

// applyLabels applies the configuration again if the labels of namespaces changed in a way that changes the policy. The
// parameter applied has the parts of the policy that depended on labels when the configuration was applied last. If
// applyLabels applies the configuration, it updates this parameter.
func (s *settings) applyLabels(applied *namespaceSelection) error {
	c := s.current()
	now := namespaceSelection{authorization: rulesOf(c.Authorization, s.node.namespaces.Labels())}
	if readsNamespaces(c) {
		now.ruleLabels = s.node.namespaces.Labels()
	}
	if reflect.DeepEqual(now, *applied) {
		return nil
	}
	err := s.apply(c)
	if err == nil {
		*applied = now
	}
	return err
}

// namespaceLabels is the service that reads the labels of namespaces.
func (a *Agent) namespaceLabels(c *kube.Client) kube.Service {
	var applied namespaceSelection
	return &namespaces.Service{
		Store: a.node.namespaces, Client: c, NeedsLabels: a.settings.selectsByLabel, Save: a.files.save(namespacesFile),
		Apply: func() error { return a.settings.applyLabels(&applied) },
	}
}
