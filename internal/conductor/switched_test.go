package conductor_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/hook"
)

// TestSwitchedOn: containers that were created while placement was off get their assigned CPUs
// when placement is switched on, by a reload or a restart, with or without a record. They keep
// them across the next restart. A container whose CPUs belong to another by then never gets
// them.
func TestSwitchedOn(t *testing.T) {
	t.Parallel()
	const batch = `{"containers":{"db":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}`
	for _, how := range []string{"reload", "restart"} {
		for _, extended := range []string{"", batch} { // the batch hook decides something, so there is a record
			mo := newModel(t, cgroup.V1, faults{})
			on := mo.policy
			mo.policy.PlacementOn = false
			mo.policy.Hooks = []hook.Hook{hook.BatchOptions{}}
			mo.boot()
			class := "LSR"
			if extended != "" {
				class = "BE"
			}
			first := mo.create(mo.runPod(class, "2-3", extended), "db")
			second := mo.create(mo.runPod(class, "3-4", extended), "db")
			other := mo.create(mo.runPod("", "", ""), "a")
			for _, c := range []*modelCtr{first, second, other} {
				mo.start(c)
			}
			if extended != "" && len(first.Annotations) == 0 {
				t.Fatal("no record was stamped")
			}
			mo.policy = on
			if how == "reload" {
				mo.con.Configure(on, conductor.Tuning{})
			} else {
				mo.boot()
				mo.handle(mo.everything())
			}
			check := func(when string) {
				t.Helper()
				if got := mo.effective(first) + " " + mo.effective(other); got != "2-3 0-1,4-7" {
					t.Errorf("%s, record %v, %s: owner and other have %s", how, extended != "", when, got)
				}
				if got := mo.effective(second); got != "0-1,4-7" {
					t.Errorf("%s, record %v, %s: one that wanted CPU 3, too, has %s", how, extended != "", when, got)
				}
			}
			check("switched on")
			mo.restart()
			check("after a restart")
			mo.stopPod(first.pod)
			mo.con.Configure(on, conductor.Tuning{})
			mo.restart()
			if got := mo.effective(second); got != "0-7" {
				t.Errorf("%s, record %v: what was refused came back as %s", how, extended != "", got)
			}
			for _, b := range mo.broken {
				t.Error(b)
			}
		}
	}
}
