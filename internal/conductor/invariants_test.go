package conductor_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// step is one random action; the numbers choose its object.
type step struct {
	Do   int
	A, B int
}

// steps draws random histories of a node.
func steps() *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, 15).Draw(t, "do"), rapid.IntRange(0, 99).Draw(t, "a"), rapid.IntRange(0, 99).Draw(t, "b")}
	}), 5, 60)
}

var (
	someClasses = []string{"", "", "LS", "LSR", "LSE", "BE", "SYSTEM", "nonsense"}
	someCPUs    = []string{"", "0-1", "2-3", "2,6", "4", "1-2", "0-6", "0-7", "9"}
	someBatch   = []string{"", `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"1Gi"}}}}`, `{`}
)

// play plays a history on a model.
func play(mo *model, history []step) {
	for _, s := range history {
		pods := mo.pods
		switch {
		case s.Do <= 3 || len(pods) == 0:
			asked := ""
			class := someClasses[s.A%len(someClasses)]
			if class == "LSR" || class == "LSE" {
				asked = someCPUs[s.B%len(someCPUs)]
			}
			p := mo.runPod(class, asked, someBatch[s.B%len(someBatch)])
			if c := mo.create(p, "a"); c != nil && s.B%4 > 0 {
				mo.start(c)
			}
			continue
		case s.Do == 4:
			name := []string{"a", "b"}[s.B%2]
			if p := pods[s.A%len(pods)]; !p.stopped && (!mo.once || !p.runs(name)) {
				mo.create(p, name)
			}
			continue
		case s.Do == 5:
			mo.removePod(pods[s.A%len(pods)])
			continue
		case s.Do == 6:
			mo.stopPod(pods[s.A%len(pods)])
			continue
		case s.Do == 7:
			mo.restart()
			continue
		case s.Do == 8:
			mo.configure(s)
			continue
		}
		all := mo.live()
		if len(all) == 0 {
			continue
		}
		c := all[s.A%len(all)]
		switch {
		case s.Do <= 10:
			mo.start(c)
		case s.Do <= 12:
			if mo.dress != nil && (s.B%4 > 0 || mo.unlisted) {
				mo.resizeOwner(c, s)
				continue
			}
			var r lifecycle.Resources
			if s.B%2 == 0 {
				r.CPU.CPUs = mo.lists[s.B%3]
			} else if s.B%5 == 0 && c.asked.CPU.Quota.Set {
				r.CPU.Quota = lifecycle.Some(int64(70000 + s.B))
			} else {
				r.CPU.Shares = lifecycle.Some[uint64](512)
			}
			mo.update(c, r)
		case s.Do == 13:
			mo.stop(c)
		case s.Do == 14:
			mo.remove(c)
		case s.Do == 15: // a duplicate event
			mo.handle(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: clone(&c.pod.Pod)})
		}
	}
}

// configure applies another policy.
func (mo *model) configure(s step) {
	mo.policy.Pools.UnlabelledShared = s.A%2 == 0
	mo.policy.Pools.Reserved = topology.Set{}
	if s.B%2 == 1 {
		mo.policy.Pools.Reserved = mo.machine.OnlineCPUs(mo.all[len(mo.all)-1:])
	}
	if mo.dress != nil {
		mo.policy.Pools.Reserved = mo.reserved()
	}
	mo.policy.Pools.Shared = mo.machine.Online().Minus(mo.policy.Pools.Reserved)
	mo.normalize([...]hook.Ratio{100, 120, 90}[s.A%3])
	if mo.dress != nil {
		mo.resize(s)
	}
	mo.con.Configure(mo.policy, conductor.Tuning{})
	mo.lending = false
	mo.checkQuotas("after a new configuration")
	mo.checkExclusive("after a new configuration")
}

func TestInvariants(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				mo := newModel(t, v, faults{})
				mo.proxied = rapid.Bool().Draw(rt, "proxied")
				mo.hookServerOf(rt)
				play(mo, steps().Draw(rt, "history"))
				if len(mo.broken) > 0 {
					rt.Fatalf("%v", mo.broken)
				}
			})
		})
	}
}

// TestInvariantsBeside plays the same with an attachment that carries nothing and is notified
// of everything after it happened. One variant keeps the checkpoint across restarts; the other
// loses it, so that the agent adopts the kernel's values.
func TestInvariantsBeside(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/lost=%t", v, lost), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(rt *rapid.T) {
					mo := newModel(t, v, faults{forgetAsked: lost})
					mo.from = observing{}
					mo.hookServerOf(rt)
					play(mo, steps().Draw(rt, "history"))
					if len(mo.broken) > 0 {
						rt.Fatalf("%v", mo.broken)
					}
				})
			})
		}
	}
}

// TestPlantedFaults shows that each invariant's check can fail: with a planted fault, random
// histories break it.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults faults
		finds  string
	}{
		"others keep granted CPUs":   {faults{forgetShrink: true}, "I1"},
		"empty CPU list":             {faults{emptyCPUSet: true}, "I2"},
		"a value is carried nowhere": {faults{dropValue: true}, "I3"},
		"records are lost":           {faults{loseRecord: true}, "I4"},
		"what was asked is lost":     {faults{forgetAsked: true}, "asked for a quota"},
		"a pod's end frees nothing":  {faults{keepGrant: true}, "I4"},
		"a silent pod is touched":    {faults{touchSilent: true}, "I5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range 300 {
				mo := newModel(t, cgroup.V2, c.faults)
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

// TestDeterminism checks that equal histories give equal answers.
func TestDeterminism(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := steps().Draw(rt, "history")
		var seen [2]string
		for i := range seen {
			mo := newModel(t, cgroup.V2, faults{})
			play(mo, history)
			events, _ := mo.con.Journal().Since(0)
			seen[i] = fmt.Sprintf("%+v %+v", events, mo.cpusets())
		}
		if seen[0] != seen[1] {
			rt.Fatalf("two runs differ:\n%s\n%s", seen[0], seen[1])
		}
	})
}

var _ conductor.Carrier = carrier{}

// TestFoundHistories plays histories in which random tests once found faults.
func TestFoundHistories(t *testing.T) {
	t.Parallel()
	for name, history := range map[string][]step{
		// A ratio changes between a creation and its start.
		"proxied: quota between create and start": {
			{0, 0, 0}, {0, 0, 0}, {5, 0, 0}, {0, 0, 0}, {4, 0, 0}, {5, 0, 0}, {4, 0, 0}, {0, 0, 0}, {5, 0, 0}, {5, 0, 0},
			{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {3, 18, 8}, {1, 73, 13}, {8, 85, 1}, {9, 18, 1},
		},
		// A ratio changes, the agent restarts, the kubelet asks for another quota.
		"quota after ratio and restart": {
			{0, 0, 0}, {8, 1, 0}, {0, 0, 0}, {0, 0, 1}, {8, 0, 0}, {7, 0, 0}, {11, 2, 0},
		},
		"cpuset after restart": {
			{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 3, 1}, {4, 1, 99}, {2, 99, 1}, {3, 77, 29}, {5, 99, 52}, {4, 3, 50},
			{5, 0, 1}, {8, 74, 62}, {7, 55, 1},
		},
	} {
		for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			t.Run(name+"/"+v.String(), func(t *testing.T) {
				t.Parallel()
				mo := newModel(t, v, faults{})
				mo.proxied = strings.HasPrefix(name, "proxied")
				play(mo, history)
				for _, b := range mo.broken {
					t.Error(b)
				}
			})
		}
	}
}
