package conductor_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
)

// TestOwnerLosesCPUsByConfiguration repeats a history that once moved a container at a restart: a configuration
// takes one of its two CPUs, another pod comes to own the other, and both are free again when
// the agent restarts.
func TestOwnerLosesCPUsByConfiguration(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		mo := newModel(t, v, faults{})
		reserve := func(cpus ...int) {
			mo.policy.Pools.Reserved = mo.machine.OnlineCPUs(cpus)
			mo.policy.Pools.Shared = mo.machine.Online().Minus(mo.policy.Pools.Reserved)
			mo.con.Configure(mo.policy, conductor.Tuning{})
		}
		run := func(asked string) *modelPod {
			p := mo.runPod("LSR", asked, "")
			mo.start(mo.create(p, "a"))
			return p
		}
		owner := run("6-7")
		reserve(7)
		other := run("6")
		reserve()
		if got := mo.ownedBy(other.ctrs[0]); got != "6" || mo.ownedBy(owner.ctrs[0]) != "" {
			t.Fatalf("%s: the other pod owns %q, the first %q; nothing is tested", v, got, mo.ownedBy(owner.ctrs[0]))
		}
		mo.removePod(other)
		mo.restart()
		mo.restart()
		for _, b := range mo.broken {
			t.Errorf("%s: %s", v, b)
		}
		if again := run("6-7"); mo.ownedBy(again.ctrs[0]) != "6-7" {
			t.Errorf("%s: CPUs nobody owns any more are not granted to the next pod", v)
		}
	}
}
