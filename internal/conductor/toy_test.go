package conductor_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/topology"
)

// toy is a small placement policy: dedicated containers own the highest free CPUs, and all
// others share the rest. Its pools are those of the policy none.
type toy struct{ none.Policy }

// Terms lets pods of class dedicated own CPUs.
func (toy) Terms(_ *topology.Machine, s placement.Subject) placement.Terms {
	t := placement.Terms{ChoosesCPUsOrMemory: true}
	if s.Intent.Class.V == intent.Dedicated {
		t.CountBasis, t.Key = placement.CountByResources, s.Intent.Class.Key
	}
	return t
}

// Choose takes the highest CPUs, first those of its pod, and gives up the lowest.
func (toy) Choose(v placement.View, _ placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	a := placement.Assignment{Why: "the highest CPUs that are free"}
	if w.N <= w.OwnedCPUs.Len() { // the container owns CPUs and should have fewer
		a.CPUs = highest(topology.Set{}, w.UsableCPUs, w.N)
		return a, nil
	}
	missing := w.N - w.OwnedCPUs.Len()
	a.CPUs = highest(w.UsableCPUs, w.TakenOverCPUs, missing)
	a.CPUs = highest(a.CPUs, v.FreeCPUs, missing-a.CPUs.Minus(w.UsableCPUs).Len())
	if has := a.CPUs.Minus(w.UsableCPUs).Len(); has < missing {
		return a, fmt.Errorf("%d CPUs are requested, and %d are free", missing, has)
	}
	return a, nil
}

// highest adds the n highest CPUs of a set to another.
func highest(to, from topology.Set, n int) topology.Set {
	all := from.Minus(to).Members()
	for i := len(all) - 1; i >= 0 && n > 0; i, n = i-1, n-1 {
		to.Add(all[i])
	}
	return to
}

// newToy is a model under the toy policy, with every kind of pod.
func newToy(t testing.TB, v cgroup.Version, f faults, seed int) *model {
	t.Helper()
	mo := newPooled(t, v, f, seed)
	mo.policy.Placement = toy{}
	mo.con = nil
	mo.boot()
	return mo
}

// TestToyPolicy checks that it does what it says, and that a policy needs only one package.
func TestToyPolicy(t *testing.T) {
	t.Parallel()
	mo := newToy(t, cgroup.V2, faults{}, 1)
	dedicated := func(n int) *modelCtr {
		t.Helper()
		mo.dress = func(p *modelPod) {
			p.Annotations = map[string]string{intent.KatalystQoSLevel: "dedicated_cores"}
			p.wants.CPU.Shares.V, p.wants.CPU.Shares.Set = uint64(n*1024), true
			p.Resources = clone(&p.wants)
		}
		c := mo.create(mo.runPod("", "", ""), "a")
		mo.start(c)
		return c
	}
	for i, want := range []string{"6-7", "5"} {
		c := dedicated(2 - i)
		told, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
		if len(told) != 1 || told[0].CPUs != want || told[0].CPUGroupWhy != "chosen: the highest CPUs that are free" {
			t.Errorf("%s: %+v, want CPUs %s", c.ID, told, want)
		}
	}
	if len(mo.broken) > 0 {
		t.Errorf("%v", mo.broken)
	}
}

// TestToyInvariants plays the histories of the policy pools under the toy policy: it chooses
// other CPUs, and the engine does everything else.
func TestToyInvariants(t *testing.T) {
	t.Parallel()
	for name, history := range map[string]*rapid.Generator[[]step]{"histories": steps(), "resizes": resizes(4, 8, 13)} {
		for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			t.Run(name+" "+v.String(), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(rt *rapid.T) {
					mo := newToy(t, v, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
					mo.proxied, mo.once = rapid.Bool().Draw(rt, "proxied"), name == "resizes"
					play(mo, history.Draw(rt, "history"))
					if len(mo.broken) > 0 {
						rt.Fatalf("%v", mo.broken)
					}
				})
			})
		}
	}
}
