package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/kubelet"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is what an agent made of these options would give its engine. The
// options must have a machine and a tree.
func Policy(o Options) (engine.Policy, error) {
	return policyOf(o.Config, o.Machine, nodeOf(o))
}

// policyOf translates a valid configuration for this machine. Errors name the
// configuration key.
func policyOf(c config.Config, m *topology.Machine, n node) (engine.Policy, error) {
	p := engine.Policy{
		Strict: c.Strict, Dialects: c.Dialects, Place: c.Hooks.CPUSet.Enabled,
		Pools: placement.Pools{
			Online: m.Online(), UnlabelledShared: c.Hooks.CPUSet.Unlabelled == "shared", ReclaimedByNUMA: c.Hooks.CPUSet.ReclaimedByNUMA,
		},
		Placement: placementOf(c, m), Rules: rulesOf(c.Authorisation),
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
		if *list.into, err = present(m, list.text); err != nil {
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
	p.Pools.Hard = c.Pools.HardReserved
	var err error
	p.Hooks, err = hooksOf(c.Hooks, n)
	terms := p.Placement.Terms(m, placement.Subject{Intent: &intent.Pod{}})
	p.Serving = &intent.Serving{Chooses: terms.Chooses, KubeletOwns: terms.Elsewhere != nil}
	for _, h := range p.Hooks {
		p.Serving.Hooks = append(p.Serving.Hooks, h.Info().Name)
	}
	return p, err
}

// placementOf is the one place where a placement policy is chosen.
func placementOf(all config.Config, m *topology.Machine) placement.Policy {
	var p placement.Policy = none.Policy{}
	if c := all.Placement; c.Policy == "pools" {
		sizing := pools.NewSizing(m)
		sizing.Expand, sizing.Together, sizing.Least = c.Reclaim == "overlap", c.Reclaim == "together", c.ReclaimedCPUs
		p = &pools.Policy{
			Tree: choose.NewTree(m), Sizing: sizing, Lend: c.LendLSR, Roomy: c.Spread, NearDevices: c.NearDevices, CoreKind: intent.CoreTypes()[c.PreferCoreType],
			Isolated: map[string]pools.IsolatedCPUs{"prefer": pools.IsolatedPreferred, "avoid": pools.IsolatedAvoided}[c.IsolatedCPUs],
			Whole:    map[string]pools.WholeCPUs{"guaranteed": pools.WholeGuaranteed, "any": pools.WholeAnywhere}[c.WholeCPUs],
		}
	}
	if all.Authority == "kubelet" {
		p = kubelet.Policy{Policy: p}
	}
	return p
}

// present reads a list of CPUs, without those that are there and offline now.
func present(m *topology.Machine, list string) (topology.Set, error) {
	ids, err := topology.ParseList(list)
	if err != nil {
		return topology.Set{}, err
	}
	ids = slices.DeleteFunc(ids, func(id int) bool { return slices.Contains(m.Offline, id) })
	return m.ParseCPUs(topology.FormatList(ids))
}

// hooksOf makes the hooks that are switched on.
func hooksOf(c config.Hooks, n node) ([]hook.Hook, error) {
	var hooks []hook.Hook
	if c.CPUSet.Enabled {
		hooks = append(hooks, hook.CPUSet{UnsetQuota: c.CPUSet.UnsetQuota})
	}
	if c.Batch.Enabled {
		hooks = append(hooks, hook.Batch{})
	}
	if c.Normalization.Enabled {
		ratio, err := hook.ParseRatio(c.Normalization.Ratio)
		if err != nil {
			return nil, fmt.Errorf("hooks.normalization.ratio: %w", err)
		}
		hooks = append(hooks, hook.Normalization{Ratio: ratio})
	}
	if g := c.GroupIdentity; g.Enabled {
		hooks = append(hooks, hook.GroupIdentity{
			LSR: g.LSR, LS: g.LS, BE: g.BE, BVT: n.probe("cpu.bvt_warp_ns").Support,
			Fallback: hook.FallbackOf(g.Fallback),
		})
	}
	if c.OOMScore.Enabled {
		hooks = append(hooks, hook.OOMScore{})
	}
	if c.GPU.Enabled {
		hooks = append(hooks, gpu(c.GPU, n))
	}
	if c.RDMA.Enabled {
		hooks = append(hooks, hook.RDMA{Host: n.host()})
	}
	if c.Hugepages.Enabled {
		hooks = append(hooks, hook.Hugepages{Sizes: n.host().HugePages, Controller: n.probe("hugetlb")})
	}
	if c.BlockIO.Enabled {
		hooks = append(hooks, blockIO(c.BlockIO, n))
	}
	if c.RDT.Enabled {
		hooks = append(hooks, rdt(c.RDT, n))
	}
	if c.CoreSched.Enabled {
		if c.GroupIdentity.Enabled && n.probe("cpu.bvt_warp_ns").Support == lifecycle.Supported {
			return nil, errors.New("hooks.coreSched: cannot be on together with hooks.groupIdentity on a kernel that has group identities; switch one of them off")
		}
		hooks = append(hooks, hook.CoreSched{Found: n.probe("coreSched")})
	}
	if p := c.Preemption; p.Enabled {
		hooks = append(hooks, preemption(p, n))
	}
	if c.Burst.Enabled {
		hooks = append(hooks, hook.Burst{Found: n.probe("cpu.max.burst")})
	}
	if c.Partition.Enabled {
		hooks = append(hooks, hook.Partition{Found: n.probe(hook.ExclusiveFile)})
	}
	return withCPUEnv(hooks, c.CPUEnv)
}

func gpu(c config.GPUHook, n node) hook.Hook {
	lock, why := n.lockDirectory(c)
	return hook.GPU{
		HAMiLibrary: c.HAMiLibrary, HAMiLock: lock, NoLock: why, ByUUID: c.Name == "uuid", Nodes: n.host().Devices,
		Devices: map[string]hook.GPUDevices{"nodes": hook.ByNode, "cdi": hook.ByCDI}[c.Devices],
	}
}

// withCPUEnv adds the hook that goes by what all others decided.
func withCPUEnv(hooks []hook.Hook, c config.CPUEnvHook) ([]hook.Hook, error) {
	if !c.Enabled {
		return hooks, nil
	}
	h := hook.CPUEnv{Usual: make([]intent.CPUVariable, len(c.Variables))}
	for i, text := range c.Variables {
		v, err := intent.ParseCPUVariable(text)
		if err != nil {
			return nil, fmt.Errorf("hooks.cpuEnv.variables: %w", err)
		}
		h.Usual[i] = v
	}
	return append(hooks, h), nil
}

func rdt(c config.RDTHook, n node) hook.RDT {
	return hook.RDT{
		Measure: c.Measure, Found: n.probe(resctrl.Mounted),
		Shares: hook.ByClass[string]{
			LSR: shares(c.LSRCache, c.LSRBandwidth), LS: shares(c.LSCache, c.LSBandwidth), BE: shares(c.BECache, c.BEBandwidth),
		},
	}
}

// shares are a class's, "" where it has everything.
func shares(cache string, bandwidth int) string {
	var parts []string
	if cache != "0-100" {
		parts = append(parts, "L3 "+cache)
	}
	if bandwidth != 100 {
		parts = append(parts, fmt.Sprintf("MB %d", bandwidth))
	}
	return strings.Join(parts, ", ")
}

func preemption(c config.PreemptionHook, n node) hook.Preemption {
	h := hook.Preemption{
		Yield: hook.YieldOf(c.Yield), Kernel: map[string]lifecycle.Support{},
		High: c.MemoryHigh, Low: c.MemoryLow, Min: c.MemoryMin, KillTogether: c.KillTogether,
	}
	for _, file := range hook.PreemptionFiles() {
		h.Kernel[file] = n.probe(file).Support
	}
	return h
}

func blockIO(c config.BlockIOHook, n node) hook.BlockIO {
	h := hook.BlockIO{
		Weights: hook.ByClass[int]{LSR: c.LSRWeight, LS: c.LSWeight, BE: c.BEWeight},
		Classes: hook.ByClass[string]{LSR: c.LSRClass, LS: c.LSClass, BE: c.BEClass},
		PodWide: n.tree == nil || n.tree.Version == cgroup.V2, Disks: n.host().Disks,
	}
	for _, file := range []string{"io.weight", "io.bfq.weight"} {
		if h.WeightFile == "" && n.probe(file).Support != lifecycle.NotSupported {
			h.WeightFile = file
		}
	}
	return h
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
	t.ConflictLimit = keeper.ConflictLimit{Limit: c.Keeper.GiveUpAfter, Per: time.Minute}
	for _, name := range c.NRI.Cede {
		var f lifecycle.Field
		if f.UnmarshalText([]byte(name)) == nil {
			t.Ceded = append(t.Ceded, f)
		}
	}
	return t
}
