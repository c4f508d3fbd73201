package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/balloons/pick"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/claims"
	"github.com/trimtab/trimtab/internal/placement/kubelet"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy makes the policy of an agent with the given options. The options must have a machine and a tree.
func Policy(o Options) (engine.Policy, error) {
	return policyOf(o.Config, o.Machine, nodeOf(o))
}

// policyOf makes the policy of a valid configuration for a machine and a node. Errors name the configuration key.
func policyOf(c config.Config, m *topology.Machine, n node) (engine.Policy, error) {
	return policyFor(c, m, n, n.namespaces.Labels())
}

// policyFor makes the policy of a valid configuration for a machine and a hook.Node, such as the node of a recording.
// The parameter labels has the labels of the node's namespaces.
func policyFor(c config.Config, m *topology.Machine, n hook.Node, labels namespaces.Labels) (engine.Policy, error) {
	p := engine.Policy{
		Strict: c.Strict, Dialects: c.Dialects, PlacementOn: c.Hooks.CPUSet.Enabled,
		Placement: placementOf(c, m), Rules: rulesOf(c.Authorization, labels),
	}
	p.FatalHooks = make(map[string]bool, len(c.FailurePolicy.Hooks))
	for _, name := range c.FailurePolicy.Hooks {
		p.FatalHooks[name] = true
	}
	var err error
	if p.Pools, err = poolsOf(c, m); err != nil {
		return p, err
	}
	if p.Topology, err = topologyOf(c.TopologyManager, m); err != nil {
		return p, err
	}
	p.Hooks, err = c.Hooks.Hooks(n)
	if err == nil {
		err = addRules(&p, c, labels, factsForRules(n))
	}
	if err == nil {
		err = checkBalloons(c, m, p.Pools)
	}
	if err != nil {
		return p, err
	}
	terms := p.Placement.Terms(m, placement.Subject{Intent: &intent.Pod{}})
	p.Serving = &intent.ServingSettings{Policy: c.Placement.Policy, KubeletOwnsCPUs: terms.NoGrantReason != nil}
	for _, h := range p.Hooks {
		p.Serving.Hooks = append(p.Serving.Hooks, h.Info().Name)
	}
	return p, err
}

// poolsOf returns the pools of a valid configuration on a machine.
func poolsOf(c config.Config, m *topology.Machine) (placement.Pools, error) {
	p := placement.Pools{
		Online: m.Online(), UnlabelledShared: c.Hooks.CPUSet.Unlabelled == "shared", ReclaimedByNUMA: c.Hooks.CPUSet.ReclaimedByNUMA,
		HardReserved: c.Pools.HardReserved,
	}
	for _, list := range []struct {
		key  string
		text string
		into *topology.Set
	}{
		{"pools.reserved", c.Pools.Reserved, &p.Reserved},
		{"pools.shared", c.Pools.Shared, &p.Shared},
		{"pools.reclaimed", c.Pools.Reclaimed, &p.Reclaimed},
		{"pools.system", c.Pools.System, &p.System},
	} {
		var err error
		if *list.into, err = onlineCPUs(m, list.text); err != nil {
			return p, fmt.Errorf("%s: %w", list.key, err)
		}
	}
	rest := p.Online.Minus(p.Reserved)
	if rest.Empty() {
		return p, fmt.Errorf("pools.reserved: %q reserves all online CPUs (%s): leave at least one CPU for pods", c.Pools.Reserved, m.Format(m.Online()))
	}
	if p.Shared.Empty() {
		p.Shared = rest
	}
	if p.Reclaimed.Empty() {
		p.Reclaimed = rest
	}
	return p, nil
}

// checkBalloons checks whether a machine has enough CPUs for the balloons of a configuration, and has the devices that
// the balloons name.
func checkBalloons(c config.Config, m *topology.Machine, p placement.Pools) error {
	if c.Placement.Policy != "balloons" {
		return nil
	}
	if wrong := balloons.CheckOnMachine(m, p.Shared.Union(p.Reserved), c.Placement.Balloons); len(wrong) > 0 {
		return fmt.Errorf("placement.balloons.%s: %s", wrong[0].Path, wrong[0].Text)
	}
	return nil
}

// CheckMachine returns an error if an agent with a valid configuration cannot start on a machine because of its CPUs,
// NUMA nodes or devices. The error begins with the configuration key.
func CheckMachine(c config.Config, m *topology.Machine) error {
	p, err := poolsOf(c, m)
	if err == nil {
		_, err = topologyOf(c.TopologyManager, m)
	}
	if err == nil {
		err = checkBalloons(c, m, p)
	}
	return err
}

// placementOf makes the placement policy that the configuration names.
func placementOf(all config.Config, m *topology.Machine) placement.Policy {
	var p placement.Policy = none.Policy{}
	if c := all.Placement; c.Policy == "pools" {
		sizing := pools.NewSizing(m)
		sizing.Expand, sizing.ShareUnused, sizing.MinReclaimed = c.Reclaim == "overlap", c.Reclaim == "together", c.ReclaimedCPUs
		p = &pools.Policy{
			Tree: choose.NewTree(m), Sizing: sizing, LendLSR: c.LendLSR, PreferEmptiest: c.Spread, NearDevices: c.NearDevices, CoreKind: intent.CoreTypes()[c.PreferCoreType],
			Isolated:  map[string]pools.IsolatedCPUs{"prefer": pools.IsolatedPreferred, "avoid": pools.IsolatedAvoided}[c.IsolatedCPUs],
			WholeCPUs: map[string]pools.WholeCPUs{"guaranteed": pools.WholeGuaranteed, "any": pools.WholeAnywhere}[c.WholeCPUs],
		}
	}
	if all.Placement.Policy == "balloons" {
		p = balloons.New(m, pick.New(m), all.Placement.Balloons)
	}
	if c := all.Placement.TopologyAware; all.Placement.Policy == "topology-aware" {
		p = topologyaware.New(m, topologyaware.Options{
			PinMemory: c.PinMemory, PreferSharedCPUs: c.PreferSharedCPUs, PreferIsolatedCPUs: c.PreferIsolatedCPUs,
			ColocatePods: c.ColocatePods, ColocateNamespaces: c.ColocateNamespaces,
			ReservedPoolNamespaces: c.ReservedPoolNamespaces, UnlimitedBurstable: topologyaware.Levels()[c.UnlimitedBurstable],
			SchedulingClasses: c.SchedulingClasses, NamespaceSchedulingClasses: c.NamespaceSchedulingClasses, PodQoSSchedulingClasses: c.PodQoSSchedulingClasses,
		})
	}
	switch all.Authority {
	case "kubelet":
		p = kubelet.Policy{Policy: p}
	case "dra":
		p = claims.Policy{Policy: p}
	}
	return p
}

// onlineCPUs parses a list of CPUs and leaves out those that are offline now.
func onlineCPUs(m *topology.Machine, list string) (topology.Set, error) {
	ids, err := topology.ParseList(list)
	if err != nil {
		return topology.Set{}, err
	}
	ids = slices.DeleteFunc(ids, func(id int) bool { return slices.Contains(m.Offline, id) })
	return m.ParseCPUs(topology.FormatList(ids))
}

// rulesOf converts the authorization rules of a configuration. It replaces their label selectors by the namespaces
// whose known labels match.
func rulesOf(all []config.Rule, known namespaces.Labels) intent.Rules {
	rules := make(intent.Rules, len(all))
	for i, a := range all {
		rules[i] = intent.Rule{
			Namespaces: selectedNamespaces(a, known), Decision: intent.Decision(a.Decision), MostCPUs: a.MostCPUs,
			Name: fmt.Sprintf("rule %d", i+1),
		}
		for _, k := range a.Kinds {
			rules[i].Kinds = append(rules[i].Kinds, intent.Kind(k))
		}
	}
	return rules
}

// conductorTuning returns the conductor's settings from a valid configuration.
func conductorTuning(c config.Config) conductor.Tuning {
	t := conductor.Tuning{Pace: c.NRI.UpdateInterval.Duration(), FailClosed: c.FailurePolicy.Agent == "fail"}
	t.Demotion = demotionOptions(c)
	t.ConflictLimit = keeper.ConflictLimit{MaxRepairs: c.Keeper.GiveUpAfter, Window: time.Minute}
	for _, name := range c.NRI.Cede {
		var f lifecycle.Field
		if f.UnmarshalText([]byte(name)) == nil {
			t.Ceded = append(t.Ceded, f)
		}
	}
	return t
}

// topologyOf returns the topology manager's settings from a valid configuration. It returns an error if the machine has
// too many NUMA nodes.
func topologyOf(c config.TopologyManager, m *topology.Machine) (engine.TopologyManager, error) {
	t := engine.TopologyManager{
		Policy: numahints.Policy(c.Policy), PreferClosest: c.PreferClosest, AlignedResources: c.Align, PodScope: c.Scope == "pod", RefuseUnaligned: c.Refusal == "fail",
	}
	if nodes := len(m.Nodes); t.Policy != numahints.None && nodes > c.MaxNodes {
		return t, fmt.Errorf("topologyManager.policy: the machine has %d NUMA nodes, more than topologyManager.maxAllowableNUMANodes (%d): raise that limit, or set the policy none", nodes, c.MaxNodes)
	}
	return t, nil
}
