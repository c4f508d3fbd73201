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

// selects reports whether a rule in force selects namespaces by label, of
// authorization or of those in CEL.
func (s *settings) selects() bool {
	c := s.current()
	return slices.ContainsFunc(c.Authorization, func(r config.Rule) bool { return r.NamespaceSelector != "" }) || readsNamespaces(c)
}

// byLabel is what the labels of namespaces decide.
type byLabel struct {
	authorization intent.Rules
	rules         namespaces.Labels // that rules in CEL read; nil if none does
}

// relabel applies the configuration again where labels of namespaces change it.
func (s *settings) relabel(was *byLabel) error {
	c := s.current()
	now := byLabel{authorization: rulesOf(c.Authorization, s.node.namespaces.Labels())}
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

// namespaceLabels is the service that reads labels of namespaces.
func (a *Agent) namespaceLabels(c *kube.Client) kube.Service {
	var was byLabel
	return &namespaces.Service{
		Store: a.node.namespaces, Client: c, Wanted: a.settings.selects, Save: a.files.save(namespacesName),
		Apply: func() error { return a.settings.relabel(&was) },
	}
}
