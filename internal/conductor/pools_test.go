package conductor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
)

// dress is what a pod is to the policy pools.
type dress struct {
	label, level, cpu, memory string
	shares                    uint64 // of a container; the limit is the same where whole
}

const (
	bound     = `{"numa_binding":"true"}`
	exclusive = `{"numa_binding":"true","numa_exclusive":"true"}`
)

// wardrobe is every class and enhancement there is.
var wardrobe = []dress{
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
	mo := newModel(t, v, f)
	mo.policy.Pools.Reserved = string2set("0").set(mo)
	mo.policy.Pools.Shared = mo.machine.Online().Minus(mo.policy.Pools.Reserved)
	mo.policy.Pools.Reclaimed = mo.policy.Pools.Shared
	mo.policy.Pools.Sizing = placement.NewSizing(mo.machine)
	mo.policy.Pools.Sizing.Expand = seed%3 == 0
	mo.policy.Choosing = &engine.Choosing{Tree: choose.NewTree(mo.machine), Whole: engine.WholeGuaranteed, Lend: seed%2 == 0, Roomy: seed%5 == 0}
	mo.dress = func(p *modelPod) {
		d := wardrobe[(seed+mo.n*7)%len(wardrobe)]
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
		if seed%4 > 0 { // some runtimes do not tell the pod's sum
			p.Resources = clone(&p.wants)
		}
	}
	mo.con = nil
	mo.boot()
	return mo
}

// resize changes how pools are sized and whether CPUs are lent.
func (mo *model) resize(s step) {
	sizing, choosing := *mo.policy.Pools.Sizing, *mo.policy.Choosing
	sizing.Expand, sizing.Least = s.A%3 == 0, 1+s.B%3
	mo.lending = choosing.Lend // until all is settled
	choosing.Lend = s.A%2 == 0
	mo.policy.Pools.Sizing, mo.policy.Choosing = &sizing, &choosing
}

// checkGrants checks I1 for whoever chose the CPUs: what the agent says a
// container owns, and the kernel shows for it, is in no other pod's cpuset, but
// for what is lent to reclaimed pods.
func (mo *model) checkGrants(when string, all []*modelCtr) {
	grants := mo.con.Status().CPUs.Grants
	for _, owner := range all {
		if !owner.started {
			continue
		}
		for _, g := range grants {
			if g.Pod != "default/"+owner.pod.Name || g.Container != owner.Name || g.CPUs != mo.effective(owner) || mo.taking != nil && mo.taking[owner.dir()] != g.CPUs {
				continue
			}
			lent := (mo.policy.Choosing.Lend || mo.lending) && owner.pod.Labels[intent.KoordQoSClass] == "LSR"
			for _, c := range all {
				reclaimed := isReclaimed(c.pod)
				// After failed creations nothing is claimed: it is narrowed when it starts.
				waits := !c.started && c.Resources.CPU.CPUs == ""
				if c.pod == owner.pod || lent && reclaimed || waits {
					continue
				}
				if shared := intersect(idsOf(g.CPUs), idsOf(mo.effective(c))); len(shared) > 0 {
					mo.wrong("I1: %s: %s has CPUs %v of %s", when, c.ID, shared, owner.ID)
				}
			}
		}
	}
}

// isReclaimed says of which class a pod is, where dialects disagree by the first.
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

// TestPoolsInvariants plays random histories under the policy pools: I1 and I2
// at every write, I3, and I4 at every restart, which may move nothing.
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
			events, _ := mo.con.Events(t.Context(), 0)
			seen = append(seen, fmt.Sprintf("%+v %+v", events, mo.cpusets()))
		}
		if len(slices.Compact(seen)) != 1 {
			rt.Fatalf("two runs differ:\n%s\n%s", seen[0], seen[1])
		}
	})
}
