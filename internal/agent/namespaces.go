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

// selected returns the namespaces that a rule is about, where it selects by label: the
// names of those whose labels are known and match, of the names that it allows. So the
// engine knows names alone, and a namespace that nobody has read matches no such rule.
func selected(r config.Rule, known namespaces.Labels) []string {
	if r.NamespaceSelector == "" {
		return r.Namespaces
	}
	selector, err := labels.Parse(r.NamespaceSelector)
	if err != nil {
		return nil // not valid, so never in force
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

// selects reports whether a rule in force selects namespaces by label.
func (s *settings) selects() bool {
	return slices.ContainsFunc(s.current().Authorisation, func(r config.Rule) bool { return r.NamespaceSelector != "" })
}

// relabel applies the configuration again where labels of namespaces change a rule.
func (s *settings) relabel(rules *intent.Rules) error {
	c := s.current()
	now := rulesOf(c.Authorisation, s.node.namespaces.Labels())
	if reflect.DeepEqual(now, *rules) {
		return nil
	}
	err := s.apply(c)
	if err == nil {
		*rules = now
	}
	return err
}

// namespaceLabels is the service that reads labels of namespaces.
func (a *Agent) namespaceLabels(c *kube.Client) kube.Service {
	var rules intent.Rules
	return &namespaces.Service{
		Store: a.node.namespaces, Client: c, Wanted: a.settings.selects, Save: a.files.save(namespacesName),
		Apply: func() error { return a.settings.relabel(&rules) },
	}
}
