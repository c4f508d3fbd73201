package conductor_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// online takes CPUs off or puts them back, and tells the agent.
func (mo *model) online(offline ...int) {
	was := map[int]bool{}
	for _, id := range offline {
		was[id] = true
	}
	var ids []int
	for _, id := range mo.all {
		must(mo.kernel.SetOnline(id, !was[id]))
		if !was[id] {
			ids = append(ids, id)
		}
	}
	m, _ := mo.machine.WithOnline(ids)
	mo.policy.Pools.Online, mo.policy.Pools.Shared, mo.policy.Pools.Reclaimed = m.Online(), m.Online(), m.Online()
	mo.con.ConfigureMachine(m, mo.policy, conductor.Tuning{})
	mo.con.Flush()
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
			if n := nodeview.Status(mo.con).CPUs; n.Online != "0-2,4-6" || n.Exclusive != "2" || n.Reclaimed != "0-1,4-6" {
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
			} else { // version 1 took the CPUs out of the cgroups above permanently: nobody can have them, and that is reported
				check("with all", "2", "0-1,4-6")
				told, _ := nodeview.Explain(mo.con, "default", owner.pod.Name, "db")
				away := func(q lifecycle.Problem) bool {
					return q.Value == "3" && strings.Contains(q.Reason, "not in the cgroup")
				}
				if got := nodeview.Status(mo.con).CPUs.Exclusive; got != "2" || !slices.ContainsFunc(told[0].Problems, away) {
					t.Errorf("with all %s is exclusive, and it is told of %v", got, told[0].Problems)
				}
			}
			for _, b := range mo.broken {
				t.Error(b)
			}
		})
	}
}

// plug takes CPUs of a node with pools off or puts them back, and tells the agent.
// A container all of whose CPUs go off runs on everything the kernel has until the
// agent is told, and is judged then.
func (mo *model) plug(offline []int) {
	mo.foreign = len(offline) > 0
	var ids []int
	for _, id := range mo.all {
		must(mo.kernel.SetOnline(id, !slices.Contains(offline, id)))
		if !slices.Contains(offline, id) {
			ids = append(ids, id)
		}
	}
	mo.machine, _ = mo.machine.WithOnline(ids)
	mo.choosing(func(p *pools.Policy) { p.Tree, p.Sizing = choose.NewTree(mo.machine), sizingOf(mo.machine, p.Sizing) })
	now := &mo.policy.Pools
	now.Online, now.Reserved = mo.machine.Online(), mo.reserved().And(mo.machine.Online())
	now.Shared = now.Online.Minus(now.Reserved)
	now.Reclaimed = now.Shared
	mo.con.ConfigureMachine(mo.machine, mo.policy, conductor.Tuning{})
	mo.con.Flush()
	mo.foreign = false
	mo.checkExclusive("after other CPUs are online")
	mo.checkOnline(offline)
}

// checkOnline checks the rest of I2: nobody's list has a CPU that is offline, but
// for those another program wrote.
func (mo *model) checkOnline(offline []int) {
	tree := &cgroup.Tree{FS: mo.kernel, Version: mo.version}
	for _, c := range mo.live() {
		told, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
		if !c.started || len(told) != 1 || told[0].CPUGroup == placement.Unclassified.String() {
			continue
		}
		text, err := tree.Read(c.dir(), lifecycle.CPUSetCPUs, "")
		if both := intersect(idsOf(strings.TrimSpace(text)), offline); err != nil || len(both) > 0 {
			mo.wrong("I2: %s is set to %q with %v offline (%v)", c.ID, text, offline, err)
		}
	}
}

// TestPoolsHotUnplug plays random histories during which CPUs go offline and come
// back. Owners keep what is left, and have everything again in the end, whether or
// not the agent is started again while CPUs are away and after that.
func TestPoolsHotUnplug(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		mo := newPooled(t, cgroup.V2, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
		mo.proxied = rapid.Bool().Draw(rt, "proxied")
		play(mo, steps().Draw(rt, "history"))
		// The copies of those that wait are brought in line by a runtime's queue, which is not here: one may be of a
		// time when CPUs were lent.
		mo.lending = true
		for _, c := range mo.live() {
			mo.start(c)
		}
		mo.lending = false
		before := mo.running()
		mo.plug(rapid.SliceOfNDistinct(rapid.IntRange(1, 7), 0, 6, rapid.ID[int]).Draw(rt, "offline"))
		if rapid.Bool().Draw(rt, "restart") {
			mo.restart()
		}
		mo.plug(nil)
		if rapid.Bool().Draw(rt, "restart after") {
			mo.restart()
		}
		for id, cpus := range mo.running() {
			if was, owned := before[id]; owned && was != cpus {
				mo.wrong("I4: %s owned %s, and after CPUs went and came back %s", id, was, cpus)
			}
			delete(before, id)
		}
		for id, was := range before {
			mo.wrong("I4: %s owned %s, and after CPUs went and came back nothing", id, was)
		}
		if len(mo.broken) > 0 {
			rt.Fatalf("%v", mo.broken)
		}
	})
}

// TestUnpluggedRecovered is TestPoolsHotUnplug with every checkpoint lost, as
// TestRecoveredFromRecords is without CPUs that go. Those of owners that were resized
// stay: which they are is known to nobody any more when they are offline.
func TestUnpluggedRecovered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		broken := unpluggedRecovered(t, rapid.IntRange(0, 199).Draw(rt, "seed"), resizes().Draw(rt, "history"), func(resized []int) []int {
			return slices.DeleteFunc(rapid.SliceOfNDistinct(rapid.IntRange(1, 7), 0, 6, rapid.ID[int]).Draw(rt, "offline"), func(id int) bool {
				return slices.Contains(resized, id)
			})
		})
		if len(broken) > 0 {
			rt.Fatalf("%v", broken)
		}
	})
}

// TestWholeNodeOffline is TestUnpluggedRecovered of an owner that has a NUMA node alone,
// of three CPUs, pays for two, and has all of them go offline.
func TestWholeNodeOffline(t *testing.T) {
	t.Parallel()
	creations := slices.Repeat([]step{{B: 1}}, 5)
	if broken := unpluggedRecovered(t, 0, creations, func([]int) []int { return []int{1, 2, 3, 4, 5, 7} }); len(broken) > 0 {
		t.Errorf("%v", broken)
	}
}

// unpluggedRecovered plays a history, takes some CPUs off that are not of resized owners,
// and puts them back, with a start without a checkpoint after each. It returns what broke.
func unpluggedRecovered(t *testing.T, seed int, history []step, offline func(resized []int) []int) []string {
	t.Helper()
	mo := newPooled(t, cgroup.V2, faults{}, seed)
	mo.once, mo.unlisted, mo.unsaved = true, true, true
	play(mo, history)
	mo.lending = true // as in TestPoolsHotUnplug
	for _, c := range mo.live() {
		mo.start(c)
	}
	mo.lending = false
	mo.restart() // without a checkpoint
	before := mo.running()
	mo.plug(offline(mo.resized()))
	mo.copied()
	mo.restart()
	mo.plug(nil)
	mo.copied()
	mo.restart()
	after := mo.running()
	for id, was := range before {
		if after[id] != was {
			mo.wrong("I4: %s owned %s, and after CPUs went and came back %q", id, was, after[id])
		}
	}
	return mo.broken
}

// sizingOf is how pools are sized on a machine, by the same rules as before.
func sizingOf(m *topology.Machine, was *pools.Sizing) *pools.Sizing {
	sizing := pools.NewSizing(m)
	sizing.Expand, sizing.ShareUnused, sizing.MinReclaimed = was.Expand, was.ShareUnused, was.MinReclaimed
	return sizing
}

// copied has the runtime's copies follow what is in the kernel, as the queue of updates
// has them a moment later.
func (mo *model) copied() {
	for _, c := range mo.live() {
		if c.started && (c.Resources.CPU.CPUs != "" || mo.ownedBy(c) != "") {
			c.Resources.CPU.CPUs = mo.effective(c)
		}
		quota, _, err := (&cgroup.Tree{FS: mo.kernel, Version: mo.version}).ReadBandwidth(c.dir())
		if n, bad := strconv.ParseInt(strings.Replace(quota, "max", "-1", 1), 10, 64); err == nil && bad == nil && c.Resources.CPU.Quota.Set {
			c.Resources.CPU.Quota.V = n
		}
	}
	if mo.beside() {
		mo.copiedBeside()
	}
}

// copiedBeside is copied of what no answer brought: an attachment beside the runtime
// has it write what was decided, once all is done.
func (mo *model) copiedBeside() {
	for _, c := range mo.live() {
		found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
		for _, e := range found {
			if e.ID != c.ID || !c.started || e.CPUGroup == placement.Unclassified.String() {
				continue
			}
			for _, v := range e.Values {
				switch v.Field {
				case lifecycle.CPUSetCPUs.String():
					c.Resources.CPU.CPUs = mo.effective(c)
				case lifecycle.CPUQuota.String():
					n, err := strconv.ParseInt(v.Value, 10, 64)
					must(err)
					c.Resources.CPU.Quota = lifecycle.Some(n)
				case lifecycle.CPUSetMems.String():
					c.Resources.CPU.Mems = mo.memory(c)
				}
			}
		}
	}
}

// resized are the CPUs of owners that own others than when they were created, those
// of that time among them.
func (mo *model) resized() []int {
	var all []int
	for _, c := range mo.live() {
		_, record, _ := strings.Cut(c.Annotations[conductor.RecordKey], `"cpus":"`)
		initial, _, _ := strings.Cut(record, `"`)
		if owns := mo.ownedBy(c); owns != "" && owns != initial {
			all = append(append(all, idsOf(owns)...), idsOf(initial)...)
		}
	}
	return all
}

// running are the CPUs of containers that run and own some.
func (mo *model) running() map[string]string {
	all := map[string]string{}
	for _, c := range mo.live() {
		for _, g := range nodeview.Status(mo.con).CPUs.Grants {
			if c.started && g.Pod == "default/"+c.pod.Name && g.Container == c.Name && g.CPUs == mo.effective(c) {
				all[c.ID] = g.CPUs
			}
		}
	}
	return all
}

// TestOwnerOffline takes all CPUs of an owner away. It runs with the others, who
// stay clear of other owners, and that is told; in the end it has its own again.
func TestOwnerOffline(t *testing.T) {
	t.Parallel()
	mo := newPooled(t, cgroup.V2, faults{}, 1)
	make := func(kind string, shares uint64) *modelCtr {
		mo.dress = func(p *modelPod) {
			p.Labels, p.asked = map[string]string{"koordinator.sh/qosClass": kind}, ""
			p.wants.CPU.Shares, p.wants.CPU.Quota = lifecycle.Some(shares), lifecycle.Some(int64(shares)*100000/1024)
			p.Resources = clone(&p.wants)
		}
		c := mo.create(mo.runPod("", "", ""), "a")
		mo.start(c)
		return c
	}
	first, second, web := make("LSE", 1024), make("LSE", 2048), make("LS", 1024)
	own := map[*modelCtr]string{first: mo.effective(first), second: mo.effective(second)}
	gone := idsOf(own[first])
	problems := func() string {
		told, _ := nodeview.Explain(mo.con, "default", first.pod.Name, "a")
		var all []string
		for _, p := range told[0].Problems {
			all = append(all, p.String())
		}
		return strings.Join(all, "; ")
	}
	mo.plug(gone)
	if got := mo.effective(first); got == "" || len(intersect(idsOf(got), idsOf(own[second]))) > 0 || got != mo.effective(web) {
		t.Errorf("without its CPUs %s it has %s, and the pool %s", own[first], got, mo.effective(web))
	}
	if !strings.Contains(problems(), "offline") {
		t.Errorf("nothing tells that its CPUs are offline: %q", problems())
	}
	mo.restart()
	if !strings.Contains(problems(), "offline") {
		t.Errorf("after a restart nothing tells that its CPUs are offline: %q", problems())
	}
	mo.plug(nil)
	for c, want := range own {
		if got := mo.effective(c); got != want {
			t.Errorf("with all CPUs %s has %s, want %s", c.ID, got, want)
		}
	}
	if problems() != "" {
		t.Errorf("with all CPUs it still tells %s", problems())
	}
	for _, b := range mo.broken {
		t.Error(b)
	}
}

// TestMemoryComes: a pod bound to a NUMA node without memory has the nearest that
// has some, and keeps it when memory comes; the next one has its own node's.
func TestMemoryComes(t *testing.T) {
	t.Parallel()
	mo := newPooled(t, cgroup.V2, faults{}, 1)
	memory := func(nodes ...topology.Node) {
		now, unknown := mo.machine.WithMemory(nodes)
		if len(unknown) > 0 {
			t.Fatalf("nodes %v are unknown", unknown)
		}
		mo.machine = now
		mo.choosing(func(p *pools.Policy) { p.Tree = choose.NewTree(now) })
		mo.con.ConfigureMachine(now, mo.policy, conductor.Tuning{})
		mo.con.Flush()
	}
	bound := func() *modelCtr {
		mo.dress = func(p *modelPod) {
			p.Labels, p.asked = map[string]string{}, ""
			p.Annotations = map[string]string{
				intent.KatalystQoSLevel: "dedicated_cores", intent.KatalystMemory: bound, intent.KatalystCPU: `{"katalyst.kubewharf.io/numa_ids":"1"}`,
			}
			p.wants.CPU.Shares, p.wants.CPU.Quota = lifecycle.Some[uint64](1024), lifecycle.Some[int64](100000)
			p.Resources = clone(&p.wants)
		}
		c := mo.create(mo.runPod("", "", ""), "a")
		mo.start(c)
		return c
	}
	memory(topology.Node{ID: 1, Kind: topology.NoMemory})
	first := bound()
	memory(topology.Node{ID: 1, Memory: 1 << 30})
	second := bound()
	for c, want := range map[*modelCtr]string{first: "0", second: "1"} {
		told, _ := nodeview.Explain(mo.con, "default", c.pod.Name, "a")
		got := ""
		for _, v := range told[0].Values {
			if v.Field == lifecycle.CPUSetMems.String() {
				got = v.Value
			}
		}
		if got != want || mo.effective(c) < "4" {
			t.Errorf("%s has memory nodes %q and CPUs %s, want %s and one of 4-7", c.ID, got, mo.effective(c), want)
		}
	}
	for _, b := range mo.broken {
		t.Error(b)
	}
}

// TestWaitsWhileOthersEnd: the end of a pod moves the pool of a container that waits
// for its start, and no answer to that end can tell the runtime. An owner that comes
// then must not find its CPU in what the runtime kept.
func TestWaitsWhileOthersEnd(t *testing.T) {
	t.Parallel()
	mo := newPooled(t, cgroup.V2, faults{}, 37)
	play(mo, []step{{0, 0, 0}, {5, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {5, 0, 0}, {0, 0, 0}, {4, 0, 0}, {5, 0, 0}, {0, 0, 1}})
	for _, c := range mo.live() {
		mo.start(c)
	}
	for _, b := range mo.broken {
		t.Error(b)
	}
}
