package conductor_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/record"
)

// undescribed are the pods and containers that a runtime lists and cannot describe.
type undescribed struct {
	pods, ctrs map[string]bool
	// parents: an undescribed pod's cgroup is known from its containers.
	parents bool
}

// blur removes from a Synchronize what a runtime does not say about them, as attachments report
// it. NRI reports all or nothing; with a proxy the runtime's list has the records; with an
// attachment beside the runtime only the checkpoint has them.
func (b *undescribed) blur(mo *model) func(ev *lifecycle.Event) {
	return func(ev *lifecycle.Event) {
		for _, p := range ev.Pods {
			if b.pods[p.ID] {
				p.Undescribed, p.Resources = "unreadable", nil
				if !b.parents {
					p.CgroupParent = ""
				}
			}
		}
		for i, c := range ev.Containers {
			switch {
			case b.ctrs[c.ID]:
				n := &lifecycle.Container{ID: c.ID, PodID: c.PodID, Name: c.Name, State: c.State, CreatedAt: c.CreatedAt, Undescribed: "unreadable"}
				if !mo.beside() {
					n.Annotations = c.Annotations
				}
				ev.Containers[i] = n
			case b.pods[c.PodID]:
				c.Undescribed = "of its pod: unreadable"
			}
		}
	}
}

// reread reports what the runtime can describe again.
func (b *undescribed) reread(mo *model) {
	for _, p := range mo.pods {
		if b.pods[p.ID] && !p.stopped {
			mo.handle(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: clone(&p.Pod)})
		}
	}
	for _, c := range mo.live() {
		if b.ctrs[c.ID] || b.pods[c.pod.ID] {
			mo.handle(lifecycle.Event{Kind: lifecycle.StartContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
			mo.checkExclusive("when " + c.ID + " can be read")
		}
	}
}

// owners are the cgroups of containers that own CPUs.
func (mo *model) owners() map[string]bool {
	out := map[string]bool{}
	for _, c := range mo.live() {
		if c.started && mo.grants()["default/"+c.pod.Name+"/"+c.Name+" "+mo.effective(c)] {
			out[c.dir()] = true
		}
	}
	return out
}

// TestUndescribed plays random histories. Then an agent starts at a runtime that cannot describe
// some of its containers. These keep what they own, no later event gives it to others, all
// others are decided as usual, and nothing moves when the runtime describes them again.
func TestUndescribed(t *testing.T) {
	t.Parallel()
	both, v2 := []cgroup.Version{cgroup.V1, cgroup.V2}, []cgroup.Version{cgroup.V2}
	for _, way := range []struct {
		name     string
		versions []cgroup.Version
		how      func(*model)
	}{
		{"cri", both, func(mo *model) { mo.proxied = true }},
		{"cri, originals", both, func(mo *model) { mo.proxied = true; mo.keep() }},
		{"cri, checkpoint lost", both, func(mo *model) { mo.proxied, mo.unsaved, mo.unlisted = true, true, true }},
		{"bypass", both, func(mo *model) { mo.from = observing{} }},
		{"cri, partitions", v2, func(mo *model) { mo.proxied, mo.journal = true, &memory{}; parted(mo) }},
	} {
		for _, pools := range []bool{false, true} {
			t.Run(way.name+map[bool]string{true: " pools"}[pools], func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(rt *rapid.T) {
					playUnread(t, rt, rapid.SampledFrom(way.versions).Draw(rt, "version"), pools, way.how)
				})
			})
		}
	}
}

func playUnread(t *testing.T, rt *rapid.T, v cgroup.Version, pools bool, how func(*model)) {
	t.Helper()
	mo := newModel(t, v, faults{})
	if pools {
		mo = newPooledOn(t, eight(t), v, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
	}
	mo.once = true
	how(mo)
	if pools {
		play(mo, resizes(0, 0, 7).Draw(rt, "history"))
	} else {
		play(mo, steps().Draw(rt, "history"))
	}
	for _, c := range mo.live() {
		mo.start(c)
	}
	b := &undescribed{pods: map[string]bool{}, ctrs: map[string]bool{}, parents: rapid.Bool().Draw(rt, "parents")}
	mask := rapid.Uint64().Draw(rt, "unread")
	for i, c := range mo.live() {
		b.ctrs[c.ID] = mask>>(i%32)&1 == 1
		b.pods[c.pod.ID] = b.pods[c.pod.ID] || mask>>(32+i%32)&3 == 3
	}
	mo.restart()
	if len(mo.broken) > 0 {
		return // other tests check these
	}
	granted := mo.grants()
	mo.hideDescriptions = b.blur(mo)
	mo.restart()
	mo.hideDescriptions = nil
	for g := range granted {
		if !mo.grants()[g] && mo.alive(g) {
			mo.wrong("I4: %s was granted and is not when some cannot be read: %v", g, mo.grants())
		}
	}
	told := map[string]string{}
	for dir, cpus := range mo.cpusets() {
		told[dir] = cpus
	}
	for i := range rapid.IntRange(0, 3).Draw(rt, "comes") {
		class := someClasses[rapid.IntRange(0, len(someClasses)-1).Draw(rt, "class")]
		asked := ""
		if class == "LSR" || class == "LSE" {
			asked = someCPUs[(i+rapid.IntRange(0, 5).Draw(rt, "asked"))%len(someCPUs)]
		}
		if c := mo.create(mo.runPod(class, asked, ""), "a"); c != nil {
			mo.start(c)
		}
	}
	b.reread(mo)
	for _, c := range mo.live() {
		if mo.effective(c) != told[c.dir()] && told[c.dir()] != "" && mo.owns(c) {
			mo.wrong("I4: %s owned %s before it could be read, and has %s", c.ID, told[c.dir()], mo.effective(c))
		}
	}
	mo.restart()
	if len(mo.broken) > 0 {
		rt.Fatalf("%s", strings.Join(mo.broken, "\n"))
	}
}

var _ conductor.Carrier = observing{}

// TestCheckpointOneUnreadable: an entry of a checkpoint that cannot be read does not affect the
// others.
func TestCheckpointOneUnreadable(t *testing.T) {
	t.Parallel()
	mo := newModel(t, cgroup.V2, faults{})
	mo.from = observing{} // only the checkpoint has their records
	for range 2 {
		mo.start(mo.create(mo.runPod("LSR", []string{"2-3", "4-5"}[len(mo.pods)], ""), "a"))
	}
	saved := string(mo.con.Checkpoint().Text())
	broken := strings.Replace(saved, `"ctr-2":{`, `"ctr-2":{"cpus":7,"CPUs":7,"c":7,"o":7,`, 1)
	if broken == saved {
		t.Fatalf("no such container in %s", saved)
	}
	broken = strings.Replace(broken, `"ctr-2":{`, `"of nobody":[],"ctr-2":{`, 1)
	if err := record.CheckDecodable([]byte(broken)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	mo.log = &log
	mo.bootWith([]byte(broken))
	mo.handle(mo.everything())
	if got := fmt.Sprint(mo.grants()); !strings.Contains(got, "4-5") || !strings.Contains(got, "2-3") {
		t.Errorf("granted %s", got)
	}
	if !strings.Contains(log.String(), "checkpoint of of nobody") {
		t.Errorf("log: %s", &log)
	}
}
