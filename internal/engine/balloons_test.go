package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/balloons/pick"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

func balloonTypes() []balloons.TypeOptions {
	return []balloons.TypeOptions{
		{Name: "fixed", Namespaces: []string{"fixed"}, Loads: []string{"cores"}, MinCPUs: 2, MaxCPUs: 2, PreferNewBalloons: true, AllocatorPriority: "high"},
		{Name: "grows", Namespaces: []string{"grows"}, Loads: []string{"within"}, MaxCPUs: 5, MinBalloons: 1, AllocatorPriority: "normal"},
		{Name: "spreads", Namespaces: []string{"spreads"}, MaxCPUs: 3, MaxBalloons: 3, PreferSpreadingPods: true, AllocatorPriority: "high"},
		{Name: "apart", Namespaces: []string{"apart-*"}, PreferPerNamespaceBalloon: true, AllocatorPriority: "low"},
		{Name: "grouped", Namespaces: []string{"grouped"}, GroupBy: "${pod/labels/app}", MaxCPUs: 4, AllocatorPriority: "none"},
		{Name: "left", Loads: []string{"cores"}, PreferCloseToDevices: []string{"/sys/devices/system/node/node0"}, MaxCPUs: 3, AllocatorPriority: "normal"},
		{Name: "right", PreferCloseToDevices: []string{"/sys/devices/system/node/node2"}, AllocatorPriority: "normal"},
		{Name: "both", Namespaces: []string{"both"}, AllocatorPriority: "normal", Components: []balloons.ComponentOptions{{BalloonType: "left"}, {BalloonType: "right"}}},
		{
			Name: "either", Namespaces: []string{"either"}, AllocatorPriority: "normal", PreferNewBalloons: true, MaxCPUs: 2,
			Components: []balloons.ComponentOptions{{BalloonType: "left"}, {BalloonType: "right"}}, ComponentCreation: "balance-balloons",
		},
	}
}

func balloonLoads() []balloons.LoadOptions {
	return []balloons.LoadOptions{{Name: "cores", Level: "core"}, {Name: "within", Level: "core", OverloadsLevelInBalloon: true}}
}

func balloonsPolicy(t testing.TB, text string, o balloons.PolicyOptions) (*topology.Machine, Policy) {
	t.Helper()
	m, err := describe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p := policy(m)
	p.Pools.Reserved = topology.SetOf(0)
	p.Pools.Shared = m.Online().Minus(p.Pools.Reserved)
	o.ReservedPoolNamespaces, o.PinCPU, o.PinMemory = []string{"kube-system"}, true, true
	p.Placement = balloons.New(m, pick.New(m), o)
	return m, p
}

// balloonPod is a pod with one container.
func balloonPod(n int, namespace, app string, milli int64) (*lifecycle.Pod, *lifecycle.Container) {
	r := lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(intent.SharesFromMilli(milli))}}
	pod := &lifecycle.Pod{
		Annotations: map[string]string{},
		ID:          fmt.Sprintf("s%03d", n), UID: fmt.Sprintf("u%03d", n), Namespace: namespace, Name: fmt.Sprintf("p%d", n),
		CgroupParent: fmt.Sprintf("/kubepods/burstable/pod%d", n), Labels: map[string]string{"app": app}, Resources: &r,
	}
	return pod, &lifecycle.Container{ID: fmt.Sprintf("c%03d", n), PodID: pod.ID, Name: "main", CreatedAt: int64(n), State: lifecycle.StateRunning, Resources: r}
}

// targetCPUCount returns how many CPUs a balloon has if enough are free.
func targetCPUCount(s *State, name string) int {
	milli, used := int64(0), 0
	for _, id := range s.Containers() {
		if c := s.Container(id); c.Alive() && c.Balloon == name {
			milli, used = milli+sharesMilli(&c.Pristine), 1
		}
	}
	if strings.HasPrefix(name, "both[") {
		half := max(int(((milli+1)/2+999)/1000), used)
		return min(half, 3) + half
	}
	n := max(int((milli+999)/1000), used)
	for _, o := range balloonTypes() {
		if strings.HasPrefix(name, o.Name+"[") {
			if n = max(n, o.MinCPUs); o.MaxCPUs > 0 {
				n = min(n, o.MaxCPUs)
			}
		}
	}
	return n
}

// checkBalloons checks invariants after every event.
func checkBalloons(t *rapid.T, s *State) {
	t.Helper()
	var taken topology.Set
	for _, name := range slices.Sorted(maps.Keys(s.Balloons())) {
		cpus := s.Balloons()[name]
		if of, _, is := strings.Cut(name, "/"); is { // a component
			if !s.Balloons()[of].Contains(cpus) {
				t.Fatalf("%s has CPUs that %s has not", name, of)
			}
			continue
		}
		if both := taken.And(cpus); !both.Empty() {
			t.Fatalf("%s has CPUs %s of another balloon", name, s.Machine.Format(both))
		}
		taken = taken.Union(cpus)
		if !strings.HasPrefix(name, "reserved[") && cpus.Has(0) {
			t.Fatalf("%s has the reserved CPU", name)
		}
		want := targetCPUCount(s, name)
		idle := s.layout.Idle.Minus(s.Policy.Pools.Reserved)
		if cpus.Len() > want || cpus.Len() < want && !idle.Empty() {
			t.Fatalf("%s has %d CPUs, want %d; idle are %s", name, cpus.Len(), want, s.Machine.Format(idle))
		}
	}
}

// TestBalloons: no CPU is in two balloons; each balloon has as many CPUs as its containers and type
// request, unless none is free; an event changes only the balloon of its container and those that lacked
// CPUs; the same events give the same decisions; and records give the same state as the events.
func TestBalloons(t *testing.T) {
	t.Parallel()
	m, p := balloonsPolicy(t, "2s x 2n x 4c x 2t", balloons.PolicyOptions{BalloonTypes: balloonTypes(), LoadClasses: balloonLoads()})
	p.Dialects = append(slices.Clone(p.Dialects), "nri-plugins")
	p.Rules = intent.Rules{{
		Kinds: []intent.Kind{intent.BalloonKind, intent.PreserveKind, intent.MemoryTypeKind}, Namespaces: []string{"fixed", "grows"}, Decision: intent.Allow,
	}}
	rapid.Check(t, func(t *rapid.T) {
		s := NewState(m, p)
		live := map[int]*lifecycle.Container{}
		pods := map[int]*lifecycle.Pod{}
		for n := range rapid.IntRange(1, 40).Draw(t, "events") {
			var ev *lifecycle.Event
			of := ""
			if ids := slices.Sorted(maps.Keys(live)); len(ids) > 0 && rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
				i := rapid.SampledFrom(ids).Draw(t, "which")
				ev = &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pods[i]}
				of = s.Container(live[i].ID).Balloon
				delete(live, i)
				delete(pods, i)
			} else {
				space := rapid.SampledFrom([]string{"fixed", "grows", "spreads", "apart-1", "apart-2", "grouped", "both", "either", "other", "kube-system"}).Draw(t, "namespace")
				pods[n], live[n] = balloonPod(n, space, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "app"), rapid.SampledFrom([]int64{0, 100, 500, 1000, 1500, 2500}).Draw(t, "milli"))
				pods[n].Annotations = drawnAnnotations(t)
				ev = &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pods[n], Container: live[n]}
			}
			again := Decide(s.Copy(), ev, Facts{})
			plan, was := Decide(s, ev, Facts{}), s.layout
			checkMarks(t, plan)
			if a, b := fmt.Sprint(again.GroupChanges), fmt.Sprint(plan.GroupChanges); a != b {
				t.Fatalf("decided %s, and %s", a, b)
			}
			if plan.Container != nil {
				of = plan.Container.Balloon
			}
			for _, g := range plan.GroupChanges {
				name := g.Group.PoolID.Name
				if starved := s.Balloons()[name].Len() < targetCPUCount(s, name); name != of && !starved {
					t.Fatalf("an event of %s changes %s, which had all its CPUs", of, name)
				}
			}
			s.Commit(plan)
			checkBalloons(t, s)
			checkDerived(t, was, s)
			if c := plan.Container; c != nil && ev.Kind == lifecycle.CreateContainer {
				checkAsked(t, s, pods[n], s.Container(c.ID))
			}
		}
		checkRecovered(t, s, pods, live)
	})
}

// checkMarks compares the numbers of containers by mark.
func checkMarks(t *rapid.T, plan *Plan) {
	t.Helper()
	if plan.draft == nil {
		return
	}
	n := &plan.draft.n
	counts := map[placement.Membership]int{}
	for _, c := range n.changedContainers(true) {
		if c.Alive() {
			for _, m := range c.Assignment.Memberships {
				counts[m]++
			}
		}
	}
	for _, all := range []map[placement.Membership]int{counts, n.memberships, n.base.memberships} {
		for m := range all {
			if got := (balloonContainers{n}).countMembers(m); got != counts[m] {
				t.Fatalf("%d containers with %v, counted %d", got, m, counts[m])
			}
		}
	}
}

// drawnAnnotations draws the annotations of a pod.
func drawnAnnotations(t *rapid.T) map[string]string {
	out := map[string]string{}
	all := map[string][]string{
		intent.NRIBalloon: {"", "fixed", "grows", "default", "reserved", "unknown"}, intent.NRIHideThreads: {"", "true", "false", "maybe"},
		intent.NRIPreserveCPU: {"", "", "true", "false"}, intent.NRIPreserveMemory: {"", "true"}, intent.NRIMemoryType: {"", "HBM", "dram,pmem"},
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		scope := rapid.SampledFrom([]string{"", "/pod", "/container.main", "/container.other"}).Draw(t, "scope of "+key)
		if value := rapid.SampledFrom(all[key]).Draw(t, key); value != "" {
			out[key+scope] = value
		}
	}
	return out
}

// checkAsked checks that annotations take effect only if a rule allows them, which is so in the namespaces
// fixed and grows.
func checkAsked(t *rapid.T, s *State, pod *lifecycle.Pod, c *Container) {
	t.Helper()
	asked := func(key string) string {
		for _, scope := range []string{"/container.main", "/pod", ""} {
			if v := pod.Annotations[key+scope]; v != "" {
				return v
			}
		}
		return ""
	}
	allowed := pod.Namespace == "fixed" || pod.Namespace == "grows"
	preserved := c.Assignment.Pool != placement.Balloon
	if want := allowed && asked(intent.NRIPreserveCPU) == "true"; preserved != want {
		t.Fatalf("%v in namespace %s: in %v", pod.Annotations, pod.Namespace, c.Assignment.CPUGroup)
	}
	in, _, _ := strings.Cut(c.Balloon, "[")
	switch named := asked(intent.NRIBalloon); {
	case preserved:
	case allowed && named != "" && named != "unknown":
		if in != named && in != "default" {
			t.Fatalf("it names %s and is in %s", named, c.Balloon)
		}
	case in == "reserved" && pod.Namespace != "kube-system", in == "fixed" && pod.Namespace != "fixed":
		t.Fatalf("a pod of namespace %s is in %s", pod.Namespace, c.Balloon)
	}
	cpus, _ := s.layout.CPUs(c.Assignment.CPUGroup)
	if !preserved && asked(intent.NRIHideThreads) == "true" && cpus.Len() > s.Machine.ExpandToGroups(topology.CoreLevel, cpus).Len()/2 {
		t.Fatalf("it hides threads and runs on %s", s.Machine.Format(cpus))
	}
}

// checkRecovered compares a state with the one that a new agent restores from records and checkpoint.
func checkRecovered(t *rapid.T, s *State, pods map[int]*lifecycle.Pod, live map[int]*lifecycle.Container) {
	t.Helper()
	ev := &lifecycle.Event{Kind: lifecycle.Synchronize}
	f := Facts{Records: map[string]Record{}, Balloons: map[string]string{}}
	for _, i := range slices.Sorted(maps.Keys(live)) {
		c := s.Container(live[i].ID)
		ev.Pods, ev.Containers = append(ev.Pods, pods[i]), append(ev.Containers, live[i])
		f.Records[c.ID] = Record{Version: lifecycle.RecordVersion, CPUs: s.Machine.Format(c.Stamp.CPUs), RecordFields: c.RecordFields}
	}
	for name, cpus := range s.Balloons() {
		f.Balloons[name] = s.Machine.Format(cpus)
	}
	now := NewState(s.Machine, s.Policy)
	plan := Decide(now, ev, f)
	checkMarks(t, plan)
	now.Commit(plan)
	if !maps.Equal(now.Balloons(), s.Balloons()) {
		t.Fatalf("recovered %v, want %v", now.Balloons(), s.Balloons())
	}
	for id := range f.Records {
		if got, want := now.Container(id).Assignment.CPUGroup, s.Container(id).Assignment.CPUGroup; got != want {
			t.Fatalf("%s recovered in %v, was in %v", id, got.PoolID, want.PoolID)
		}
	}
	back := Restore(s.Machine, s.Policy, s.Save())
	if !maps.Equal(back.Balloons(), s.Balloons()) {
		t.Fatalf("restored %v, want %v", back.Balloons(), s.Balloons())
	}
}
