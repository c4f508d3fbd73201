package conductor_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement/pools"
)

// outside is a cgroup of another program, such as system.slice.
const outside = "system"

// parted gives a model's kernel remote partitions, and makes its agent use them.
func parted(mo *model) *model {
	must(mo.kernel.SetRelease("6.12"))
	must(mo.kernel.MkdirRunc(outside))
	mo.policy.Hooks = append(mo.policy.Hooks, partitionHook)
	mo.con = nil
	mo.boot()
	return mo
}

// partAgain switches partitions on again after another configuration. No CPUs are lent.
func (mo *model) partAgain() {
	mo.policy.Hooks = slices.DeleteFunc(slices.Clone(mo.policy.Hooks), func(h hook.Hook) bool { return h.Info().Name == "partition" })
	mo.policy.Hooks = append(mo.policy.Hooks, partitionHook)
	mo.lending = mo.lends()
	mo.choosing(func(p *pools.Policy) { p.LendLSR = false })
	mo.con.Configure(mo.policy, conductor.Tuning{})
	mo.lending = false
}

var partitionHook = hook.Partition{KernelSupport: lifecycle.Finding{Support: lifecycle.Supported}}

func (mo *model) file(path string) string {
	text, err := mo.kernel.ReadFile(path)
	must(err)
	return strings.TrimSpace(string(text))
}

// checkPartitions checks that exactly the pods with exclusive CPUs are partitions, and that the
// cgroups above have the CPUs of the partitions below and no more.
func (mo *model) checkPartitions(when string) {
	owned := map[string][]int{}
	for _, g := range nodeview.Status(mo.con).CPUs.Grants {
		owned[g.Pod] = append(owned[g.Pod], idsOf(g.CPUs)...)
	}
	var all []int
	for _, p := range mo.pods {
		dir, own := p.CgroupParent[1:], owned["default/"+p.Name]
		alone := len(own) > 0 && !p.stopped
		for _, c := range p.ctrs {
			// A container whose creation failed twice has no cpuset before it starts, and the
			// copy of one whose pod gave up CPUs is updated later.
			at := c.Resources.CPU.CPUs
			pending := !c.started && mo.ownedBy(c) != "" && (at == "" || len(intersect(own, idsOf(at))) == len(own))
			if c.started && !c.ended {
				at = mo.file(c.dir() + "/cpuset.cpus") // the runtime's copy is updated later
			}
			alone = alone && (c.ended || pending || at != "" && len(intersect(idsOf(at), own)) == len(idsOf(at)))
		}
		is, has := mo.file(dir+"/cpuset.cpus.partition"), mo.file(dir+"/cpuset.cpus.exclusive")
		if alone {
			all = append(all, own...)
		}
		switch {
		case alone && (is != "root" || has != canonicalOf(own)):
			mo.wrong("%s: %s owns CPUs %v and is %q with %q", when, p.Name, own, is, has)
		case !alone && (is != "member" || has != ""):
			mo.wrong("%s: %s is %q with %q and has no CPUs alone", when, p.Name, is, has)
		}
	}
	if got := mo.file("kubepods/cpuset.cpus.exclusive"); got != canonicalOf(all) {
		mo.wrong("%s: the cgroup above partitions of %v has %q", when, all, got)
	}
	if both := intersect(all, idsOf(mo.file(outside+"/cpuset.cpus.effective"))); len(both) > 0 {
		mo.wrong("%s: a service of the host may use CPUs %v", when, both)
	}
}

func canonicalOf(ids []int) string {
	if len(ids) == 0 {
		return ""
	}
	return canonical(strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]"))
}

// TestPartitions plays random histories with partitions: I1 and I2 hold at every write, and at
// the end the partitions match the grants. A release removes all of them.
func TestPartitions(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		t.Run(fmt.Sprintf("pools=%t", pooled), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				mo := newModel(t, cgroup.V2, faults{})
				if pooled {
					mo = newPooled(t, cgroup.V2, faults{}, 1+2*rapid.IntRange(0, 99).Draw(rt, "seed")) // no CPUs are lent
				}
				mo.journal = &memory{}
				parted(mo)
				mo.proxied = rapid.Bool().Draw(rt, "proxied")
				history := steps()
				if pooled && rapid.Bool().Draw(rt, "resizes") {
					history, mo.once = resizes(4, 8, 13), true
				}
				play(mo, history.Draw(rt, "history"))
				mo.partAgain()
				mo.checkPartitions("at the end")
				mo.kernel.OnWrite(nil) // a release restores everything that was decided
				policy := mo.policy
				policy.Hooks, policy.PlacementOn = nil, false
				if r := mo.con.Release(t.Context(), policy); len(r.Failed)+len(r.LeftToOthers) > 0 {
					mo.wrong("released: left %+v, failed %+v", r.LeftToOthers, r.Failed)
				}
				mo.checkUnparted()
				if len(mo.broken) > 0 {
					rt.Fatalf("%v", mo.broken)
				}
			})
		})
	}
}

// checkUnparted checks that no partition is left.
func (mo *model) checkUnparted() {
	for _, p := range mo.pods {
		if is, has := mo.file(p.CgroupParent[1:]+"/cpuset.cpus.partition"), mo.file(p.CgroupParent[1:]+"/cpuset.cpus.exclusive"); is != "member" || has != "" {
			mo.wrong("after a release %s is %q with %q", p.Name, is, has)
		}
	}
	if has := mo.file("kubepods/cpuset.cpus.exclusive"); has != "" {
		mo.wrong("after a release the cgroup above has %q", has)
	}
}

// TestPartitionsRefused: the kernel refuses some or all writes that make partitions. I1 and I2
// hold at every write all the same. When the kernel accepts them again, a restart makes every
// partition.
func TestPartitionsRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		mo := newModel(t, cgroup.V2, faults{})
		mo.journal = &memory{}
		parted(mo)
		one, n := rapid.IntRange(1, 4).Draw(rt, "one in"), 0
		mo.kernel.FailWrites(func(path, value string) error {
			if !strings.HasSuffix(path, "cpuset.cpus.partition") && !strings.HasSuffix(path, "cpuset.cpus.exclusive") || value == "member" || value == "\n" {
				return nil
			}
			if n++; n%one != 0 {
				return nil
			}
			return syscall.EINVAL
		})
		play(mo, steps().Draw(rt, "history"))
		mo.kernel.FailWrites(nil)
		mo.partAgain()
		mo.restart()
		mo.checkPartitions("when nothing is refused any more")
		if len(mo.broken) > 0 {
			rt.Fatalf("%v", mo.broken)
		}
	})
}

// TestPartitionFaults shows that checkPartitions can fail, and that a partition alone keeps
// others off its CPUs.
func TestPartitionFaults(t *testing.T) {
	t.Parallel()
	lost := func(name string) string {
		mo := newModel(t, cgroup.V2, faults{forgetShrink: name == "cpuset.cpus"})
		parted(mo)
		if name == "cpuset.cpus.partition" {
			mo.con = nil
			mo.policy.Hooks = mo.policy.Hooks[:len(mo.policy.Hooks)-1]
			mo.boot()
		}
		mo.start(mo.create(mo.runPod("", "", ""), "a"))
		mo.start(mo.create(mo.runPod("LSE", "2-3", ""), "a"))
		mo.checkPartitions("with an owner")
		return strings.Join(mo.broken, "; ")
	}
	if got := lost("cpuset.cpus.partition"); !strings.Contains(got, "owns CPUs") || !strings.Contains(got, "a service of the host may use CPUs [2 3]") {
		t.Errorf("without partitions: %q", got)
	}
	if got := lost("cpuset.cpus"); got != "" {
		t.Errorf("without the others' sets: %q", got)
	}
}

// TestPartitionRefusalIsReported: a cgroup above the pods is a partition of another program. The
// agent makes none below it, changes nothing there, and reports the reason.
func TestPartitionRefusalIsReported(t *testing.T) {
	t.Parallel()
	mo := newModel(t, cgroup.V2, faults{})
	log := &strings.Builder{}
	mo.log = log
	parted(mo)
	must(mo.kernel.WriteFile("kubepods/cpuset.cpus.exclusive", []byte("1-7")))
	must(mo.kernel.WriteFile("kubepods/cpuset.cpus.partition", []byte("root")))
	owner := mo.runPod("LSE", "2-3", "")
	mo.start(mo.create(owner, "a"))
	for file, want := range map[string]string{
		"kubepods/cpuset.cpus.exclusive": "1-7", "kubepods/cpuset.cpus.partition": "root",
		owner.CgroupParent[1:] + "/cpuset.cpus.exclusive": "", owner.CgroupParent[1:] + "/cpuset.cpus.partition": "member",
	} {
		if got := mo.file(file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	if nodeview.Summary(mo.con).Kernel["refused"] != 2 || !strings.Contains(log.String(), "the kernel refused a value") || !strings.Contains(log.String(), "kubepods is a partition itself") {
		t.Errorf("told: %v, log %s", nodeview.Summary(mo.con).Kernel, log)
	}
}

// TestPartitionUnplugged takes one of an owner's CPUs offline and brings it back.
func TestPartitionUnplugged(t *testing.T) {
	t.Parallel()
	mo := parted(newModel(t, cgroup.V2, faults{}))
	pod := mo.runPod("LSE", "2-3", "")
	owner, silent := mo.create(pod, "a"), mo.create(mo.runPod("", "", ""), "a")
	mo.start(owner)
	mo.start(silent)
	for _, c := range []struct {
		when        string
		offline     []int
		own, others string
	}{{"before", nil, "2-3", "0-1,4-7"}, {"without 3", []int{3}, "2", "0-1,4-7"}, {"with 3 again", nil, "2-3", "0-1,4-7"}} {
		if c.when != "before" {
			mo.online(c.offline...)
		}
		dir := pod.CgroupParent[1:]
		got := []string{
			mo.file(dir + "/cpuset.cpus.partition"), mo.file(dir + "/cpuset.cpus.exclusive"), mo.effective(owner), mo.effective(silent), mo.file(outside + "/cpuset.cpus.effective"),
		}
		if want := []string{"root", c.own, c.own, c.others, c.others}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.when, got, want)
		}
	}
	for _, b := range mo.broken {
		t.Error(b)
	}
}
