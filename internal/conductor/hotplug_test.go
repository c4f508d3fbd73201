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

// online sets which CPUs are offline, and notifies the agent.
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

// TestHotUnplug takes CPUs offline, those of owners and those of pools, and brings them back.
// No list has an offline CPU or is empty. At the end, in version 2, where the kernel keeps
// requested lists, everything is as before.
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
			mo.update(owner, r) // which does not remove the others
			check("after an update", "2", "0-1,4-6")
			mo.online()
			if v == cgroup.V2 {
				check("with all", "2-3", "0-1,4-7")
			} else { // version 1 removed the CPUs from the cgroups above permanently: no container can use them, and that is reported
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

// plug sets which CPUs of a node with pools are offline, and notifies the agent. A container
// without an online CPU runs on all CPUs until the agent is notified, and is checked then.
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

// checkOnline checks the rest of I2: no list has an offline CPU, except lists that another
// program wrote.
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

// TestPoolsHotUnplug plays random histories during which CPUs go offline and come back. Owners
// keep what is left, and have everything again at the end, whether or not the agent restarts
// meanwhile.
func TestPoolsHotUnplug(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		mo := newPooled(t, cgroup.V2, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
		mo.proxied = rapid.Bool().Draw(rt, "proxied")
		play(mo, steps().Draw(rt, "history"))
		// The copies of waiting containers are updated by the runtime's queue, which this test
		// does not run. A copy may be from a time when CPUs were lent.
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

// TestHotplugRecovered is TestPoolsHotUnplug with every checkpoint lost. CPUs of resized
// owners stay online, because only the checkpoint knows offline CPUs of a resize.
func TestHotplugRecovered(t *testing.T) {
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

// TestWholeNodeOffline plays unpluggedRecovered for an owner that has a NUMA node of three CPUs exclusively, pays for
// two, and loses all of them.
func TestWholeNodeOffline(t *testing.T) {
	t.Parallel()
	creations := slices.Repeat([]step{{B: 1}}, 5)
	if broken := unpluggedRecovered(t, 0, creations, func([]int) []int { return []int{1, 2, 3, 4, 5, 7} }); len(broken) > 0 {
		t.Errorf("%v", broken)
	}
}

// unpluggedRecovered plays a history, takes some CPUs offline that no resized owner has, and
// brings them back. The agent restarts without a checkpoint after each. It returns the broken
// invariants.
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

// sizingOf returns the sizing of pools on another machine, with the same options.
func sizingOf(m *topology.Machine, was *pools.Sizing) *pools.Sizing {
	sizing := pools.NewSizing(m)
	sizing.Expand, sizing.ShareUnused, sizing.MinReclaimed = was.Expand, was.ShareUnused, was.MinReclaimed
	return sizing
}

// copied updates the runtime's copies from the kernel, as the queue does a moment later.
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

// copiedBeside is copied for an attachment without answers: it writes the decided values after
// the event.
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

// resized returns the CPUs of owners whose CPUs have changed since their creation, old ones
// included.
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

// running returns the CPUs of running containers that own some.
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

// TestOwnerOffline takes all CPUs of an owner offline. It runs in a pool, off other owners'
// CPUs, and that is reported. At the end it has its own CPUs again.
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

// TestMemoryComes: a pod bound to a NUMA node without memory gets the nearest node with memory,
// and keeps it when memory is added. The next pod gets its own node's memory.
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

// TestWaitingContainerWhileOthersEnd: the end of a pod changes the pool of a container that has not
// started, and no answer to that end can update the runtime. An owner that starts then must not
// get a CPU that the runtime's copy still lists.
func TestWaitingContainerWhileOthersEnd(t *testing.T) {
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
