package agent

import (
	"errors"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/rules"
)

// addRules adds the configuration's rules to a policy. They are asked after the hooks,
// and before hooks that go by what all others decided.
func addRules(p *engine.Policy, c config.Config, n hook.Node, labels namespaces.Labels) error {
	if len(c.Rules) == 0 {
		return nil
	}
	set, problems := rules.Compile(c.Rules)
	if problems != nil {
		return errors.New(problems[0].String()) // a valid configuration has none
	}
	f := rules.Facts{Devices: devicesAt(n, set.Devices())}
	if set.ReadsNamespaces() {
		f.Namespaces = labels
	}
	p.Hooks = append(p.Hooks, set.Hooks(f)...)
	for _, name := range set.Required() {
		p.Fatal[name] = true
	}
	return nil
}

// Authorisation returns what pods may ask for under a configuration, with these labels
// of namespaces.
func Authorisation(c config.Config, labels map[string]map[string]string) func(*intent.Pod, string) *intent.Pod {
	return rulesOf(c.Authorization, labels).Authorise
}

// readsNamespaces reports whether rules read labels of namespaces.
func readsNamespaces(c config.Config) bool {
	set, problems := rules.Compile(c.Rules)
	return problems == nil && set.ReadsNamespaces()
}

// devicesAt are the devices of these paths, as far as the node has them.
func devicesAt(n hook.Node, paths []string) map[string]lifecycle.Device {
	if len(paths) == 0 {
		return nil
	}
	all := maps.Clone(n.Host().Devices)
	if all == nil {
		all = map[string]lifecycle.Device{}
	}
	// A node of a recording knows the devices of its host alone.
	if n, ok := n.(node); ok && n.deviceAt != nil {
		for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
			if d, ok := n.deviceAt(path); ok {
				all[path] = d
			}
		}
	}
	return all
}
