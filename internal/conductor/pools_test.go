package conductor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/kubelet"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// dress has the properties of a pod for the policy pools.
type dress struct {
	label, level, cpu, memory string
	shares                    uint64 // of a container; the limit is the same if whole
}

const (
	bound     = `{"numa_binding":"true"}`
	exclusive = `{"numa_binding":"true","numa_exclusive":"true"}`
)

// wardrobe has every class and enhancement.
var podKinds = []dress{
	{}, {shares: 1024}, {shares: 2048}, {shares: 512},
	{label: "LS", shares: 1536}, {label: "LSR", shares: 1024}, {label: "LSR", shares: 2048}, {label: "LSE", shares: 2048}, {label: "BE"},
	{level: "shared", shares: 1024}, {level: "shared", shares: 3072}, {level: "shared", shares: 600, cpu: `{"cpuset_pool":"a"}`},
	{level: "shared", shares: 1100, cpu: `{"cpuset_pool":"b"}`}, {level: "shared", shares: 1024, memory: bound},
	{level: "shared", shares: 512, memory: bound, cpu: `{"numa_share":"false"}`},
	{level: "reclaimed"}, {level: "reclaimed", memory: bound}, {level: "system", cpu: `{"cpuset_pool":"reserve"}`}, {level: "system"},
	{level: "dedicated", shares: 1024}, {level: "dedicated", shares: 2048, memory: bound}, {level: "dedicated", shares: 2048, memory: exclusive},
	{level: "dedicated", shares: 2048, memory: bound, cpu: `{"full_pcpus_pairing":"true"}`},
	{level: "dedicated", shares: 2048, memory: bound, cpu: `{"distribute_evenly_across_numa":"true","katalyst.kubewharf.io/numa_number":"2"}`},
	{level: "dedicated", shares: 9216}, {level: "dedicated"},
}

// newPooled is a model under the policy pools.
func newPooled(t testing.TB, v cgroup.Version, f faults, seed int) *model {
	t.Helper()
	return newPooledOn(t, eight(t), v, f, seed)
}

func newPooledOn(t testing.TB, m *topology.Machine, v cgroup.Version, f faults, seed int) *model {
	t.Helper()
	mo := newModelOn(t, m, v, f)
	mo.policy.Pools.Reserved = mo.reserved()
	mo.policy.Pools.Shared = mo.machine.Online().Minus(mo.policy.Pools.Reserved)
	mo.policy.Pools.Reclaimed = mo.policy.Pools.Shared
	sizing := pools.NewSizing(mo.machine)
	sizing.Expand, sizing.ShareUnused = seed%3 == 0, seed%3 == 1
	mo.policy.Placement = &pools.Policy{
		Tree: choose.NewTree(mo.machine), Sizing: sizing, WholeCPUs: pools.WholeGuaranteed, LendLSR: seed%2 == 0, PreferEmptiest: seed%5 == 0,
	}
	mo.dress = func(p *modelPod) {
		d := podKinds[(seed+mo.n*7)%len(podKinds)]
		p.Labels, p.Annotations, p.asked = map[string]string{}, map[string]string{}, ""
		for key, text := range map[string]string{
			intent.KatalystQoSLevel: strings.TrimPrefix(d.level+"_cores", "_cores"), intent.KatalystCPU: d.cpu, intent.KatalystMemory: d.memory,
		} {
			if text != "" {
				p.Annotations[key] = text
			}
		}
		if d.label != "" {
			p.Labels[intent.KoordQoSClass] = d.label
		}
		p.wants.CPU.Shares = lifecycle.Some(max(d.shares, 2))
		if d.shares >= 1024 && d.shares%1024 == 0 {
			p.wants.CPU.Quota = lifecycle.Some(int64(d.shares / 1024 * 100000))
		}
		if (seed+mo.n)%3 == 0 { // some need more than a NUMA node has
			p.wants.Memory.Limit = lifecycle.Some(int64(1+mo.n%6) << 28)
		}
		if seed%4 > 0 { // some runtimes do not report the pod's sum
			p.Resources = clone(&p.wants)
		}
	}
	mo.con = nil
	mo.boot()
	return mo
}

// resize changes the sizing of pools and the lending of CPUs.
func (mo *model) resize(s step) {
	mo.lending = mo.lends() // until all is applied
	mo.choosing(func(p *pools.Policy) {
		p.Sizing.Expand, p.Sizing.ShareUnused, p.Sizing.MinReclaimed, p.LendLSR = s.A%3 == 0, s.A%3 == 1, 1+s.B%3, s.A%2 == 0
	})
}

// choosing changes a copy of the policy pools, if that is used.
func (mo *model) choosing(change func(*pools.Policy)) {
	p := mo.pools()
	if p == nil {
		return
	}
	now, sizing := *p, *p.Sizing
	now.Sizing = &sizing
	change(&now)
	if mo.policy.KubeletDecidesCPUs() {
		mo.policy.Placement = kubelet.Policy{Policy: &now}
	} else {
		mo.policy.Placement = &now
	}
}

// pools is the policy pools; nil under another policy.
func (mo *model) pools() *pools.Policy {
	all := mo.policy.Placement
	if k, is := all.(kubelet.Policy); is {
		all = k.Policy
	}
	p, _ := all.(*pools.Policy)
	return p
}

// checkGrants checks I1 for chosen CPUs: CPUs that a container owns by the agent's report and
// by the kernel are in no other pod's cpuset, except those lent to reclaimed pods.
func (mo *model) checkGrants(when string, all []*modelCtr) {
	mo.checkHeld(when, all)
	grants := nodeview.Status(mo.con).CPUs.Grants
	for _, owner := range all {
		if !owner.started {
			continue
		}
		for _, g := range grants {
			if g.Pod != "default/"+owner.pod.Name || g.Container != owner.Name || g.CPUs != mo.effective(owner) || mo.taking != nil && mo.taking[owner.dir()] != g.CPUs ||
				mo.another(owner, g.Pod+"/"+g.Container+" "+g.CPUs) {
				continue
			}
			lent := (mo.lends() || mo.lending) && owner.pod.Labels[intent.KoordQoSClass] == "LSR"
			for _, c := range all {
				reclaimed := isReclaimed(c.pod)
				// Nothing runs yet in a cgroup that the runtime is still setting up. After
				// failed creations its spec has no cpuset, and after another configuration an
				// old one. It is narrowed at the start.
				if c.pod == owner.pod || lent && reclaimed || !c.started {
					continue
				}
				if shared := intersect(idsOf(g.CPUs), idsOf(mo.effective(c))); len(shared) > 0 {
					mo.wrong("I1: %s: %s has CPUs %v of %s", when, c.ID, shared, owner.ID)
				}
			}
		}
	}
}

// resizeOwner is an in-place resize to whole CPUs. Not every runtime reports the pod's sum;
// others report it before or after the container's resize.
func (mo *model) resizeOwner(c *modelCtr, s step) {
	if mo.unlisted && c.Annotations == nil {
		return // without record and checkpoint it is new to the agent, which grants its current request
	}
	if mo.unsaved && !c.started {
		// A kubelet resizes only running containers. For others, neither copy, record nor
		// kernel show what they own in the moment before their copy follows the resize.
		return
	}
	n := int64(1 + s.B%6)
	var r lifecycle.Resources
	r.CPU.Shares, r.CPU.Quota = lifecycle.Some(uint64(n*1024)), lifecycle.Some(n*100000)
	before, counted := mo.ownedBy(c), s.A%3 > 0 || c.pod.Resources == nil
	mo.held = map[string]string{}
	for _, o := range c.pod.ctrs {
		if own := mo.ownedBy(o); own != "" && o.started && !o.ended && own == mo.effective(o) {
			mo.held[o.dir()] = own
		}
	}
	mo.foreign = mo.beside()
	c.pod.wants = r
	if s.A%3 == 1 {
		mo.updatePod(c.pod, r)
	}
	mo.update(c, r)
	if s.A%3 == 2 {
		// Both resizes add or remove CPUs in place. For a pod with an ended container, the
		// first may remove CPUs that the second adds again as other ones.
		before = mo.checkInPlace(c, before, int(n))
		mo.updatePod(c.pod, r)
	}
	mo.foreign, mo.held = false, nil
	mo.checkResized(c, before, int(n), counted)
}

// updatePod is UpdatePodSandboxResources: the runtime sends the old pod and the new request.
func (mo *model) updatePod(p *modelPod, r lifecycle.Resources) {
	if p.Resources == nil {
		return
	}
	mo.handle(lifecycle.Event{Kind: lifecycle.UpdatePodSandbox, Pod: clone(&p.Pod), Requested: clone(&r)})
	p.Resources = clone(&r)
}

// runs reports whether a container of that name has started.
func (p *modelPod) runs(name string) bool {
	return slices.ContainsFunc(p.ctrs, func(c *modelCtr) bool { return c.Name == name && c.started && !c.ended })
}

// ownedBy returns the CPUs that the agent reports as owned by a container.
func (mo *model) ownedBy(c *modelCtr) string {
	for _, g := range nodeview.Status(mo.con).CPUs.Grants {
		if g.Pod == "default/"+c.pod.Name && g.Container == c.Name {
			return g.CPUs
		}
	}
	return ""
}

// checkInPlace checks that a resize added or removed CPUs in place, or did nothing. It returns
// the owned CPUs.
func (mo *model) checkInPlace(c *modelCtr, before string, n int) (after string) {
	after = mo.ownedBy(c)
	had, has := idsOf(before), idsOf(after)
	if both := intersect(had, has); before != "" && len(both) != min(len(had), len(has)) {
		mo.wrong("I4: a resize of %s to %d CPUs moved it from %s to %s", c.ID, n, before, after)
	}
	return after
}

// checkResized checks the result of a resize.
func (mo *model) checkResized(c *modelCtr, before string, n int, counted bool) {
	after := mo.checkInPlace(c, before, n)
	if before == "" || after == before {
		return
	}
	has := idsOf(after)
	if live := 0; counted {
		for _, o := range c.pod.ctrs {
			if !o.ended {
				live++
			}
		}
		if live == 1 && len(has) != n {
			mo.wrong("a resize of %s to %d CPUs took it from %s to %s", c.ID, n, before, after)
		}
	}
	if c.started && !c.ended && mo.effective(c) != after {
		mo.wrong("I3: %s owns %s after a resize, and the kernel shows %s", c.ID, after, mo.effective(c))
	}
}

// checkHeld checks that the CPUs of an owner before its resize belong to no other container
// while the kernel shows them.
func (mo *model) checkHeld(when string, all []*modelCtr) {
	for _, owner := range all {
		held, resizing := mo.held[owner.dir()]
		if !resizing || mo.effective(owner) != held {
			continue
		}
		lent := owner.pod.Labels[intent.KoordQoSClass] == "LSR" && mo.lends()
		for _, c := range all {
			if c.pod == owner.pod || !c.started || lent && isReclaimed(c.pod) {
				continue
			}
			if shared := intersect(idsOf(held), idsOf(mo.effective(c))); len(shared) > 0 {
				mo.wrong("I1: %s: %s has CPUs %v, which %s has not given up yet", when, c.ID, shared, owner.ID)
			}
		}
	}
}

// isReclaimed reports whether a pod's class is reclaimed by the first dialect that has one.
func isReclaimed(p *modelPod) bool {
	label, level := p.Labels[intent.KoordQoSClass], p.Annotations[intent.KatalystQoSLevel]
	switch {
	case label != "":
		return label == "BE"
	case level != "":
		return level == "reclaimed_cores"
	}
	return p.Annotations["volcano.sh/preemptable"] == "true"
}

// TestPoolsInvariants plays random histories under the policy pools: I1 and I2 hold at every
// write, then I3, and I4 at every restart.
func TestPoolsInvariants(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				mo := newPooled(t, v, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
				mo.proxied = rapid.Bool().Draw(rt, "proxied")
				play(mo, steps().Draw(rt, "history"))
				if len(mo.broken) > 0 {
					rt.Fatalf("%v", mo.broken)
				}
			})
		})
	}
}

// resizes draws histories that consist mostly of resizes.
func resizes(others ...int) *rapid.Generator[[]step] {
	kinds := append(others, 0, 0, 0, 7, 11, 11, 11, 11, 11, 11, 11)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.SampledFrom(kinds).Draw(t, "do"), rapid.IntRange(0, 99).Draw(t, "a"), rapid.IntRange(1, 99).Draw(t, "b")}
	}), 5, 60)
}

// TestResizes plays in-place resizes of owners among other events: no CPU is given away before
// it is free, and no restart moves a container.
func TestResizes(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				mo := newPooled(t, v, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
				mo.proxied, mo.once = rapid.Bool().Draw(rt, "proxied"), true
				play(mo, resizes(4, 8, 13).Draw(rt, "history"))
				if len(mo.broken) > 0 {
					rt.Fatalf("%v", mo.broken)
				}
			})
		})
	}
}

// TestRecoveredFromRecords is TestResizes with every checkpoint lost: records, runtime copies
// and the kernel show who owns what. No container ends, since only the checkpoint knows the
// CPUs of a pod without a live container. Pods have one container, since the model's runtime
// updates the copies of other containers late.
func TestRecoveredFromRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		mo := newPooled(t, cgroup.V2, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
		mo.once, mo.unlisted, mo.unsaved = true, true, true
		play(mo, resizes().Draw(rt, "history"))
		if len(mo.broken) > 0 {
			rt.Fatalf("%v", mo.broken)
		}
	})
}

// TestPoolsFaults shows that these checks can fail.
func TestPoolsFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults faults
		finds  string
	}{
		"others keep granted CPUs":  {faults{forgetShrink: true}, "I1"},
		"empty CPU list":            {faults{emptyCPUSet: true}, "I2"},
		"records are lost":          {faults{loseRecord: true}, "I4"},
		"a pod's end frees nothing": {faults{keepGrant: true}, "I4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range 300 {
				mo := newPooled(t, cgroup.V2, c.faults, seed)
				play(mo, steps().Example(seed))
				for _, b := range mo.broken {
					if strings.Contains(b, c.finds) {
						t.Logf("found after %d histories: %s", seed+1, b)
						return
					}
				}
			}
			t.Errorf("300 random histories did not notice the fault; %s is not checked", c.finds)
		})
	}
}

// TestPoolsAreDeterministic checks that equal histories give equal answers.
func TestPoolsAreDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		history, seed := steps().Draw(rt, "history"), rapid.IntRange(0, 199).Draw(rt, "seed")
		var seen []string
		for range 2 {
			mo := newPooled(t, cgroup.V2, faults{}, seed)
			play(mo, history)
			events, _ := mo.con.Journal().Since(0)
			seen = append(seen, fmt.Sprintf("%+v %+v", events, mo.cpusets()))
		}
		if len(slices.Compact(seen)) != 1 {
			rt.Fatalf("two runs differ:\n%s\n%s", seen[0], seen[1])
		}
	})
}

// lends reports whether CPUs of LSR pods are lent to reclaimed ones.
func (mo *model) lends() bool {
	p := mo.pools()
	return p != nil && p.LendLSR
}
