package conductor_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// online takes CPUs off or puts them back, and tells the agent.
func (mo *model) online(offline ...int) {
	was := map[int]bool{}
	for _, id := range offline {
		was[id] = true
	}
	var ids []int
	for id := range 8 {
		must(mo.kernel.SetOnline(id, !was[id]))
		if !was[id] {
			ids = append(ids, id)
		}
	}
	m, _ := mo.machine.WithOnline(ids)
	mo.policy.Pools.Online, mo.policy.Pools.Shared, mo.policy.Pools.Reclaimed = m.Online(), m.Online(), m.Online()
	mo.con.Rehost(m, mo.policy, conductor.Tuning{})
	mo.con.Settled()
}

// TestHotUnplug takes CPUs away under what runs, those of owners and those of
// pools, and puts them back. Nobody has an offline CPU or an empty set, and in
// version 2, whose kernel keeps what was asked for, all is as before in the end.
func TestHotUnplug(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			mo := newModel(t, v, faults{})
			owner := mo.create(mo.runPod("LSR", "2-3", ""), "db")
			silent := mo.create(mo.runPod("", "", ""), "a")
			batch := mo.create(mo.runPod("BE", "", ""), "a")
			for _, c := range []*modelCtr{owner, silent, batch} {
				mo.start(c)
			}
			check := func(when, own, others string) {
				t.Helper()
				for c, want := range map[*modelCtr]string{owner: own, silent: others, batch: others} {
					if got := mo.effective(c); got != want {
						t.Errorf("%s: %s has CPUs %s, want %s", when, c.ID, got, want)
					}
				}
			}
			check("before", "2-3", "0-1,4-7")
			mo.online(3, 7)
			check("without 3 and 7", "2", "0-1,4-6")
			if n := mo.con.Status().CPUs; n.Online != "0-2,4-6" || n.Exclusive != "2" || n.Reclaimed != "0-1,4-6" {
				t.Errorf("without 3 and 7 it tells %+v", n)
			}
			gone, err := cgroup.ParseIDs("3,7")
			must(err)
			tree := &cgroup.Tree{FS: mo.kernel, Version: v}
			for _, c := range []*modelCtr{owner, silent, batch} {
				text, err := tree.Read(c.dir(), lifecycle.CPUSetCPUs, "")
				if ids, bad := cgroup.ParseIDs(text); err != nil || bad != nil || !ids.And(gone).Empty() {
					t.Errorf("%s is set to %q (%v, %v)", c.ID, text, err, bad)
				}
			}
			if late := mo.create(mo.runPod("LS", "", ""), "a"); late != nil {
				mo.start(late)
				if got := mo.effective(late); got != "0-1,4-6" {
					t.Errorf("one that comes without 3 and 7 has CPUs %s", got)
				}
			}
			var r lifecycle.Resources
			r.CPU.Shares = lifecycle.Some[uint64](512)
			mo.update(owner, r) // which does not take the rest away
			check("after an update", "2", "0-1,4-6")
			mo.online()
			if v == cgroup.V2 {
				check("with all", "2-3", "0-1,4-7")
			} else if got := mo.con.Status().CPUs.Exclusive; got != "2-3" {
				// Version 1 took the CPUs out of the cgroups above for good.
				t.Errorf("with all the owner is to have %s", got)
			}
			for _, b := range mo.broken {
				t.Error(b)
			}
		})
	}
}
