package conductor_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// ownerKind is one way to own CPUs.
type ownerKind struct {
	name     string
	assigned string // by a scheduler, under policy none; "" for CPUs the agent chooses
	label    string
	memory   string // Katalyst's enhancement
	cpus     int
	// apart: the pod's sum is not reported, so each container owns its own CPUs.
	apart bool
	// untold: no runtime reports that the pod's sum changed.
	untold bool
}

var ownerKinds = []ownerKind{
	{name: "assigned", assigned: "2-4", label: "LSR", cpus: 3},
	{name: "pod", label: "LSE", cpus: 3},
	{name: "pod untold", label: "LSE", cpus: 3, untold: true},
	{name: "containers", label: "LSE", cpus: 3, apart: true},
	{name: "lent", label: "LSR", cpus: 3},
	{name: "bound", memory: bound, cpus: 2},
	{name: "whole", cpus: 2, apart: true},
}

// unplugged is a node whose CPUs go offline and online under an owner.
type unplugged struct {
	mo      *model
	kind    ownerKind
	owner   *modelCtr
	due     map[*modelPod]int
	offline []int
	follow  bool // the runtime's copies are updated after each step
	step    string
	// initial is the number of CPUs at the creation of the owner's container, and initialCPUs
	// are the CPUs in its record. excused: it may have another number than it is due, if that
	// is reported.
	initial     int
	initialCPUs []int
	excused     bool
}

func newUnplugged(t *testing.T, v cgroup.Version, kind ownerKind) *unplugged {
	t.Helper()
	u := &unplugged{kind: kind, due: map[*modelPod]int{}}
	if kind.assigned != "" {
		u.mo = newModel(t, v, faults{})
	} else {
		u.mo = newPooled(t, v, faults{}, 1)
		u.mo.choosing(func(p *pools.Policy) { p.LendLSR = kind.name == "lent" })
		u.mo.con = nil
		u.mo.boot()
	}
	u.mo.once = true
	for _, label := range []string{"LS", "BE", ""} {
		u.mo.dress = u.plain(label, 512)
		u.mo.start(u.mo.create(u.mo.runPod("", "", ""), "a"))
	}
	u.mo.dress = u.dress(kind, kind.cpus)
	p := u.mo.runPod("", "", "")
	u.due[p] = kind.cpus
	u.owner = u.mo.create(p, "a")
	u.mo.start(u.owner)
	u.created(kind.cpus)
	u.check()
	return u
}

// plain makes a pod that owns nothing.
func (u *unplugged) plain(label string, shares uint64) func(*modelPod) {
	return func(p *modelPod) {
		if p.Labels, p.asked = map[string]string{}, ""; label != "" {
			p.Labels[intent.KoordQoSClass] = label
		}
		p.wants.CPU.Shares = lifecycle.Some(shares)
	}
}

// dress makes a pod that owns CPUs.
func (u *unplugged) dress(kind ownerKind, cpus int) func(*modelPod) {
	return func(p *modelPod) {
		p.Labels, p.Annotations, p.asked = map[string]string{}, map[string]string{}, ""
		if kind.label != "" {
			p.Labels[intent.KoordQoSClass] = kind.label
		}
		if kind.memory != "" {
			p.Annotations[intent.KatalystQoSLevel], p.Annotations[intent.KatalystMemory] = "dedicated_cores", kind.memory
		}
		if kind.assigned != "" {
			p.Annotations[intent.KoordResourceStatus] = fmt.Sprintf(`{"cpuset":%q}`, kind.assigned)
		}
		p.wants = whole(cpus)
		if !kind.apart {
			p.Resources = clone(&p.wants)
		}
	}
}

func whole(cpus int) (r lifecycle.Resources) {
	r.CPU.Shares, r.CPU.Quota = lifecycle.Some(uint64(cpus)*1024), lifecycle.Some(int64(cpus)*100000)
	return r
}

// play plays a history, brings all CPUs online, and compares.
func (u *unplugged) play(h string) {
	for i := range len(h) {
		u.step = fmt.Sprintf("after %q", h[:i+1])
		for _, d := range actions {
			if d.letter == h[i] {
				d.do(u)
			}
		}
		u.check()
	}
	u.step = "in the end"
	u.on()
	u.check()
	u.checkEnd()
	u.step = "after a last restart"
	u.restart(true)
	u.check()
	u.checkEnd()
}

func (u *unplugged) offOne() { u.off(1) }
func (u *unplugged) offAll() { u.off(8) }

// off takes CPUs of the owner offline, the last first. CPU 0 stays online.
func (u *unplugged) off(n int) {
	for _, id := range slices.Backward(idsOf(u.mo.effective(u.owner))) {
		if len(u.offline) < 6 && id != 0 && n > 0 && !slices.Contains(u.offline, id) && u.owns(u.owner) != "" {
			u.offline = append(u.offline, id)
			n--
		}
	}
	u.plug()
}

func (u *unplugged) on() {
	u.offline = nil
	u.plug()
}

// plug notifies kernel and agent.
func (u *unplugged) plug() {
	mo := u.mo
	mo.foreign = len(u.offline) > 0
	var ids []int
	for _, id := range mo.all {
		must(mo.kernel.SetOnline(id, !slices.Contains(u.offline, id)))
		if !slices.Contains(u.offline, id) {
			ids = append(ids, id)
		}
	}
	mo.machine, _ = mo.machine.WithTopologyFrom(found(u.offline)).WithOnline(ids)
	u.host()
	mo.con.ConfigureMachine(mo.machine, mo.policy, conductor.Tuning{})
	mo.con.Flush()
	mo.foreign = false
}

// host makes the policy for the current machine.
func (u *unplugged) host() {
	mo := u.mo
	now := &mo.policy.Pools
	now.Online = mo.machine.Online()
	if u.kind.assigned != "" {
		now.Shared, now.Reclaimed = now.Online, now.Online
		return
	}
	mo.choosing(func(p *pools.Policy) { p.Tree, p.Sizing = choose.NewTree(mo.machine), sizingOf(mo.machine, p.Sizing) })
	now.Reserved = mo.reserved().And(mo.machine.Online())
	now.Shared = now.Online.Minus(now.Reserved)
	now.Reclaimed = now.Shared
}

// restart restarts the agent, which reads the current machine.
func (u *unplugged) restart(saved bool) {
	mo := u.mo
	// Only the lost checkpoint knew which CPUs a resize added.
	u.excused = u.excused || !saved && u.due[u.owner.pod] != u.initial && len(u.offline) > 0
	forgets := !saved && (u.gaveUp() || u.grew())
	mo.machine = found(u.offline)
	u.host()
	mo.unsaved = !saved
	if forgets {
		mo.boot()
		mo.handle(mo.everything())
		if n := len(idsOf(u.owns(u.owner))); n > u.dueOf(u.owner.pod) {
			mo.wrong("%s: %s owns %d CPUs and is due %d", u.step, u.owner.ID, n, u.dueOf(u.owner.pod))
		}
	} else {
		mo.restart()
	}
	mo.unsaved = false
}

// gaveUp reports whether all CPUs of the owner are offline, and fewer are reserved for it than
// it requests: it gave some up and requests as many again. The record in the runtime lists the
// old ones, and only the state directory knows better. An agent without that runs the owner on
// the old ones, which it requests, and so moves it.
func (u *unplugged) gaveUp() bool {
	cpus, away := u.granted()
	return len(cpus) == 0 && len(away) > 0 && len(away) < u.dueOf(u.owner.pod)
}

// grew reports whether online CPUs are reserved for the owner, which has none now and got them
// after its creation: in version 1 no pod can use CPUs that came back. Its copy in the runtime
// has its pool's CPUs, so only the state directory knows them. An agent without that gives them
// to pools.
func (u *unplugged) grew() bool {
	cpus, away := u.granted()
	return len(cpus) == 0 && slices.ContainsFunc(away, func(id int) bool {
		return !slices.Contains(u.offline, id) && !slices.Contains(u.initialCPUs, id)
	})
}

// granted returns the CPUs that the agent reports for the owner, and those that are reserved
// for it.
func (u *unplugged) granted() (cpus, away []int) {
	for _, g := range nodeview.Status(u.mo.con).CPUs.Grants {
		if g.Pod == "default/"+u.owner.pod.Name && g.Container == u.owner.Name {
			return idsOf(g.CPUs), idsOf(g.Unusable)
		}
	}
	return nil, nil
}

// onMeanwhile restarts the agent after all CPUs came back.
func (u *unplugged) onMeanwhile(saved bool) {
	mo := u.mo
	// Neither record nor kernel distinguish a CPU that came back from one that was given up.
	u.excused = u.excused || !saved && len(u.offline) > 0
	for _, id := range u.offline {
		must(mo.kernel.SetOnline(id, true))
	}
	u.offline = nil
	mo.machine = found(nil)
	u.host()
	mo.unsaved = !saved
	mo.boot()
	mo.handle(mo.everything())
	mo.unsaved = false
}

// found is the machine as a starting agent finds it, while some CPUs are offline.
func found(offline []int) *topology.Machine {
	var cpus []topology.CPU
	for i := range 8 {
		if slices.Contains(offline, i) {
			cpus = append(cpus, topology.NewOfflineCPU(i, i/4))
			continue
		}
		cpus = append(cpus, topology.CPU{ID: i, Core: i / 2, Node: i / 4})
	}
	m, err := topology.Build(topology.Layout{CPUs: cpus, Offline: offline, Nodes: []topology.Node{{ID: 0, Memory: 1 << 30}, {ID: 1, Memory: 1 << 30}}})
	must(err)
	return m
}

// resync is a restarted runtime: the agent gets the whole list again.
func (u *unplugged) resync() {
	before := u.mo.cpusets()
	u.mo.handle(u.mo.everything())
	for dir, cpus := range u.mo.cpusets() {
		if before[dir] != cpus {
			u.mo.wrong("I4: a restart of the runtime moved %s from %s to %s", dir, before[dir], cpus)
		}
	}
}

func (u *unplugged) recreate() {
	p := u.owner.pod
	u.mo.remove(u.owner)
	u.mo.dress = u.dress(u.kind, u.due[p])
	u.podQuota(u.due[p])
	u.owner = u.mo.create(p, "a")
	u.mo.start(u.owner)
	u.created(u.due[p])
}

// created notes the CPUs in the record of the owner's container.
func (u *unplugged) created(cpus int) {
	has, away := u.granted()
	u.initial, u.initialCPUs = cpus, append(has, away...)
}

func (u *unplugged) resize(by int) {
	p := u.owner.pod
	n := u.due[p] + by
	if n < 1 {
		return
	}
	u.due[p] = n
	u.excused = u.excused || by > 0 && u.owns(u.owner) == "" // more are chosen in addition to those it has
	u.podQuota(max(n, n-by))
	u.mo.update(u.owner, whole(n))
	p.wants = whole(n)
	if !u.kind.untold {
		u.mo.updatePod(p, whole(n))
	}
	u.excused = u.excused || by > 0 && strings.Contains(u.said(u.owner), "the container requests") // there are too few to choose from
}

// podQuota does what the kubelet does before a container gets a larger limit: it raises the
// quota of the pod.
func (u *unplugged) podQuota(cpus int) {
	tree, dir := &cgroup.Tree{FS: u.mo.kernel, Version: u.mo.version}, path.Dir(u.owner.dir())
	if quota, _, err := tree.ReadBandwidth(dir); err == nil && quota != "-1" && quota != "max" {
		must(tree.Write(dir, lifecycle.Value{Field: lifecycle.CPUQuota, Int: int64(cpus) * 100000}))
	}
}

func (u *unplugged) another() {
	kind := ownerKind{label: "LSE"}
	if u.kind.assigned != "" {
		kind.assigned = fmt.Sprint(7 - len(u.due))
	}
	u.mo.dress = u.dress(kind, 1)
	p := u.mo.runPod("", "", "")
	u.due[p] = 1
	u.mo.start(u.mo.create(p, "a"))
	u.mo.dress = u.plain("BE", 2)
	u.mo.start(u.mo.create(u.mo.runPod("", "", ""), "a"))
}

// owns returns what the agent reports as owned by a container; "" for nothing.
func (u *unplugged) owns(c *modelCtr) string { return u.mo.ownedBy(c) }

// said returns the container's problems about its CPUs.
func (u *unplugged) said(c *modelCtr) string {
	told, _ := nodeview.Explain(u.mo.con, "default", c.pod.Name, c.Name)
	var all []string
	for _, t := range told {
		for _, p := range t.Problems {
			if t.ID == c.ID && !strings.Contains(p.Reason, "nor a pod spec says what the pod requests") { // for every pod whose sum is not reported
				all = append(all, p.String())
			}
		}
	}
	return strings.Join(all, "; ")
}

// check checks what holds at every moment.
func (u *unplugged) check() {
	mo := u.mo
	if u.follow {
		mo.copied()
	}
	mo.checkExclusive(u.step)
	used := map[int]bool{}
	for _, c := range mo.live() {
		if !c.started {
			continue
		}
		has := mo.effective(c)
		if u.due[c.pod] == 0 {
			continue
		}
		own := u.owns(c)
		if own != "" {
			for _, id := range idsOf(has) {
				used[id] = true
			}
		}
		if less := own == "" || len(idsOf(has)) < u.dueOf(c.pod) || has != own; less && u.said(c) == "" {
			mo.wrong("%s: %s is due %d CPUs, owns %q, has %q, and nothing is told", u.step, c.ID, u.dueOf(c.pod), own, has)
		}
	}
	for _, g := range nodeview.Status(mo.con).CPUs.Grants {
		if len(intersect(idsOf(g.Unusable), idsOf(g.CPUs))) > 0 || mo.version == cgroup.V2 && len(idsOf(g.Unusable)) != len(intersect(idsOf(g.Unusable), u.offline)) {
			mo.wrong("%s: %s has %s and is said to be without %s, offline are %v", u.step, g.Pod, g.CPUs, g.Unusable, u.offline)
		}
	}
	u.checkPools()
	for _, id := range idsOf(nodeview.Status(mo.con).CPUs.Exclusive) {
		if !used[id] {
			mo.wrong("%s: CPU %d is exclusive to nobody", u.step, id)
		}
	}
	u.checkOffline()
}

// checkPools checks that no pool counts a CPU that is reserved for its owner. In version 1 the
// CPU may be online, and no container can use it.
func (u *unplugged) checkPools() {
	now := nodeview.Status(u.mo.con).CPUs
	for _, g := range now.Grants {
		for _, p := range now.Pools {
			if both := intersect(idsOf(g.Unusable), idsOf(p.CPUs)); len(both) > 0 {
				u.mo.wrong("%s: pool %s has %v of %s, which are kept for %s", u.step, p.Name, both, p.CPUs, g.Pod)
			}
		}
	}
}

// dueOf returns how many CPUs a pod pays for. A scheduler's assignment is not resized.
func (u *unplugged) dueOf(p *modelPod) int {
	if u.kind.assigned != "" && p == u.owner.pod {
		return u.kind.cpus
	}
	return u.due[p]
}

// checkOffline checks that no list has an offline CPU.
func (u *unplugged) checkOffline() {
	for _, c := range u.mo.live() {
		text, _ := (&cgroup.Tree{FS: u.mo.kernel, Version: u.mo.version}).Read(c.dir(), lifecycle.CPUSetCPUs, "")
		if both := intersect(idsOf(strings.TrimSpace(text)), u.offline); len(both) > 0 {
			u.mo.wrong("%s: I2: %s is set to %q with %v offline", u.step, c.ID, text, u.offline)
		}
	}
}

// checkEnd checks what holds when all CPUs are online again.
func (u *unplugged) checkEnd() {
	for _, c := range u.mo.live() {
		due := u.dueOf(c.pod)
		if due == 0 || !c.started {
			continue
		}
		own, has, said := u.owns(c), u.mo.effective(c), u.said(c)
		complete := own == has && len(idsOf(own)) == due
		switch {
		case complete && said != "":
			u.mo.wrong("%s: %s has all it is due, %s, and is told of: %s", u.step, c.ID, own, said)
		case !complete && u.mo.version == cgroup.V2 && (!u.excused || c != u.owner):
			u.mo.wrong("%s: %s is due %d CPUs, owns %q and has %q: %s", u.step, c.ID, due, own, has, said)
		}
	}
}
