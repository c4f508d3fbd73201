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

// reported returns what the agent reports about owned CPUs and pools.
func (mo *model) reported() map[string]string {
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

// TestRecoveredAlike plays random histories on random machines. An agent that restarts with its
// checkpoint, or with only the runtime's records, reports the same as the agent before.
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
				live := mo.reported()
				for _, how := range []string{"the checkpoint", "records"} {
					mo.unsaved = how == "records"
					mo.restart()
					now := mo.reported()
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

// TestRecoveredFromKernel plays random histories on random machines, through each attachment.
// Then no record is trusted and the checkpoint is lost, as with another key and state
// directory. The agent keeps what the kernel shows: no running container moves, and no CPU has
// two owners.
func TestRecoveredFromKernel(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*model){
		"nri": func(*model) {}, "cri": func(mo *model) { mo.proxied = true }, "bypass": func(mo *model) { mo.from = observing{} },
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
	for _, p := range slices.Clone(mo.pods) { // no cgroup shows what they own
		if !slices.ContainsFunc(p.ctrs, func(c *modelCtr) bool { return !c.ended }) {
			mo.removePod(p)
		}
	}
	for _, c := range mo.live() {
		mo.start(c)
	}
	mo.copied() // for a container without a record the runtime's copy counts as the request
	if mo.starved() {
		return // then no cgroup shows which node it was
	}
	if mo.looksUnmanaged() {
		return // as at a first start, where it gets CPUs
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

// memories returns the memory nodes in told.
func (mo *model) memories() map[string]string {
	all := mo.reported()
	maps.DeleteFunc(all, func(what, _ string) bool { return !strings.HasPrefix(what, "memory") })
	return all
}

// starved reports whether a pool is bound to a NUMA node all of whose CPUs others own, so that
// it got CPUs of other nodes, or should be bound to one, and none had room.
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

// looksUnmanaged reports whether a container that was refused CPUs runs on all CPUs without a record,
// as if no agent had ever seen it.
func (mo *model) looksUnmanaged() bool {
	return slices.ContainsFunc(mo.live(), func(c *modelCtr) bool {
		found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
		return c.Annotations[conductor.RecordKey] == "" && mo.machine.OnlineOf(mo.effective(c)) == mo.machine.Online() &&
			len(found) == 1 && found[0].CPUGroup == "rest" && len(found[0].Problems) > 0
	})
}
