package agent

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// policyOf translates a valid configuration for this machine. Errors name the
// configuration key.
func policyOf(c config.Config, m *topology.Machine) (engine.Policy, error) {
	p := engine.Policy{
		Strict: c.Strict, Dialects: c.Dialects, Place: c.Hooks.CPUSet.Enabled,
		UnlabelledShared: c.Hooks.CPUSet.Unlabelled == "shared",
		ReclaimedByNUMA:  c.Hooks.CPUSet.ReclaimedByNUMA,
		Pools:            placement.Pools{Online: m.Online()},
		Rules:            rulesOf(c.Authorisation),
	}
	p.Fatal = make(map[string]bool, len(c.FailurePolicy.Hooks))
	for _, name := range c.FailurePolicy.Hooks {
		p.Fatal[name] = true
	}
	for _, list := range []struct {
		key  string
		text string
		into *topology.Set
	}{
		{"pools.reserved", c.Pools.Reserved, &p.Pools.Reserved},
		{"pools.shared", c.Pools.Shared, &p.Pools.Shared},
		{"pools.reclaimed", c.Pools.Reclaimed, &p.Pools.Reclaimed},
		{"pools.system", c.Pools.System, &p.Pools.System},
	} {
		var err error
		if *list.into, err = m.ParseCPUs(list.text); err != nil {
			return p, fmt.Errorf("%s: %w", list.key, err)
		}
	}
	rest := p.Pools.Online.Minus(p.Pools.Reserved)
	if rest.Empty() {
		return p, fmt.Errorf("pools.reserved: %s leaves no CPU of %s", c.Pools.Reserved, m.Format(m.Online()))
	}
	if p.Pools.Shared.Empty() {
		p.Pools.Shared = rest
	}
	if p.Pools.Reclaimed.Empty() {
		p.Pools.Reclaimed = rest
	}
	if c.Hooks.CPUSet.Enabled {
		p.Hooks = append(p.Hooks, hook.CPUSet{UnsetQuota: c.Hooks.CPUSet.UnsetQuota})
	}
	if c.Hooks.Batch.Enabled {
		p.Hooks = append(p.Hooks, hook.Batch{})
	}
	if c.Hooks.GPU.Enabled {
		p.Hooks = append(p.Hooks, hook.GPU{HAMiLibrary: c.Hooks.GPU.HAMiLibrary})
	}
	return p, nil
}

// rulesOf translates the authorisation rules.
func rulesOf(all []config.Rule) intent.Rules {
	rules := make(intent.Rules, len(all))
	for i, a := range all {
		rules[i] = intent.Rule{
			Namespaces: a.Namespaces, Decision: intent.Decision(a.Decision), MostCPUs: a.MostCPUs,
			Name: fmt.Sprintf("rule %d", i+1),
		}
		for _, k := range a.Kinds {
			rules[i].Kinds = append(rules[i].Kinds, intent.Kind(k))
		}
	}
	return rules
}

// tuning translates what concerns the conductor itself. Names are validated
// with the configuration.
func tuning(c config.Config) conductor.Tuning {
	t := conductor.Tuning{Pace: c.NRI.Pace(), Fail: c.FailurePolicy.Agent == "fail"}
	for _, name := range c.NRI.Cede {
		var f lifecycle.Field
		if f.UnmarshalText([]byte(name)) == nil {
			t.Ceded = append(t.Ceded, f)
		}
	}
	return t
}
