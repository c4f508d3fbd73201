package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// giving is a state whose policy gives devices of the kinds v.com/gpu and v.com/nic.
func giving(m *topology.Machine) *State {
	p := policy(m)
	p.Hooks = append(p.Hooks, hook.CDIDevicesOptions{Allowed: []string{"v.com/gpu=*"}, Classes: []string{"v.com/gpu", "v.com/nic"}})
	p.Rules = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
	p.Dialects = intent.Dialects()
	return NewState(m, p)
}

// deviceAsker is a pod whose containers ask for devices, as in the annotation.
func deviceAsker(uid, text string) *lifecycle.Pod {
	return &lifecycle.Pod{ID: "s-" + uid, UID: uid, Namespace: "d", Name: uid, Annotations: map[string]string{intent.TrimtabCDIDevices: text}}
}

func creation(pod *lifecycle.Pod, id, name string) *lifecycle.Event {
	return &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: id, PodID: pod.ID, Name: name, State: lifecycle.StateCreated}}
}

// char is a character device node.
func char(minor int64) lifecycle.Device {
	return lifecycle.Device{Path: fmt.Sprintf("/dev/gpu%d", minor), Type: "c", Major: 195, Minor: minor}
}

// TestDevicesOfSeveralNames: a specification names a card by number and by id, has a name for all cards, and parts of
// a card that share its device node. Nobody gets the same card twice.
func TestDevicesOfSeveralNames(t *testing.T) {
	of := func(name string, nodes ...lifecycle.Device) lifecycle.NodeDevice {
		return lifecycle.NodeDevice{Name: "v.com/gpu=" + name, Nodes: nodes}
	}
	part := lifecycle.Device{Path: "/dev/part0", Type: "c", Major: 236, Minor: 0}
	other := lifecycle.Device{Path: "/dev/part1", Type: "c", Major: 236, Minor: 1}
	cards := []lifecycle.NodeDevice{of("0", char(0)), of("1", char(1)), of("GPU-aa", char(0)), of("all", char(0), char(1))}
	parts := []lifecycle.NodeDevice{of("0:0", char(0), part), of("0:1", char(0), other)}
	for _, c := range []struct {
		name    string
		devices []lifecycle.NodeDevice
		before  string // what another container has
		asks    string
		gets    string
		refused string
	}{
		{"one", cards, "", `1`, "0", ""},
		{"both", cards, "", `2`, "0 1", ""},
		{"three", cards, "", `3`, "", "the pod requests 3 of the kind v.com/gpu, but only 2 of the node's 2 are free"},
		{"its other name is taken", cards, `"GPU-aa"`, `1`, "1", ""},
		{"its other name is taken, by name", cards, `"GPU-aa"`, `"0"`, "", "v.com/gpu=0 belongs to d/before/a"},
		{"all", cards, "", `"all"`, "all", ""},
		{"all are taken", cards, `"all"`, `1`, "", "0 of the node's 2 are free"},
		{"one of all is taken", cards, `1`, `"all"`, "", "v.com/gpu=all belongs to d/before/a"},
		{"two names of one", cards, "", `["0","GPU-aa"]`, "", "v.com/gpu=0 and v.com/gpu=GPU-aa are the same device"},
		{"a name that looks like a number", cards, "", `"1"`, "1", ""},
		{"parts", parts, "", `2`, "0:0 0:1", ""},
		{"another part is taken", parts, `"0:0"`, `1`, "0:1", ""},
		{"no such device", cards, "", `"7"`, "", "the node's CDI specifications have no device v.com/gpu=7"},
		{"no specification", nil, "", `1`, "", "the node's CDI specifications have no devices of the kind v.com/gpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := giving(node(t))
			f := Facts{NodeDevices: c.devices}
			if c.before != "" {
				s.Commit(Decide(s, creation(deviceAsker("before", `{"a":{"v.com/gpu":`+c.before+`}}`), "b", "a"), f))
			}
			s.Commit(Decide(s, creation(deviceAsker("u", `{"a":{"v.com/gpu":`+c.asks+`}}`), "c", "a"), f))
			ctr := s.Container("c")
			if got := strings.ReplaceAll(strings.Join(ctr.CDIDevices, " "), "v.com/gpu=", ""); got != c.gets {
				t.Errorf("it has %q, want %q", got, c.gets)
			}
			if !strings.Contains(ctr.DevicesRefused, c.refused) || (c.refused == "") != (ctr.DevicesRefused == "") {
				t.Errorf("refused %q, want %q", ctr.DevicesRefused, c.refused)
			}
			if problems := s.Problems(ctr); (len(problems) == 1 && problems[0].Refused) != (c.refused != "") {
				t.Errorf("problems are %v", problems)
			}
		})
	}
}

// TestDevicesOfOthers: what a request of the runtime, a claim or another key gave to a container is nobody's alone, and
// what a container has alone no other key gives.
func TestDevicesOfOthers(t *testing.T) {
	s := giving(node(t))
	f := Facts{NodeDevices: []lifecycle.NodeDevice{{Name: "v.com/gpu=0"}, {Name: "v.com/gpu=1"}}}
	ev := creation(deviceAsker("asked", ""), "asked", "a")
	ev.Container.CDIDevices = []string{"v.com/gpu=0"}
	s.Commit(Decide(s, ev, f))
	s.Commit(Decide(s, creation(deviceAsker("u", `{"a":{"v.com/gpu":1}}`), "c", "a"), f))
	if got := s.Container("c").CDIDevices; !slices.Equal(got, []string{"v.com/gpu=1"}) {
		t.Errorf("it has %q", got)
	}
	named := deviceAsker("named", "")
	named.Annotations = map[string]string{intent.NRICDI: "[v.com/gpu=1]"}
	s.Commit(Decide(s, creation(named, "n", "a"), f))
	n := s.Container("n")
	if problems := s.Problems(n); len(problems) != 1 || !strings.Contains(problems[0].Reason, "belongs to d/u/a") || len(s.Values(n)) != 0 {
		t.Errorf("problems %v, values %v", problems, s.Values(n))
	}
}

// TestRefusedDevicesFail: with the hook in failurePolicy.hooks, a container is not created without its devices.
func TestRefusedDevicesFail(t *testing.T) {
	s := giving(node(t))
	s.Policy.FatalHooks = map[string]bool{"cdiDevices": true}
	plan := Decide(s, creation(deviceAsker("u", `{"a":{"v.com/gpu":1}}`), "c", "a"), Facts{})
	if !strings.Contains(plan.Reject, "no devices of the kind v.com/gpu") || !strings.Contains(plan.Reject, "failurePolicy.hooks") {
		t.Errorf("rejected %q", plan.Reject)
	}
	if s.Commit(plan); len(s.Devices()) != 0 {
		t.Errorf("a refused container has %v", s.Devices())
	}
}

// deviceNode plays random histories of pods that ask for devices.
type deviceNode struct {
	*rapid.T

	s     *State
	all   []lifecycle.NodeDevice
	pods  map[string]*lifecycle.Pod
	live  map[string]*lifecycle.Container // by id
	count int
}

func (n *deviceNode) do(ev *lifecycle.Event, f Facts) *Plan {
	plan := Decide(n.s, ev, f)
	n.s.Commit(plan)
	return plan
}

// check is the invariant: no two keys have the same device, nobody has devices without being there, and a live
// container still has what it was created with.
func (n *deviceNode) check() {
	owner := map[string]placement.Key{}
	for key, names := range n.s.Devices() {
		for _, name := range names {
			if other, twice := owner[name]; twice {
				n.Fatalf("%s is held by %v and %v", name, other, key)
			}
			owner[name] = key
		}
		if n.pods[key.PodUID] == nil {
			n.Fatalf("%v has %q, and its pod has ended", key, names)
		}
	}
	has := map[string]string{} // by device, the container
	for id := range n.live {
		c := n.s.Container(id)
		if c == nil || !c.Alive() {
			continue
		}
		for _, name := range c.CDIDevices {
			if has[name] != "" {
				n.Fatalf("%s is in %s and %s", name, has[name], id)
			}
			if has[name] = id; owner[name] != c.Key {
				n.Fatalf("%s is in %s, and %v holds it", name, id, owner[name])
			}
		}
	}
}

func (n *deviceNode) create() {
	uids := sortedKeys(n.pods)
	uid := rapid.SampledFrom(append(uids, "new")).Draw(n.T, "pod")
	if uid == "new" {
		n.count++
		uid = fmt.Sprint("u", n.count)
		ask := func(name string) string {
			if rapid.Bool().Draw(n.T, "by name") {
				return fmt.Sprintf(`%q:{"v.com/gpu":["%d"]}`, name, rapid.IntRange(0, 7).Draw(n.T, "device"))
			}
			return fmt.Sprintf(`%q:{"v.com/gpu":%d}`, name, rapid.IntRange(1, 3).Draw(n.T, "number"))
		}
		n.pods[uid] = deviceAsker(uid, "{"+ask("a")+","+ask("b")+"}")
	}
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(n.T, "container")
	for id, c := range n.live { // the kubelet creates no second one while one lives
		if c.PodID == n.pods[uid].ID && c.Name == name && c.State != lifecycle.StateStopped {
			if c.State != lifecycle.StateCreated || rapid.Bool().Draw(n.T, "it runs") {
				return
			}
			delete(n.live, id) // the creation of the container failed after the decision, and no event reports that
		}
	}
	n.count++
	ev := creation(n.pods[uid], fmt.Sprint("c", n.count), name)
	n.do(ev, Facts{NodeDevices: n.all})
	n.live[ev.Container.ID] = ev.Container
}

// some returns a container that the runtime has.
func (n *deviceNode) some() *lifecycle.Container {
	ids := sortedKeys(n.live)
	if len(ids) == 0 {
		return nil
	}
	return n.live[rapid.SampledFrom(ids).Draw(n.T, "which")]
}

func (n *deviceNode) podOf(c *lifecycle.Container) *lifecycle.Pod {
	return n.pods[strings.TrimPrefix(c.PodID, "s-")]
}

func (n *deviceNode) end() {
	uids := sortedKeys(n.pods)
	if len(uids) == 0 {
		return
	}
	uid := rapid.SampledFrom(uids).Draw(n.T, "ends")
	kind := rapid.SampledFrom([]lifecycle.Kind{lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox}).Draw(n.T, "how")
	n.do(&lifecycle.Event{Kind: kind, Pod: n.pods[uid]}, Facts{})
	for id, c := range n.live {
		if c.PodID == n.pods[uid].ID {
			delete(n.live, id)
		}
	}
	delete(n.pods, uid)
}

// restart builds the state again from records and checkpoint. Some runtimes do not list stopped containers.
func (n *deviceNode) restart() {
	before := map[string][]string{}
	ev, f := &lifecycle.Event{Kind: lifecycle.Synchronize}, Facts{Records: map[string]Record{}, HeldDevices: n.s.HeldDevices()}
	for _, uid := range sortedKeys(n.pods) {
		ev.Pods = append(ev.Pods, n.pods[uid])
	}
	for _, id := range sortedKeys(n.live) {
		c := n.s.Container(id)
		if c == nil {
			continue
		}
		if n.live[id].State == lifecycle.StateStopped && rapid.Bool().Draw(n.T, "unlisted") {
			delete(n.live, id)
			continue
		}
		ev.Containers = append(ev.Containers, n.live[id])
		f.Records[id] = Record{Version: lifecycle.RecordVersion, RecordFields: c.RecordFields}
		if c.Alive() {
			before[id] = c.CDIDevices
		}
	}
	holds := fmt.Sprint(n.s.Devices())
	n.s = giving(n.s.Machine)
	n.do(ev, f)
	for id, had := range before {
		if c := n.s.Container(id); c == nil || !slices.Equal(c.CDIDevices, had) {
			n.Fatalf("%s had %q before a restart, and is %+v", id, had, c)
		}
	}
	if now := fmt.Sprint(n.s.Devices()); now != holds {
		n.Fatalf("before a restart %s, then %s", holds, now)
	}
}

// TestNoDeviceTwice: over random creations, failures, removals and restarts no device is given twice, and none is lost.
func TestNoDeviceTwice(t *testing.T) {
	m := node(t)
	var all []lifecycle.NodeDevice
	for i := range int64(8) {
		all = append(all, lifecycle.NodeDevice{Name: fmt.Sprint("v.com/gpu=", i), Nodes: []lifecycle.Device{char(i)}})
	}
	all = append(all, lifecycle.NodeDevice{Name: "v.com/gpu=GPU-3", Nodes: []lifecycle.Device{char(3)}})
	rapid.Check(t, func(rt *rapid.T) {
		n := &deviceNode{T: rt, s: giving(m), all: all, pods: map[string]*lifecycle.Pod{}, live: map[string]*lifecycle.Container{}}
		change := func(kind lifecycle.Kind, state lifecycle.State) func(*rapid.T) {
			return func(*rapid.T) {
				if c := n.some(); c != nil && c.State != lifecycle.StateStopped {
					c.State = state
					n.do(&lifecycle.Event{Kind: kind, Pod: n.podOf(c), Container: c}, Facts{})
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":        func(*rapid.T) { n.check() },
			"create":  func(*rapid.T) { n.create() },
			"start":   change(lifecycle.StartContainer, lifecycle.StateRunning),
			"stop":    change(lifecycle.StopContainer, lifecycle.StateStopped),
			"end":     func(*rapid.T) { n.end() },
			"restart": func(*rapid.T) { n.restart() },
			"remove": func(*rapid.T) {
				if c := n.some(); c != nil {
					delete(n.live, c.ID)
					n.do(&lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: n.podOf(c), Container: c}, Facts{})
				}
			},
			"configure": func(*rapid.T) { n.do(&lifecycle.Event{Kind: lifecycle.Configure}, Facts{}) },
		})
		for len(n.pods) > 0 {
			n.end()
		}
		if len(n.s.Devices()) > 0 {
			rt.Fatalf("after the end of all pods: %v", n.s.Devices())
		}
	})
}

// TestPlannedDevices: a planned pod gets what a real one would, and takes nothing from the state.
func TestPlannedDevices(t *testing.T) {
	s := giving(node(t))
	pod := deviceAsker("planned", `{"a":{"v.com/gpu":1}}`)
	w := PlannedPod{Pod: *pod, Devices: []lifecycle.NodeDevice{{Name: "v.com/gpu=0", Nodes: []lifecycle.Device{char(0)}}}, Containers: []lifecycle.Container{
		{ID: "p-a", PodID: pod.ID, Name: "a"},
	}}
	then := s.Copy()
	if refused := then.WhatIf([]PlannedPod{w}); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	c := then.Container("p-a")
	if !slices.Equal(c.CDIDevices, []string{"v.com/gpu=0"}) || len(c.ProblemSummary.Problems) > 0 {
		t.Errorf("devices %v, problems %v", c.CDIDevices, c.ProblemSummary.Problems)
	}
	if len(s.Devices()) > 0 {
		t.Errorf("a plan took %v", s.Devices())
	}
}
