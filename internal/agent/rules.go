package agent

import (
	"errors"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/rules"
	"github.com/trimtab/trimtab/internal/topology"
)

// addRules adds the configuration's rules to the hooks of a policy. The function node returns the facts about the node
// that the rules need.
func addRules(p *engine.Policy, c config.Config, labels namespaces.Labels, node func(*rules.Set) rules.Facts) error {
	if len(c.Rules) == 0 {
		return nil
	}
	set, problems := rules.Compile(c.Rules)
	if problems != nil {
		return errors.New(problems[0].String()) // cannot happen: validation refuses rules that do not compile
	}
	f := node(set)
	if set.ReadsNamespaces() {
		f.Namespaces = labels
	}
	p.Hooks = append(p.Hooks, set.Hooks(f)...)
	for _, name := range set.Required() {
		p.FatalHooks[name] = true
	}
	return nil
}

// RulesNode returns a function that makes simulated nodes without containers, for tests of a configuration's rules. The
// policy of these nodes has only the CEL rules and the authorization rules. The nodes have all devices and kernel
// features that the rules need.
func RulesNode(c config.Config, labels map[string]map[string]string) (func() *engine.State, error) {
	m, err := topology.New([]topology.CPU{{ID: 0}}, nil)
	if err != nil {
		return nil, err
	}
	p := engine.Policy{
		Strict: c.Strict, Dialects: c.Dialects, Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
		Placement: none.Policy{}, Rules: rulesOf(c.Authorization, labels), FatalHooks: map[string]bool{},
	}
	err = addRules(&p, c, labels, func(set *rules.Set) rules.Facts {
		f := rules.Facts{Devices: map[string]lifecycle.Device{}}
		for _, path := range set.Devices() {
			f.Devices[path] = lifecycle.Device{Path: path, Type: "c"}
		}
		return f
	})
	return func() *engine.State { return engine.NewState(m, p) }, err
}

// factsForRules returns a function that returns the facts about a node that a set of CEL rules needs.
func factsForRules(n hook.Node) func(*rules.Set) rules.Facts {
	return func(set *rules.Set) rules.Facts {
		f := rules.Facts{Devices: devicesAt(n, set.Devices()), UnsupportedFields: map[lifecycle.Field]string{}}
		for field, feature := range rules.KernelFeatures() {
			if found := n.Probe(feature); found.Support == lifecycle.NotSupported {
				f.UnsupportedFields[field] = found.Why
			}
		}
		return f
	}
}

// readsNamespaces reports whether a CEL rule of a configuration reads labels of namespaces.
func readsNamespaces(c config.Config) bool {
	set, problems := rules.Compile(c.Rules)
	return problems == nil && set.ReadsNamespaces()
}

// devicesAt returns all devices that the node lists, and also the devices at the given paths. It returns nil if there
// are no paths.
func devicesAt(n hook.Node, paths []string) map[string]lifecycle.Device {
	if len(paths) == 0 {
		return nil
	}
	all := maps.Clone(n.Host().Devices)
	if all == nil {
		all = map[string]lifecycle.Device{}
	}
	// Host can lack devices of a real node, so search for each path. The Host of a recorded node has all known devices.
	if n, ok := n.(node); ok && n.deviceAt != nil {
		for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
			if d, ok := n.deviceAt(path); ok {
				all[path] = d
			}
		}
	}
	return all
}
