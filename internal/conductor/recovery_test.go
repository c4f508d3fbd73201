package conductor_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
)

// told is what can be asked of who owns what and where everybody sits.
func (mo *model) told() map[string]string {
	all := mo.cpusets()
	for g := range mo.grants() {
		all[g] = "granted"
	}
	for _, c := range mo.live() {
		found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
		for _, e := range found {
			all["seat of "+e.ID] = e.CPUGroup
			for _, v := range e.Values {
				if v.Field == lifecycle.CPUSetMems.String() {
					all["memory decided for "+e.ID] = v.Value
				}
			}
		}
		if c.started {
			all["memory of "+c.ID] = mo.memory(c)
		}
	}
	return all
}

func unite(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// TestRecoveredAlike plays random histories on random machines. An agent that is
// started again with its checkpoint, or with the runtime's records alone, is the same
// as the one that saw everything.
func TestRecoveredAlike(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				mo := newPooledOn(t, anyMachine(rt), v, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
				mo.once, mo.unlisted = true, true // as in TestRecoveredFromRecords
				play(mo, resizes(0, 0).Draw(rt, "history"))
				for _, c := range mo.live() {
					mo.start(c)
				}
				live := mo.told()
				for _, how := range []string{"the checkpoint", "records"} {
					mo.unsaved = how == "records"
					mo.restart()
					now := mo.told()
					for what := range unite(live, now) {
						if live[what] != now[what] {
							mo.wrong("after a restart with %s %s is %q, was %q", how, what, now[what], live[what])
						}
					}
				}
				if len(mo.broken) > 0 {
					rt.Fatalf("%v", mo.broken)
				}
			})
		})
	}
}

// TestRecoveredFromKernel plays random histories on random machines, through each
// attachment; then no record is trusted and the checkpoint is lost, as with another key
// and state directory. What the kernel shows is kept: nobody who runs is moved, and no
// CPU has two owners.
func TestRecoveredFromKernel(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*model){
		"nri": func(*model) {}, "cri": func(mo *model) { mo.proxied = true }, "bypass": func(mo *model) { mo.from = outsider{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) { recoverFromKernel(t, rt, change) })
		})
	}
}

func recoverFromKernel(t *testing.T, rt *rapid.T, change func(*model)) {
	t.Helper()
	mo := newPooledOn(t, anyMachine(rt), cgroup.V2, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
	mo.once, mo.unlisted = true, true
	change(mo)
	play(mo, resizes(0, 0, 13).Draw(rt, "history"))
	for _, p := range slices.Clone(mo.pods) { // what they own is in no cgroup
		if !slices.ContainsFunc(p.ctrs, func(c *modelCtr) bool { return !c.ended }) {
			mo.removePod(p)
		}
	}
	for _, c := range mo.live() {
		mo.start(c)
	}
	mo.copied() // of one without a record the runtime's copy is what was asked for
	if mo.starved() {
		return // which node it was is in no cgroup then
	}
	if mo.unseen() {
		return // as at a first start, where it is given CPUs
	}
	for _, c := range mo.live() {
		if c.Annotations != nil {
			c.Annotations = map[string]string{conductor.RecordKey: "signed with another key"}
		}
	}
	memory := mo.memories()
	mo.unsaved = true
	mo.restart()
	now := mo.memories()
	for what := range unite(memory, now) {
		if now[what] != memory[what] {
			mo.wrong("after a restart with the kernel alone %s is %q, was %q", what, now[what], memory[what])
		}
	}
	if len(mo.broken) > 0 {
		rt.Fatalf("%v", mo.broken)
	}
}

// memories is what of told is about memory nodes.
func (mo *model) memories() map[string]string {
	all := mo.told()
	maps.DeleteFunc(all, func(what, _ string) bool { return !strings.HasPrefix(what, "memory") })
	return all
}

// starved reports whether somebody's pool is bound to a NUMA node all of whose CPUs
// others own, so that it was given CPUs of other nodes; or was to be bound to one, and
// none had room.
func (mo *model) starved() bool {
	return slices.ContainsFunc(mo.live(), func(c *modelCtr) bool {
		_, after, bound := strings.Cut(c.Annotations[conductor.RecordKey], `"home":`)
		if level := c.pod.Annotations[intent.KatalystQoSLevel]; !bound {
			return c.pod.Annotations[intent.KatalystMemory] != "" && level != "dedicated_cores"
		}
		var home int
		_, err := fmt.Sscan(after[:strings.IndexAny(after, ",}")], &home)
		must(err)
		node, _ := mo.machine.Node(home)
		return !node.CPUs.Contains(mo.machine.OnlineOf(mo.effective(c)))
	})
}

// unseen reports whether somebody that was refused CPUs of its own runs on all there
// are without a record, as if no agent had ever seen it.
func (mo *model) unseen() bool {
	return slices.ContainsFunc(mo.live(), func(c *modelCtr) bool {
		found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
		return c.Annotations[conductor.RecordKey] == "" && mo.machine.OnlineOf(mo.effective(c)) == mo.machine.Online() &&
			len(found) == 1 && found[0].CPUGroup == "rest" && len(found[0].Problems) > 0
	})
}
